# SPDX-License-Identifier: Apache-2.0
"""Faults do what they say, to whom they say, as often as they say."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from bench.stands.http import open_http
from common.clock import SYSTEM, within
from common.kube.resources import PODS
from simulator import build
from tests.support.stands.simulated import SEED, SimulatedApi, simulated_api

PODS_PATH = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[SimulatedApi]:
    async with simulated_api(tmp_path) as running:
        yield running


@pytest.fixture
async def http(api: SimulatedApi) -> AsyncIterator[httpx.AsyncClient]:
    async with open_http(api.kubeconfig) as client:
        yield client


async def test_throttling_speaks_as_the_real_filter_does(
    api: SimulatedApi, http: httpx.AsyncClient
) -> None:
    api.faults.add(status=429, retry_after_s=7, times=1)
    answer = await http.get(PODS_PATH)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")
    assert answer.text == "Too many requests, please try again later.\n"
    assert (await http.get(PODS_PATH)).status_code == 200


async def test_an_error_is_a_status(api: SimulatedApi, http: httpx.AsyncClient) -> None:
    api.faults.add(status=503)
    answer = await http.get(PODS_PATH)
    assert answer.status_code == 503
    assert (answer.json()["kind"], answer.json()["code"]) == ("Status", 503)


async def test_a_fault_hits_only_its_verbs_and_resources(
    api: SimulatedApi, http: httpx.AsyncClient
) -> None:
    fault = api.faults.add(verbs=["create"], resources=["pods/eviction"], status=500)
    api.store.create(PODS, build.pod("web", node="node-1"))
    assert (await http.get(PODS_PATH)).status_code == 200
    assert (await http.get(f"{PODS_PATH}/web")).status_code == 200
    body = {"metadata": {"name": "web"}}
    assert (await http.post(f"{PODS_PATH}/web/eviction", json=body)).status_code == 500
    assert fault.hits == 1
    assert "deletionTimestamp" not in api.store.get(PODS, "web", "default")["metadata"]


async def test_latency_delays_every_answer(api: SimulatedApi, http: httpx.AsyncClient) -> None:
    api.faults.add(latency_s=0.05)
    begun = SYSTEM.monotonic()
    assert (await http.get(PODS_PATH)).status_code == 200
    assert SYSTEM.monotonic() - begun >= 0.05


async def test_chance_comes_from_the_seed(api: SimulatedApi, http: httpx.AsyncClient) -> None:
    fault = api.faults.add(status=500, probability=0.5)
    answers = [(await http.get(PODS_PATH)).status_code for _ in range(40)]
    rng = random.Random(SEED)
    assert answers == [500 if rng.random() < 0.5 else 200 for _ in range(40)]
    assert answers.count(500) == fault.hits


async def test_faults_end(api: SimulatedApi, http: httpx.AsyncClient) -> None:
    fault = api.faults.add(status=500)
    api.faults.add(status=500, resources=["nodes"])
    api.faults.remove(fault)
    assert (await http.get(PODS_PATH)).status_code == 200
    assert (await http.get("/api/v1/nodes")).status_code == 500
    api.faults.clear()
    assert (await http.get("/api/v1/nodes")).status_code == 200


async def test_dropped_watches_end_without_a_goodbye(
    api: SimulatedApi, http: httpx.AsyncClient
) -> None:
    async with http.stream("GET", PODS_PATH, params={"watch": "true"}) as response:
        await _until_open(api)
        assert api.faults.drop_watches("nodes") == 0
        assert api.faults.drop_watches() == 1
        with pytest.raises(httpx.RemoteProtocolError):
            async for _ in response.aiter_lines():
                pass
    await _until_closed(api)


async def test_frozen_watches_stay_silent_until_they_thaw(
    api: SimulatedApi, http: httpx.AsyncClient
) -> None:
    async with http.stream("GET", PODS_PATH, params={"watch": "true"}) as response:
        lines = response.aiter_lines()
        api.faults.freeze_watches("pods")
        api.store.create(PODS, build.pod("web"))
        first = asyncio.ensure_future(anext(lines))
        done, _ = await asyncio.wait([first], timeout=0.1)
        assert not done
        assert (await http.get(f"{PODS_PATH}/web")).status_code == 200
        api.faults.thaw_watches()
        assert '"web"' in await within(SYSTEM, 10, first)


async def test_freezing_one_kind_leaves_others_alone(
    api: SimulatedApi, http: httpx.AsyncClient
) -> None:
    api.faults.freeze_watches("nodes")
    api.store.create(PODS, build.pod("web"))
    async with http.stream("GET", PODS_PATH, params={"watch": "true"}) as response:
        assert '"web"' in await anext(response.aiter_lines())


async def _until_open(api: SimulatedApi) -> None:
    async with asyncio.timeout(10):
        while not api.faults.open_watches:
            await SYSTEM.sleep(0.005)


async def _until_closed(api: SimulatedApi) -> None:
    async with asyncio.timeout(10):
        while api.faults.open_watches:
            await SYSTEM.sleep(0.005)
