# SPDX-License-Identifier: Apache-2.0
"""The real kube-scheduler, started with the file that users copy, asks the real extender."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Set
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.stands.cluster import Cluster
from bench.stands.extender_process import (
    QUICK,
    USER,
    ExtenderProcess,
    extender_running,
    install,
    seen_migrations,
    use_extender,
)
from bench.stands.faulty_extender import Fault, faulty_extender
from bench.stands.landing import Json, Landing, another, hits, waiting_reason
from common.clock import SYSTEM
from controlplane.scheduler_config import SHIPPED
from simulator import build
from tests.e2e.slow_api import slow_api
from tests.support.stands.control_plane import Say

pytestmark = pytest.mark.real


MEASURED_S = 120.0
THRESHOLD = 80
NODE_MILLI, LOADED_MILLI, BURST_MILLI = 8_000, 4_800, 300
WORKLOADS, REPLICAS, MOVES = 30, 4, 100
MISSED = 2
"""How often a change may reach the extender on a busy machine later than it waits (100 ms)."""


@pytest.fixture
def landing(cluster: Cluster) -> Landing:
    return Landing(cluster)


async def test_pods_avoid_hot_nodes_and_never_land_on_nodes_under_maintenance(
    cluster: Cluster, landing: Landing, tmp_path: Path, say: Say
) -> None:
    nodes = await cluster.add_nodes(20)
    hot, maintained = nodes[:2], nodes[2:4]
    for node in hot:
        await landing.occupy(node, f"hot-{node}", cpu="100m", usage_cpu="7200m")
    for node in maintained:
        await cluster.maintain(node, on=True)
    alone = await _without_extender(cluster, landing, tmp_path, 200)
    async with extender_running(cluster, tmp_path) as extender:
        await _hot_are_known(cluster, extender, hot)
        await use_extender(cluster, extender.url)
        guided = await landing.place("work", 200, usage_cpu="20m")
        metrics = await extender.metrics()
        assert _configured(cluster) == _as_shipped(cluster, extender.url)
    for setup, found in (("without the extender", alone), ("with it", guided)):
        on_hot, on_maintained = _sum(found, hot), _sum(found, maintained)
        say(f"{setup}: {on_hot} of 200 pods on the hot nodes, {on_maintained} under maintenance")
    say(f"most on one node: {max(guided.values())}, fewest: {_fewest(guided, nodes[4:])}")
    assert _sum(guided, maintained) == 0
    assert _sum(guided, hot) < 4
    assert metrics.total("extender_requests_total", verb="filter", code="200") >= 200
    assert metrics.total("extender_requests_total", verb="prioritize", code="200") >= 200


async def test_moved_pods_land_on_their_planned_nodes(
    cluster: Cluster, landing: Landing, tmp_path: Path, say: Say
) -> None:
    nodes = await cluster.add_nodes(20)
    async with extender_running(cluster, tmp_path) as extender:
        await use_extender(cluster, extender.url)
        hits = await _move(cluster, landing, nodes, "w")
        metrics = await extender.metrics()
    outcomes = [line for line in metrics.text.splitlines() if "intents_total{" in line]
    say(f"{hits} of {MOVES} replacements on the planned node; " + ", ".join(outcomes))
    assert hits >= 99


async def test_moved_pods_land_among_300_nodes_because_all_are_shown(
    cluster: Cluster, landing: Landing, tmp_path: Path, say: Say
) -> None:
    nodes = await cluster.add_nodes(300)
    sampling = yaml.safe_load(SHIPPED.read_text())
    for profile in sampling["profiles"]:
        del profile["percentageOfNodesToScore"]
    (tmp_path / "sampling.yaml").write_text(yaml.safe_dump(sampling))
    async with extender_running(cluster, tmp_path) as extender:
        await cluster.configure_scheduler(tmp_path / "sampling.yaml", extender_url=extender.url)
        sampled = await _move(cluster, landing, nodes, "s")
        await use_extender(cluster, extender.url)
        shipped = await _move(cluster, landing, nodes, "w")
    say(f"300 nodes: {sampled} of {MOVES} as planned with kube-scheduler's default sampling")
    say(f"300 nodes: {shipped} of {MOVES} with the shipped configuration")
    assert sampled < shipped
    assert shipped >= 99


async def test_a_dead_extender_stops_nobody(
    cluster: Cluster, landing: Landing, tmp_path: Path, say: Say
) -> None:
    await cluster.add_nodes(5)
    async with extender_running(cluster, tmp_path) as extender:
        await use_extender(cluster, extender.url)
        await _timed(landing, "before", say)
        await extender.kill()
        await _timed(landing, "killed", say)


async def test_a_hung_extender_costs_two_timeouts_a_pod(
    cluster: Cluster, landing: Landing, tmp_path: Path, say: Say
) -> None:
    await cluster.add_nodes(5)
    async with extender_running(cluster, tmp_path) as extender:
        await use_extender(cluster, extender.url)
        extender.send(signal.SIGSTOP)
        await _timed(landing, "hung", say)
        extender.send(signal.SIGCONT)
        await cluster.wait(extender.is_ready, what="it answers again")
        await _timed(landing, "awake", say)


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
async def test_an_extender_that_talks_nonsense_stops_nobody(
    cluster: Cluster, landing: Landing, say: Say, fault: Fault
) -> None:
    await cluster.add_nodes(5)
    async with faulty_extender(fault) as url:
        await use_extender(cluster, url)
        await _timed(landing, fault.name.lower(), say)


async def test_without_metrics_pods_spread_as_without_the_extender(
    cluster: Cluster, landing: Landing, tmp_path: Path, say: Say
) -> None:
    nodes = await cluster.add_nodes(10)
    hot = nodes[:2]
    for node in hot:
        await landing.occupy(node, f"hot-{node}", cpu="100m", usage_cpu="7200m")
    settings = {**QUICK, "metricExpiry": "20s"}
    async with extender_running(cluster, tmp_path, settings=settings) as extender:
        await _hot_are_known(cluster, extender, hot)
        await cluster.stop("metrics-server")
        await cluster.wait(lambda: _all_unknown(extender), MEASURED_S, "the samples have expired")
        await use_extender(cluster, extender.url)
        blind = await landing.place("work", 100)
        metrics = await extender.metrics()
    await landing.remove("work")
    alone = await _without_extender(cluster, landing, tmp_path, 100)
    for setup, found in (("without metrics", blind), ("without the extender", alone)):
        say(f"{setup}: {_sum(found, hot)} of 100 pods on the two hot nodes, "
            f"{_fewest(found, nodes)} to {max(found.values())} pods a node")  # fmt: skip
    assert metrics.total("neutral_answers_total", verb="prioritize", cause="resting") >= 100
    assert abs(_sum(blind, hot) - _sum(alone, hot)) <= 4
    assert max(blind.values()) - _fewest(blind, nodes) <= 4


async def test_nobody_is_killed_on_a_node_under_maintenance(
    cluster: Cluster, landing: Landing, tmp_path: Path, say: Say
) -> None:
    await cluster.create(_priority(cluster, name, value) for name, value in _RANKS.items())
    maintained, busy = await cluster.add_nodes(2)
    low, high = (f"{cluster.namespace}-{name}" for name in _RANKS)
    for number in range(4):
        rank = {"priorityClassName": low}
        await landing.occupy(maintained, f"low-{number}", cpu="1900m", spec=rank)
    await landing.occupy(busy, "high", cpu="7500m", spec={"priorityClassName": high})
    await cluster.maintain(maintained, on=True)
    async with extender_running(cluster, tmp_path) as extender:
        await use_extender(cluster, extender.url)
        await landing.begin("urgent", 1, cpu="1500m", spec={"priorityClassName": high})
        await cluster.wait(lambda: _was_vetoed(extender), what="the extender was asked to preempt")
        [urgent] = await landing.pods("urgent")
        assert len(await landing.pods()) == 6
        assert "nominatedNodeName" not in urgent["status"]
        await cluster.maintain(maintained, on=False)
        await cluster.wait(lambda: _is_free(extender, maintained), what="it knows of the end")
        await landing.begin("later", 1, cpu="1500m", spec={"priorityClassName": high})
        [later] = await landing.bound("later", 1)
    say("no preemption while the node was under maintenance; afterwards there was one")
    assert later["spec"]["nodeName"] == maintained
    assert len(await landing.pods()) < 7


async def test_pods_that_wait_for_maintenance_to_end_are_scheduled_at_once(
    cluster: Cluster, landing: Landing, tmp_path: Path, say: Say
) -> None:
    nodes = await cluster.add_nodes(5)
    for node in nodes:
        await cluster.maintain(node, on=True)
    await install(cluster)
    user = await cluster.kubeconfig_of(user=USER)
    async with (
        slow_api(user, tmp_path, "nodes") as api,
        extender_running(cluster, tmp_path, kubeconfig=api.kubeconfig) as extender,
    ):
        await use_extender(cluster, extender.url)
        freed = partial(_freed, cluster, landing, extender, nodes)
        prompt = [took for number in range(20) if (took := await freed(number)) is not None]
        api.delay_s = 0.05
        late = [took for number in range(20, 30) if (took := await freed(number)) is not None]
        metrics = await extender.metrics()
    say(f"from the label's removal to the binding: {_spread(prompt)}; "
        f"with the extender's watch 50 ms late: {_spread(late)}")  # fmt: skip
    waits = [line for line in metrics.text.splitlines() if "node_event_waits_total{" in line]
    say(", ".join(waits))
    assert len(prompt + late) >= 30 - MISSED


async def test_a_burst_that_asks_for_little_and_uses_much_is_spread_by_load(
    cluster: Cluster, landing: Landing, tmp_path: Path, say: Say
) -> None:
    nodes = await cluster.add_nodes(10)
    loaded = nodes[:3]
    for node in loaded:
        await landing.occupy(node, f"loaded-{node}", cpu="100m", usage_cpu=f"{LOADED_MILLI}m")
    pod = {"cpu": "10m", "memory": "16Mi", "usage_cpu": f"{BURST_MILLI}m"}
    alone = await _without_extender(cluster, landing, tmp_path, 100, **pod)
    async with extender_running(cluster, tmp_path) as extender:
        await _known(cluster, extender, dict.fromkeys(loaded, 0.7))
        await use_extender(cluster, extender.url)
        guided = await landing.place("work", 100, **pod)
    for setup, found in (("without the extender", alone), ("with it", guided)):
        shares = _percent(found, nodes, loaded)
        say(f"{setup}: nodes end at {min(shares.values()):.0f} to {max(shares.values()):.0f} %")
    shares = _percent(guided, nodes, loaded)
    assert max(shares.values()) <= THRESHOLD or min(shares.values()) >= THRESHOLD / 2


def _configured(cluster: Cluster) -> str:
    return cluster.control_plane.folder.scheduler_config.read_text()


def _as_shipped(cluster: Cluster, url: str) -> str:
    """Return the file that users copy, with the two values that depend on the machine."""
    kubeconfig = cluster.control_plane.folder.kubeconfig_of("kube-scheduler")
    text = SHIPPED.read_text().replace("/etc/kubernetes/scheduler.conf", f'"{kubeconfig}"')
    return text.replace("http://127.0.0.1:8888", f'"{url}"')


async def _without_extender(
    cluster: Cluster, landing: Landing, folder: Path, count: int, **template: Any
) -> Counter[str]:
    """Place pods with the shipped configuration less its extender, and take them away."""
    config = yaml.safe_load(SHIPPED.read_text())
    config.pop("extenders", None)
    (folder / "alone.yaml").write_text(yaml.safe_dump(config))
    await cluster.configure_scheduler(folder / "alone.yaml")
    found = await landing.place("alone", count, **template)
    await landing.remove("alone")
    return found


async def _move(cluster: Cluster, landing: Landing, nodes: list[str], prefix: str) -> int:
    """Move pods of many workloads as a plan says; return how many landed as planned."""
    names = [f"{prefix}{number}" for number in range(WORKLOADS)]
    for name in names:
        await landing.begin(name, REPLICAS)
    total = WORKLOADS * REPLICAS
    before = await cluster.wait(lambda: _all_bound(landing, names, total), 90, "all pods bound")
    moves = [(pod, another(nodes, pod, turn)) for turn, pod in enumerate(before[:MOVES])]
    version = await landing.plan(moves)
    await cluster.wait(lambda: _has_seen(cluster, version), what="the extender has all intents")
    await landing.evict([pod for pod, _ in moves])
    gone = {pod["metadata"]["uid"] for pod, _ in moves}
    after = await cluster.wait(
        lambda: _all_bound(landing, names, total, without=gone), 90, "all pods are replaced"
    )
    known = {pod["metadata"]["uid"] for pod in before}
    return hits((pod for pod in after if pod["metadata"]["uid"] not in known), moves)


async def _all_bound(
    landing: Landing, names: list[str], count: int, *, without: Set[str] = frozenset()
) -> list[Json]:
    pods = [pod for pod in await landing.pods(*names) if pod["spec"].get("nodeName")]
    done = len(pods) == count and not without & {pod["metadata"]["uid"] for pod in pods}
    return pods if done else []


async def _has_seen(cluster: Cluster, version: int) -> bool:
    return await seen_migrations(cluster) >= version


async def _timed(landing: Landing, name: str, say: Say, count: int = 15) -> None:
    """Place pods and print how many a second were scheduled."""
    started = SYSTEM.monotonic()
    await landing.place(name, count)
    took = SYSTEM.monotonic() - started
    [shipped] = yaml.safe_load(SHIPPED.read_text())["extenders"]
    say(f"extender {name}: {count / took:.1f} pods/s (httpTimeout {shipped['httpTimeout']})")


async def _freed(
    cluster: Cluster, landing: Landing, extender: ExtenderProcess, nodes: list[str], number: int
) -> float | None:
    """Let a pod wait, end the maintenance of one node, and return how long it took from there.

    None if the extender received it so late that it had waited in vain: then the pod stays for
    minutes, whatever the extender does.
    """
    name, node = f"pod-{number}", nodes[number % len(nodes)]
    await cluster.wait(lambda: _none_is_free(extender), what="it knows that no node is free")
    await cluster.create([_bare(cluster, name)])

    async def waits() -> bool:
        return f"{len(nodes)} node under maintenance" in waiting_reason(await landing.pod(name))

    async def placed() -> bool:
        return "nodeName" in (await landing.pod(name))["spec"]

    async def over() -> bool:
        return await placed() or await _in_vain(extender) > vain

    await cluster.wait(waits, what="the pod waits and says why")
    vain, started = await _in_vain(extender), SYSTEM.monotonic()
    await cluster.maintain(node, on=False)
    await cluster.wait(over, what="the pod has a node")
    took = SYSTEM.monotonic() - started if await placed() else None
    await cluster.maintain(node, on=True)
    await landing.forget(name)
    return took


async def _in_vain(extender: ExtenderProcess) -> float:
    return (await extender.metrics()).total("node_event_waits_total", result="vain")


def _bare(cluster: Cluster, name: str) -> Json:
    return build.pod(name, namespace=cluster.namespace)


async def _hot_are_known(cluster: Cluster, extender: ExtenderProcess, hot: list[str]) -> None:
    await _known(cluster, extender, dict.fromkeys(hot, 1.0))


async def _known(cluster: Cluster, extender: ExtenderProcess, use: dict[str, float]) -> None:
    """Wait until the extender knows all nodes, and these to be used so much."""

    async def believed() -> bool:
        rows = await extender.nodes()
        return all(row["unknown"] is None for row in rows.values()) and all(
            rows[node]["use"] >= least for node, least in use.items()
        )

    await cluster.wait(believed, MEASURED_S, "the extender knows the load of all nodes")


async def _all_unknown(extender: ExtenderProcess) -> bool:
    return all(row["unknown"] is not None for row in (await extender.nodes()).values())


async def _is_free(extender: ExtenderProcess, node: str) -> bool:
    return not (await extender.nodes())[node]["maintenance"]


async def _none_is_free(extender: ExtenderProcess) -> bool:
    return all(row["maintenance"] for row in (await extender.nodes()).values())


async def _was_vetoed(extender: ExtenderProcess) -> bool:
    metrics = await extender.metrics()
    return metrics.total("extender_requests_total", verb="preempt", code="200") > 0


_RANKS = {"low": 100, "high": 1_000}


def _priority(cluster: Cluster, name: str, value: int) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"{cluster.namespace}-{name}"},
        "value": value,
    }


def _sum(found: Counter[str], nodes: list[str]) -> int:
    return sum(found[node] for node in nodes)


def _fewest(found: Counter[str], nodes: list[str]) -> int:
    return min(found[node] for node in nodes)


def _percent(found: Counter[str], nodes: list[str], loaded: list[str]) -> dict[str, float]:
    """Return what each node really uses in the end, of its CPU."""
    base = Counter(dict.fromkeys(loaded, LOADED_MILLI))
    return {n: (base[n] + BURST_MILLI * found[n]) / NODE_MILLI * 100 for n in nodes}


def _spread(values: list[float]) -> str:
    ordered = sorted(values)
    return f"median {ordered[len(ordered) // 2]:.2f} s, longest {ordered[-1]:.2f} s"
