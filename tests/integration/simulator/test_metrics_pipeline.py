# SPDX-License-Identifier: Apache-2.0
"""What is measured is what is used: in windows, late, and with true stamps."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import aiohttp
import msgspec
import pytest

from common.clock import SYSTEM
from common.config import Duration, RebalancerConfiguration
from common.kube.client import connect
from common.kube.resources import NODES, PODS
from common.kube.timestamps import parse_time
from common.metrics import Metrics
from common.observer import Observer
from common.usage.metrics_server import read_node, read_pod, span_s
from simulator import build
from simulator.api import Json
from simulator.cluster import SimulatedCluster
from simulator.nodes.fleet import Delays
from simulator.nodes.metrics import OF_KUBELETS, Pipeline
from tests.support.clock import FakeClock
from tests.support.stands.simulated_cluster import cluster_of, pass_time, ready, until

STEADY = Pipeline(resolution_s=15, lag_s=(2.0, 2.0))
AT_ONCE = Delays(start_s=(0.0, 0.0), stop_s=(0.0, 0.0))


def node_cpu(cluster: SimulatedCluster, name: str = "node-0") -> float | None:
    for each in cluster.metrics.node_metrics():
        if each["metadata"]["name"] == name:
            return read_node(msgspec.Raw(msgspec.json.encode(each)))[1].cpu_milli
    return None


def pod_cpu(cluster: SimulatedCluster) -> dict[str, float]:
    found = (read_pod(msgspec.Raw(msgspec.json.encode(e))) for e in cluster.metrics.pod_metrics())
    return {key: usage.cpu_milli for key, usage in found}


async def test_a_pod_is_measured_as_annotated_and_its_node_has_overhead_beside() -> None:
    clock = FakeClock()
    pod = build.pod("web", usage_cpu="750m", usage_memory="256Mi")
    async with cluster_of(1, pod, clock=clock, speed=1, pipeline=STEADY) as cluster:
        await pass_time(clock, 60)
        assert pod_cpu(cluster) == {"default/web": pytest.approx(750)}
        assert node_cpu(cluster) == pytest.approx(850)
        (measured,) = cluster.metrics.pod_metrics()
    assert measured["containers"] == [
        {"name": "app", "usage": {"cpu": "750000000n", "memory": "262144Ki"}}
    ]


async def test_nothing_is_seen_before_two_readings_and_the_lag() -> None:
    clock = FakeClock()
    async with cluster_of(1, clock=clock, speed=1, pipeline=STEADY) as cluster:
        first_s = cluster.context.rng.share("measure", "node-0") * 15
        await clock.advance(first_s + 15 + 1.5)
        assert node_cpu(cluster) is None
        await clock.advance(1)
        assert node_cpu(cluster) == pytest.approx(100)


async def test_stamps_are_real_and_windows_are_as_long_as_they_say() -> None:
    clock = FakeClock()
    async with cluster_of(1, clock=clock, speed=10, pipeline=STEADY) as cluster:
        await pass_time(clock, 10)
        (measured,) = cluster.metrics.node_metrics()
        age_s = clock.now() - parse_time(measured["timestamp"])
    assert span_s(measured["window"]) == pytest.approx(1.5, abs=0.1)
    assert 0 <= age_s < 4


async def test_a_pod_that_left_inside_the_window_is_still_in_the_nodes_figure() -> None:
    clock = FakeClock()
    pod = build.pod("web", usage_cpu="900m", spec={"terminationGracePeriodSeconds": 0})
    async with cluster_of(1, pod, clock=clock, speed=1, pipeline=STEADY, delays=AT_ONCE) as cluster:
        first_s = cluster.context.rng.share("measure", "node-0") * 15
        await pass_time(clock, 45 + first_s)
        await clock.advance(5)
        cluster.store.delete(PODS, "web", namespace="default")
        await pass_time(clock, 15)
        after = node_cpu(cluster)
        assert not pod_cpu(cluster)
        await pass_time(clock, 20)
        assert node_cpu(cluster) == pytest.approx(100)
    # About a third of the window it ran.
    assert after is not None
    assert 100 < after < 1000


async def test_pods_are_measured_in_windows_of_their_own() -> None:
    """As kubelets do: figures stay true, and the windows of a node and its pods differ."""
    clock = FakeClock()
    pods = [build.pod(f"web-{n}", usage_cpu="300m") for n in range(3)]
    async with cluster_of(1, *pods, clock=clock, speed=1, pipeline=OF_KUBELETS) as cluster:
        await pass_time(clock, 90)
        assert list(pod_cpu(cluster).values()) == [pytest.approx(300)] * 3
        (node,) = cluster.metrics.node_metrics()
        ends = [parse_time(each["timestamp"]) for each in cluster.metrics.pod_metrics()]
    before_s = [parse_time(node["timestamp"]) - end for end in ends]
    assert len(set(before_s)) == 3
    assert all(0.0 <= each <= 15.0 for each in before_s)


async def test_a_pod_has_no_sample_before_its_own_window_is_long_enough() -> None:
    clock = FakeClock()
    late = Pipeline(resolution_s=15, lag_s=(0.0, 0.0), pod_delay_s=(12.0, 12.0))
    async with cluster_of(1, clock=clock, speed=1, pipeline=late, delays=AT_ONCE) as cluster:
        await pass_time(clock, 60)
        cluster.store.create(PODS, build.pod("web", usage_cpu="300m", node="node-0"))
        await pass_time(clock, 20)
        assert not pod_cpu(cluster)
        await pass_time(clock, 20)
        assert pod_cpu(cluster) == {"default/web": pytest.approx(300)}


async def test_a_curve_changes_what_is_measured() -> None:
    clock = FakeClock()
    leaking = build.pod(
        "leak", usage_cpu="100m", annotations={build.CPU_CURVE: "leak per=60s by=100% until=500%"}
    )
    async with cluster_of(1, leaking, clock=clock, speed=1, pipeline=STEADY) as cluster:
        await pass_time(clock, 60)
        early = pod_cpu(cluster)["default/leak"]
        await pass_time(clock, 60)
        late = pod_cpu(cluster)["default/leak"]
    assert late == pytest.approx(early + 100, abs=5)


async def test_the_observer_believes_the_annotated_truth(tmp_path: Path) -> None:
    web = build.deployment("web", 4, usage_cpu="600m", usage_memory="512Mi")
    fast = Pipeline(resolution_s=15, lag_s=(1.0, 2.0))
    async with cluster_of(2, web, speed=100, pipeline=fast, delays=AT_ONCE) as cluster:
        await until(cluster, lambda: len(ready(cluster, "web")) == 4)
        path = cluster.write_kubeconfig(tmp_path / "kubeconfig")
        config = RebalancerConfiguration(
            usage_interval=Duration("100ms"), smoothing=Duration("1ms")
        )
        pods = [pod["spec"]["nodeName"] for pod in ready(cluster, "web")]
        expected = {name: 100.0 + 600 * pods.count(name) for name in ("node-0", "node-1")}
        async with connect(kubeconfig=str(path), clock=SYSTEM) as client:
            observer = Observer(client, config, clock=SYSTEM, metrics=Metrics("test"))
            watching = asyncio.create_task(observer.run())
            try:
                await until_believed(observer, expected)
            finally:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching


async def until_believed(observer: Observer, expected: dict[str, float]) -> None:
    """Wait until the observer believes this; stamps have whole seconds, so it takes some."""
    found: dict[str, float] = {}
    deadline = SYSTEM.monotonic() + 30
    while found != {name: pytest.approx(cpu, rel=0.02) for name, cpu in expected.items()}:
        assert SYSTEM.monotonic() < deadline, f"believed at the end: {found}"
        await SYSTEM.sleep(0.05)
        belief = await observer.look()
        found = {str(name): load.cpu_milli for name, load in belief.load.nodes.items()}


async def test_http_serves_what_kubectl_top_asks_for() -> None:
    clock = FakeClock()
    async with cluster_of(2, build.pod("web", usage_cpu="1"), clock=clock, speed=1) as cluster:
        await pass_time(clock, 60)
        async with aiohttp.ClientSession(cluster.server.url) as session:
            nodes = await get(session, "/apis/metrics.k8s.io/v1beta1/nodes")
            pods = await get(session, "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods")
    assert [item["metadata"]["name"] for item in nodes["items"]] == ["node-0", "node-1"]
    assert pods["items"][0]["containers"][0]["usage"]["cpu"] == "1000000000n"


async def get(session: aiohttp.ClientSession, path: str) -> Json:
    async with session.get(path) as got:
        found: Json = json.loads(await got.read())
        return found


async def test_the_same_seed_makes_the_same_load() -> None:
    async def run(seed: int) -> dict[str, float]:
        clock = FakeClock()
        wavy = build.deployment(
            "web", 3, usage_cpu="500m", annotations={build.CPU_CURVE: "wave period=5m depth=50%"}
        )
        async with cluster_of(2, wavy, clock=clock, speed=1, seed=seed) as cluster:
            await pass_time(clock, 60)
            return pod_cpu(cluster)

    first = await run(1)
    assert first == await run(1)
    assert sorted(first.values()) != sorted((await run(2)).values())


async def test_a_deleted_node_is_no_longer_measured() -> None:
    clock = FakeClock()
    async with cluster_of(2, clock=clock, speed=1) as cluster:
        await pass_time(clock, 60)
        cluster.store.delete(NODES, "node-1")
        names = [each["metadata"]["name"] for each in cluster.metrics.node_metrics()]
        assert names == ["node-0"]
