# SPDX-License-Identifier: Apache-2.0
"""Faults from Python and from the control endpoint."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from simulator import build
from simulator.cluster import SimulatedCluster
from simulator.faults import (
    DropWatches,
    FaultError,
    FreezeWatches,
    Latency,
    MetricsAbsent,
    MetricsAbsurd,
    MetricsFrozen,
    MetricsMissing,
    MetricsUnavailable,
    NodeDeath,
    ServerError,
    SlowStarts,
    Throttle,
)
from simulator.nodes.fleet import Delays
from tests.support.clock import FakeClock
from tests.support.stands.simulated_cluster import cluster_of, pass_time, ready

PODS = "/api/v1/pods"
METRICS_API = "/apis/metrics.k8s.io/v1beta1"
NODE_METRICS = f"{METRICS_API}/nodes"
FAULTS = "/evenkeel.io/faults"


async def call(
    cluster: SimulatedCluster, method: str, path: str, body: Any = None
) -> tuple[int, Any, Any]:
    """Return code, decoded body and headers of a request."""
    async with (
        aiohttp.ClientSession(cluster.server.url) as session,
        session.request(method, path, json=body) as got,
    ):
        data = await got.read()
        return got.status, json.loads(data) if data[:1] in (b"{", b"[") else data, got.headers


async def test_requests_can_be_throttled_a_number_of_times() -> None:
    async with cluster_of(1) as cluster:
        cluster.faults.inject(Throttle(resources=("pods",), times=1, retry_after_seconds=7))
        code, _, headers = await call(cluster, "GET", PODS)
        assert (code, headers["Retry-After"]) == (429, "7")
        assert (await call(cluster, "GET", PODS))[0] == 200


async def test_requests_can_fail_until_the_fault_is_withdrawn() -> None:
    async with cluster_of(1) as cluster:
        number = cluster.faults.inject(ServerError(verbs=("list",), resources=("pods",)))
        assert (await call(cluster, "GET", PODS))[0] == 500
        assert (await call(cluster, "GET", "/api/v1/nodes"))[0] == 200
        cluster.faults.withdraw(number)
        assert (await call(cluster, "GET", PODS))[0] == 200


async def test_answers_can_be_late() -> None:
    clock = FakeClock()
    async with cluster_of(1, clock=clock, speed=1) as cluster:
        cluster.faults.inject(Latency(seconds=5, resources=("pods",)))
        began_s = clock.monotonic()
        asking = asyncio.create_task(call(cluster, "GET", PODS))
        # Others sleep too: nothing tells when it is this request that waits.
        while not asking.done():
            await pass_time(clock, 1)
        assert (await asking)[0] == 200
        assert clock.monotonic() - began_s >= 5


async def seen(watch: aiohttp.ClientResponse, word: bytes) -> None:
    """Read a watch until a word comes."""
    while word not in await watch.content.readline():
        pass


async def drained(watch: aiohttp.ClientResponse) -> None:
    """Read a watch to its end."""
    while await watch.content.readline():
        pass


async def test_watches_can_be_dropped_and_frozen() -> None:
    async with (
        cluster_of(1) as cluster,
        aiohttp.ClientSession(cluster.server.url) as session,
        session.get(f"{PODS}?watch=true") as watch,
    ):
        cluster.create([build.pod("before")])
        await seen(watch, b'"before"')
        number = cluster.faults.inject(FreezeWatches(resources=("pods",)))
        cluster.create([build.pod("during")])
        # What is asked for later is answered while the watch still says nothing.
        reading = asyncio.create_task(seen(watch, b'"during"'))
        assert (await call(cluster, "GET", f"{PODS}?labelSelector=app=during"))[1]["items"]
        assert not reading.done()
        cluster.faults.withdraw(number)
        await reading
        cluster.faults.inject(DropWatches())
        with pytest.raises(aiohttp.ClientError):
            await drained(watch)


async def test_measurements_can_be_missing_frozen_absurd_or_unavailable() -> None:
    clock = FakeClock()
    async with cluster_of(2, clock=clock, speed=1) as cluster:
        await pass_time(clock, 60)
        faults = cluster.faults
        assert await usage(cluster) == {"node-0": "100000000n", "node-1": "100000000n"}
        faults.inject(MetricsMissing(node="node-0"))
        assert await usage(cluster) == {"node-1": "100000000n"}
        faults.clear()
        faults.inject(MetricsAbsurd(node="node-1", factor=1000))
        assert (await usage(cluster))["node-1"] == "100000000000n"
        faults.clear()
        faults.inject(MetricsFrozen())
        before = await stamps(cluster)
        await pass_time(clock, 60)
        assert await stamps(cluster) == before
        faults.clear()
        await pass_time(clock, 30)
        assert await stamps(cluster) != before
        faults.inject(MetricsUnavailable())
        assert (await call(cluster, "GET", NODE_METRICS))[0] == 503
        assert (await call(cluster, "GET", METRICS_API))[0] == 503
        faults.clear()
        absent = faults.inject(MetricsAbsent())
        assert (await call(cluster, "GET", NODE_METRICS))[0] == 404
        assert (await call(cluster, "GET", METRICS_API))[0] == 404
        faults.withdraw(absent)
        assert (await call(cluster, "GET", METRICS_API))[0] == 200


async def usage(cluster: SimulatedCluster) -> dict[str, str]:
    _, body, _ = await call(cluster, "GET", NODE_METRICS)
    return {item["metadata"]["name"]: item["usage"]["cpu"] for item in body["items"]}


async def stamps(cluster: SimulatedCluster) -> list[str]:
    _, body, _ = await call(cluster, "GET", NODE_METRICS)
    return [item["timestamp"] for item in body["items"]]


async def test_starts_can_be_slow() -> None:
    clock = FakeClock()
    quick = Delays(start_s=(2.0, 2.0))
    async with cluster_of(1, clock=clock, speed=1, delays=quick) as cluster:
        cluster.faults.inject(SlowStarts(factor=10))
        cluster.create([build.pod("web")])
        await pass_time(clock, 15)
        assert not ready(cluster, "web")
        await pass_time(clock, 10)
        assert ready(cluster, "web")


async def test_a_fault_on_a_node_that_is_not_there_is_refused() -> None:
    async with cluster_of(1) as cluster:
        with pytest.raises(FaultError, match="node ghost not found"):
            cluster.faults.inject(NodeDeath(node="ghost"))


async def test_the_control_endpoint_does_the_same() -> None:
    async with cluster_of(1) as cluster:
        code, body, _ = await call(cluster, "POST", FAULTS, {"fault": "error", "status": 502})
        assert (code, body) == (201, {"id": 1})
        assert (await call(cluster, "GET", PODS))[0] == 502
        _, body, _ = await call(cluster, "GET", FAULTS)
        assert body["faults"][0]["id"] == 1
        assert body["faults"][0]["fault"]["fault"] == "error"
        assert (await call(cluster, "DELETE", f"{FAULTS}/1"))[0] == 200
        assert (await call(cluster, "GET", PODS))[0] == 200
        await call(cluster, "POST", FAULTS, {"fault": "node-death", "node": "node-0"})
        assert not cluster.fleet.kubelets["node-0"].alive
        assert (await call(cluster, "DELETE", FAULTS))[0] == 200
        assert cluster.fleet.kubelets["node-0"].alive


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", FAULTS, {"fault": "earthquake"}, 400),
        ("POST", FAULTS, {"fault": "latency"}, 400),
        ("POST", FAULTS, {"fault": "latency", "seconds": 1, "second": 2}, 400),
        ("POST", FAULTS, {"fault": "node-death", "node": "ghost"}, 400),
        ("DELETE", f"{FAULTS}/7", None, 404),
        ("GET", "/evenkeel.io/luck", None, 404),
    ],
)
async def test_what_is_not_understood_is_refused_with_words(
    method: str, path: str, body: Any, code: int
) -> None:
    async with cluster_of(1) as cluster:
        found, answer, _ = await call(cluster, method, path, body)
    assert found == code
    assert answer["error"]
