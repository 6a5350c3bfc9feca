# SPDX-License-Identifier: Apache-2.0
"""PSI from a real Prometheus: a node of low use and high pressure is relieved, and never filled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.observed import observed, ready_node, running_pod
from common.api.objects import Object, ReplicaSet
from common.cache.state import ClusterState
from common.clock import SYSTEM
from common.config import RebalancerConfiguration
from common.load import Belief, LoadTracker
from common.usage import Sample
from common.usage.prometheus import PrometheusSource
from rebalancer.decision import Decider
from rebalancer.planner import Plan
from simulator import build
from tests.support.stands.prometheus import SCRAPE_MS, Exporter, Line, prometheus

WINDOW_S = 4.0
MIB = 1024.0 * 1024.0
PODS = {"n1": (0.5, 0.5, 0.5, 0.5), "n2": (1.0, 1.0, 1.0, 1.0), "n3": (3.5, 3.5, 1.5)}
"""Cores by pod, on nodes of 10 cores; n3 is above its ceiling, n1 the emptiest."""
WAITING = {"n1": 0.45, "n2": 0.02, "n3": 0.05}


def machine(name: str) -> Sequence[Line]:
    return [
        Line("node_cpu_seconds_total", {"cpu": "0", "mode": "user"}, rate=sum(PODS[name])),
        Line("node_memory_MemTotal_bytes", {}, value=4096 * MIB),
        Line("node_memory_MemAvailable_bytes", {}, value=3000 * MIB),
    ]


def waits_by_node_exporter(name: str) -> Sequence[Line]:
    return [Line("node_pressure_cpu_waiting_seconds_total", {}, rate=WAITING[name])]


def waits_by_kubelet(name: str) -> Sequence[Line]:
    """Return what a kubelet says of its node, and of a pod that waits for its own limit."""
    series, pod = "container_pressure_cpu_waiting_seconds_total", f"{name}-app-0"
    labels = {"namespace": "default", "pod": pod, "container": "app", "id": f"/kubepods/{pod}"}
    return [
        Line(series, {"id": "/"}, rate=WAITING[name]),
        Line(series, {"id": "/kubepods"}, rate=0.9),
        Line(series, labels, rate=0.9),
    ]


WHO_SAYS = {"node-exporter": waits_by_node_exporter, "kubelet": waits_by_kubelet}


def kubelet() -> Sequence[Line]:
    found = []
    for pod, _, cores in pods():
        labels = {"namespace": "default", "pod": pod, "container": "app", "id": f"/{pod}"}
        cpu = {**labels, "cpu": "total"}
        found += [
            Line("container_cpu_usage_seconds_total", cpu, rate=cores),
            Line("container_memory_working_set_bytes", labels, value=100 * MIB),
        ]
    return found


def pods() -> list[tuple[str, str, float]]:
    return [
        (f"{node}-app-{number}", node, cores)
        for node, all_cores in PODS.items()
        for number, cores in enumerate(all_cores)
    ]


def cluster(now_s: float) -> ClusterState:
    """Return nodes and pods that have been there for an hour."""
    since = datetime.fromtimestamp(now_s - 3600.0, UTC)
    state = ClusterState()

    def aged(made: Any) -> Any:
        assert isinstance(made, Object)
        made.metadata.creation_timestamp = since
        return made

    for node in PODS:
        state.nodes.upsert(aged(ready_node(build.node(node, cpu="10", memory="16Gi"))))
    for node, all_cores in PODS.items():
        owner = build.replica_set(f"{node}-app", len(all_cores), cpu="100m", memory="64Mi")
        count = len(all_cores)
        status = {"replicas": count, "readyReplicas": count, "availableReplicas": count}
        state.replica_sets.upsert(aged(observed(ReplicaSet, {**owner, "status": status})))
        template = owner["spec"]["template"]
        for number in range(count):
            made = build.pod(
                f"{node}-app-{number}",
                node=node,
                labels=template["metadata"]["labels"],
                spec=template["spec"],
            )
            state.pods.upsert(aged(running_pod(made, owner, since=since.isoformat())))
    return state


def config(url: str, **more: Any) -> RebalancerConfiguration:
    return RebalancerConfiguration.model_validate(
        {
            "enabledStrategies": ["ResourceOptimization"],
            "usageSource": "prometheus",
            "prometheus": {"url": url, "window": f"{WINDOW_S:g}s"},
            **more,
        }
    )


def targets(port: int, **labels: str) -> dict[str, Any]:
    return {"targets": [f"127.0.0.1:{port}"], "labels": labels}


async def sampled(state: ClusterState, settings: RebalancerConfiguration) -> Sample:
    assert settings.prometheus is not None
    nodes = [view.node for view in state.snapshot().nodes.values()]
    async with PrometheusSource(
        settings.prometheus, nodes=lambda: nodes, clock=SYSTEM, pressure=settings.pressure
    ) as source:
        return await source.sample()


async def planned(url: str, **more: Any) -> Plan:
    settings = config(url, **more)
    now_s = SYSTEM.now()
    state = cluster(now_s)
    sample = await sampled(state, settings)
    now_s, snapshot = SYSTEM.now(), state.snapshot()
    tracker = LoadTracker(settings)
    tracker.observe(sample, snapshot, now_s)
    belief = Belief(snapshot, tracker.view(snapshot, now_s))
    return Decider(settings).decide(belief, now_s, at_once=True).plan


@pytest.mark.parametrize("who", WHO_SAYS)
async def test_a_node_of_low_use_and_high_pressure_is_relieved_and_never_filled(
    tmp_path: Path, who: str
) -> None:
    exporter = Exporter({f"/{name}": partial(machine, name) for name in PODS})
    exporter.pages |= {f"/{name}/waits": partial(WHO_SAYS[who], name) for name in PODS}
    exporter.pages["/cadvisor"] = kubelet
    async with exporter.running():
        port = exporter.port
        jobs: dict[str, list[Any]] = {"node-exporter": [], "kubelet": []}
        jobs["kubelet"].append(targets(port, __metrics_path__="/cadvisor"))
        for name in PODS:
            machines = targets(port, __metrics_path__=f"/{name}", node=name)
            jobs["node-exporter"].append(machines)
            # Each has a port of its own, and so an `instance`.
            waits = targets(port, __metrics_path__=f"/{name}/waits", node=name, instance=who)
            jobs[who].append(waits)
        scraped = [{"job_name": job, "static_configs": found} for job, found in jobs.items()]
        async with prometheus(tmp_path, exporter, scraped) as url:
            # The window, and two scrapes more because Prometheus stores after it has read.
            await exporter.scraped(round(1000 * WINDOW_S / SCRAPE_MS) + 2)
            unaware = await planned(url)
            aware = await planned(url, pressure={"cpu": 20.0})
    # By use alone the emptiest node is the one to fill.
    assert {(move.source, move.target) for move in unaware.moves} == {("n3", "n1")}
    assert {move.source for move in aware.moves} == {"n1", "n3"}
    assert {move.target for move in aware.moves} == {"n2"}
    assert aware.unmet == ()
    relief = next(move for move in aware.moves if move.source == "n1")
    # Where Prometheus has missed a scrape, its rates are a little off.
    assert re.match(r"n1 has 4\d % CPU pressure \(allowed 20 %, pressure\.cpu\)", relief.message)
    node = next(node for node in aware.nodes if node.name == "n1")
    assert "UnderPressure" in {refusal.name for refusal in node.target_refusals}
