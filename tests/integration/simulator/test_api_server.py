# SPDX-License-Identifier: Apache-2.0
"""What only the simulator's server does: limits, extras, and plain words for what it cannot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from bench.stands.http import open_http
from common.clock import SYSTEM
from common.kube.resources import NODES, PODS
from simulator import build
from simulator.api import DEFINITIONS
from simulator.api.errors import Unavailable
from tests.support.stands.conformance import Json
from tests.support.stands.simulated import SimulatedApi, simulated_api

if TYPE_CHECKING:
    import httpx

PODS_PATH = "/api/v1/namespaces/default/pods"
METRICS_PATH = "/apis/metrics.k8s.io/v1beta1"


class Measured:
    """Metrics that a test sets."""

    def __init__(self) -> None:
        self.down = False

    def is_registered(self) -> bool:
        return True

    def node_metrics(self) -> Iterable[Json]:
        if self.down:
            raise Unavailable("the metrics are down")
        return [_metrics("node-b", color="red"), _metrics("node-a")]

    def pod_metrics(self) -> Iterable[Json]:
        return [_metrics("web", namespace="default"), _metrics("db", namespace="other")]


def _metrics(name: str, *, namespace: str | None = None, **labels: str) -> Json:
    metadata: Json = {"name": name, "labels": labels}
    if namespace:
        metadata["namespace"] = namespace
    times = {"timestamp": "2026-11-16T09:00:00Z", "window": "10s"}
    return {"metadata": metadata, **times, "usage": {"cpu": "1", "memory": "1Gi"}}


@pytest.fixture
def measured() -> Measured:
    return Measured()


@pytest.fixture
async def api(tmp_path: Path, measured: Measured) -> AsyncIterator[SimulatedApi]:
    async with simulated_api(tmp_path, metrics=measured) as running:
        yield running


@pytest.fixture
async def http(api: SimulatedApi) -> AsyncIterator[httpx.AsyncClient]:
    async with open_http(api.kubeconfig) as client:
        yield client


async def test_serves_what_was_measured(http: httpx.AsyncClient) -> None:
    groups = (await http.get("/apis")).json()["groups"]
    assert "metrics.k8s.io" in [group["name"] for group in groups]
    kinds = (await http.get(METRICS_PATH)).json()["resources"]
    assert [kind["kind"] for kind in kinds] == ["NodeMetrics", "PodMetrics"]
    nodes = (await http.get(f"{METRICS_PATH}/nodes")).json()
    assert nodes["kind"] == "NodeMetricsList"
    assert [item["metadata"]["name"] for item in nodes["items"]] == ["node-a", "node-b"]
    red = await http.get(f"{METRICS_PATH}/nodes", params={"labelSelector": "color=red"})
    assert [item["metadata"]["name"] for item in red.json()["items"]] == ["node-b"]
    here = (await http.get(f"{METRICS_PATH}/namespaces/default/pods")).json()["items"]
    assert [item["metadata"]["name"] for item in here] == ["web"]
    assert len((await http.get(f"{METRICS_PATH}/pods")).json()["items"]) == 2
    one = (await http.get(f"{METRICS_PATH}/namespaces/default/pods/web")).json()
    assert (one["kind"], one["usage"]["cpu"]) == ("PodMetrics", "1")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/nodes/none", 404),
        ("/namespaces/default/pods/none", 404),
        ("/nopes", 404),
        ("/nodes?labelSelector=((", 400),
    ],
)
async def test_metrics_that_do_not_exist_are_refused(
    http: httpx.AsyncClient, path: str, code: int
) -> None:
    answer = await http.get(METRICS_PATH + path)
    assert answer.status_code == code
    assert answer.json()["code"] == code


async def test_metrics_that_are_down_are_unavailable(
    http: httpx.AsyncClient, measured: Measured
) -> None:
    measured.down = True
    answer = await http.get(f"{METRICS_PATH}/nodes")
    assert (answer.status_code, answer.json()["reason"]) == (503, "ServiceUnavailable")
    assert (await http.post(f"{METRICS_PATH}/nodes", json={})).status_code == 405


async def test_without_a_provider_there_is_no_metrics_group(tmp_path: Path) -> None:
    async with simulated_api(tmp_path) as running, open_http(running.kubeconfig) as http:
        assert (await http.get(METRICS_PATH)).status_code == 404
        assert (await http.get(f"{METRICS_PATH}/nodes")).status_code == 404
        groups = (await http.get("/apis")).json()["groups"]
        assert "metrics.k8s.io" not in [group["name"] for group in groups]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/log"),
        ("POST", "/exec"),
        ("PATCH", "/resize"),
        ("PATCH", "/ephemeralcontainers"),
    ],
)
async def test_known_subresources_that_are_missing_say_so(
    api: SimulatedApi, http: httpx.AsyncClient, method: str, path: str
) -> None:
    api.store.create(PODS, build.pod("web"))
    answer = await http.request(method, f"{PODS_PATH}/web{path}")
    assert (answer.status_code, answer.json()["reason"]) == (501, "NotImplemented")
    assert f"pods{path}" in answer.json()["message"]


async def test_the_old_way_to_watch_says_so(http: httpx.AsyncClient) -> None:
    assert (await http.get("/api/v1/watch/pods")).status_code == 501


async def test_server_side_apply_is_unsupported(api: SimulatedApi, http: httpx.AsyncClient) -> None:
    api.store.create(PODS, build.pod("web"))
    headers = {"Content-Type": "application/apply-patch+yaml"}
    answer = await http.patch(f"{PODS_PATH}/web", content="{}", headers=headers)
    assert (answer.status_code, answer.json()["reason"]) == (415, "UnsupportedMediaType")
    assert "server-side apply" in answer.json()["message"]


async def test_fields_that_are_not_looked_at_are_warned_of(http: httpx.AsyncClient) -> None:
    query = {"fieldValidation": "Strict"}
    created = await http.post(PODS_PATH, json=build.pod("web"), params=query)
    headers = {"Content-Type": "application/merge-patch+json"}
    patched = await http.patch(f"{PODS_PATH}/web", content="{}", headers=headers, params=query)
    assert (created.status_code, patched.status_code) == (201, 200)
    assert "unknown fields" in created.headers["Warning"]
    assert "unknown fields" in patched.headers["Warning"]
    assert "Warning" not in (await http.post(PODS_PATH, json=build.pod("other"))).headers


def _definition(**version: Any) -> Json:
    schema = {"type": "object", "properties": {"spec": {"type": "object"}}}
    served = {"name": "v1", "served": True, "storage": True}
    return {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{**served, "schema": {"openAPIV3Schema": schema}, **version}],
        },
    }


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        (
            _definition(schema={"openAPIV3Schema": {"type": "object", "oneOf": []}}),
            "does not understand these parts of the schema: .: oneOf",
        ),
        (
            _definition(
                schema={
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-validations": [{"rule": "self.x > 1"}],
                    }
                }
            ),
            "the rule 'self.x > 1'",
        ),
        (_definition(subresources={"scale": {}}), "does not scale custom resources"),
    ],
)
async def test_definitions_beyond_the_simulator_say_so(
    http: httpx.AsyncClient, definition: Json, words: str
) -> None:
    answer = await http.post(DEFINITIONS.path(), json=definition)
    assert answer.status_code == 501
    assert words in answer.json()["message"]


async def test_a_watch_of_a_kind_that_ends_ends(api: SimulatedApi, http: httpx.AsyncClient) -> None:
    api.store.create(DEFINITIONS, _definition())
    path = "/apis/example.com/v1/things"
    async with http.stream("GET", path, params={"watch": "true"}, timeout=10) as response:
        while not api.faults.open_watches:
            await SYSTEM.sleep(0.005)
        api.store.delete(DEFINITIONS, "things.example.com")
        assert [line async for line in response.aiter_lines()] == []
    assert (await http.get(path)).status_code == 404


async def test_objects_of_an_ending_kind_may_hold_it_back(
    api: SimulatedApi, http: httpx.AsyncClient
) -> None:
    api.store.create(DEFINITIONS, _definition())
    thing = {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": "a", "finalizers": ["a.example/hold"]},
    }
    path = "/apis/example.com/v1/things"
    assert (await http.post(path, json=thing)).status_code == 201
    await http.delete(DEFINITIONS.path(name="things.example.com"))
    assert "deletionTimestamp" in (await http.get(f"{path}/a")).json()["metadata"]
    headers = {"Content-Type": "application/merge-patch+json"}
    free = {"metadata": {"finalizers": None}}
    await http.patch(f"{path}/a", content=json.dumps(free), headers=headers)
    assert (await http.get(path)).status_code == 404
    assert api.store.find(DEFINITIONS, "things.example.com") is None


async def test_another_handler_can_be_mounted(api: SimulatedApi, http: httpx.AsyncClient) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=request.path)

    api.server.mount("faults", handler)
    assert (await http.get("/faults/now")).text == "/faults/now"
    assert (await http.get("/")).json()["paths"]


async def test_stopping_ends_watches_politely(tmp_path: Path) -> None:
    async with simulated_api(tmp_path) as running, open_http(running.kubeconfig) as http:
        query = {"watch": "true"}
        async with http.stream("GET", PODS_PATH, params=query, timeout=10) as response:
            await running.server.stop()
            assert [line async for line in response.aiter_lines()] == []


async def test_a_client_that_leaves_is_forgotten(
    api: SimulatedApi, http: httpx.AsyncClient
) -> None:
    async with http.stream("GET", PODS_PATH, params={"watch": "true"}):
        pass
    async with asyncio.timeout(10):
        while api.faults.open_watches:
            await SYSTEM.sleep(0.005)


async def test_a_watch_as_a_table_names_its_columns_once(
    api: SimulatedApi, http: httpx.AsyncClient
) -> None:
    api.store.create(NODES, build.node("a"))
    api.store.create(NODES, build.node("b"))
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    query = {"watch": "true", "timeoutSeconds": "1"}
    async with http.stream("GET", "/api/v1/nodes", params=query, headers=headers) as response:
        tables = [json.loads(line)["object"] async for line in response.aiter_lines()]
    assert [bool(table["columnDefinitions"]) for table in tables] == [True, False]
    assert [table["rows"][0]["cells"][0] for table in tables] == ["a", "b"]
