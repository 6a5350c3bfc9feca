# SPDX-License-Identifier: Apache-2.0
"""Pressure that kubelets report, from a real Prometheus, on a real cluster.

Three nodes of eight cores. Tasks of `busy` wait for CPU until a pod has left, although it uses two
cores; those of `idle` wait all the time, although it has no pods; `free` uses the most and is the
only one that may take any.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.stands.cluster import Cluster
from bench.stands.episode import migrations_of, nothing_open, was_evicted
from bench.stands.extender_process import extender_running, use_extender
from bench.stands.real_scenario import Pods, app_of, node_of, use_of, watched
from bench.stands.rebalancer_process import LOAD, QUICK, rebalancer_running
from simulator import build
from tests.support.stands.control_plane import Say
from tests.support.stands.prometheus import Counters, Exporter, Line, prometheus

pytestmark = pytest.mark.real

Json = dict[str, Any]  # Any: API objects and settings

PATIENCE_S = 120.0
MIB = 1024.0 * 1024.0
REPLICAS = 4


class Machines:
    """What kubelets and node-exporter say of the nodes."""

    def __init__(self, pods: Pods, nodes: dict[str, str]) -> None:
        self._pods = pods
        self._nodes = nodes
        self._counters = {name: Counters() for name in ("kubelets", *nodes)}

    def kubelets(self) -> Sequence[Line]:
        found, counter = [], self._counters["kubelets"].line
        for pod in self._pods.now.values():
            name = pod["metadata"]["name"]
            labels = {"namespace": self._pods.namespace, "pod": name, "container": "app"}
            found += [
                counter("container_cpu_usage_seconds_total", labels, use_of(pod) / 1000.0),
                Line("container_memory_working_set_bytes", labels, value=100 * MIB),
            ]
        return found

    def machine(self, name: str) -> Sequence[Line]:
        used = sum(map(use_of, self._pods.on(self._nodes[name]))) / 1000.0
        return [
            self._counters[name].line("node_cpu_seconds_total", {"mode": "user"}, used),
            Line("node_memory_MemTotal_bytes", {}, value=16 * 1024 * MIB),
            Line("node_memory_MemAvailable_bytes", {}, value=15 * 1024 * MIB),
        ]

    def pressure(self, name: str) -> Sequence[Line]:
        crowded = len(self._pods.on(self._nodes[name])) >= REPLICAS
        waits = {"busy": 0.45 if crowded else 0.05, "idle": 0.6}.get(name, 0.02)
        series = "container_pressure_cpu_waiting_seconds_total"
        return [self._counters[name].line(series, {"id": "/"}, waits)]


async def test_a_node_whose_tasks_wait_is_relieved_and_one_that_is_idle_gets_no_pod(
    cluster: Cluster, tmp_path: Path, say: Say
) -> None:
    run = {"run": cluster.namespace}
    async with watched(cluster) as pods:
        # Each app is created while only the node that it is to begin on is there.
        nodes = {"busy": await one_node(cluster, run)}
        await deployed(cluster, pods, "web", REPLICAS, "500m", run)
        nodes["idle"] = await one_node(cluster, run)
        nodes["free"] = await one_node(cluster, {**run, "base": cluster.namespace})
        await deployed(cluster, pods, "base", REPLICAS, "1000m", {"base": cluster.namespace})
        async with measured(tmp_path, Machines(pods, nodes), nodes) as url:
            load = {
                **LOAD,
                "usageSource": "prometheus",
                "prometheus": {"url": url, "window": "4s"},
                "pressure": {"cpu": 20.0},
            }
            settings = {**QUICK, **load, "enabledStrategies": ["ResourceOptimization"]}
            async with (
                extender_running(cluster, tmp_path, settings=load) as extender,
                rebalancer_running(cluster, tmp_path, settings=settings) as rebalancer,
            ):
                await use_extender(cluster, extender.url)

                async def relieved() -> bool:
                    few = len(pods.on(nodes["busy"])) < REPLICAS
                    return few and pods.settled and await nothing_open(cluster)

                await cluster.wait(relieved, PATIENCE_S, "busy is relieved")
                began = await rebalancer.cycles()

                async def later() -> bool:
                    return await rebalancer.cycles() >= began + 3

                await cluster.wait(later, PATIENCE_S, "three more cycles")
                await deployed(cluster, pods, "stranger", 2, "100m", run)
                moved = [each for each in await migrations_of(cluster) if was_evicted(each)]
    places = {(app_of(pod), node_of(pod)) for pod in pods.now.values()}
    [move] = moved
    say(f"{move['spec']['message']}; strangers on {places}")
    assert (move["spec"]["source"], move["spec"]["target"]) == (nodes["busy"], nodes["free"])
    # Where Prometheus has missed a scrape, its rates are a little off.
    said = move["spec"]["message"]
    assert re.search(r"4\d % CPU pressure \(allowed 20 %, pressure\.cpu\)", said), said
    assert move["status"]["outcome"] == "AsPlanned"
    assert ("web", nodes["free"]) in places
    assert pods.on(nodes["idle"]) == []


@asynccontextmanager
async def measured(
    folder: Path, machines: Machines, nodes: Mapping[str, str]
) -> AsyncIterator[str]:
    """Run a Prometheus that scrapes the machines; yield its URL."""
    exporter = Exporter({"/cadvisor": machines.kubelets})
    for name in nodes:
        exporter.pages[f"/{name}"] = partial(machines.machine, name)
        exporter.pages[f"/{name}/cadvisor"] = partial(machines.pressure, name)
    async with (
        exporter.running(),
        prometheus(folder, exporter, jobs_of(exporter.port, nodes)) as url,
    ):
        yield url


def jobs_of(port: int, nodes: Mapping[str, str]) -> list[Json]:
    def targets(*pages: tuple[str, str]) -> list[Json]:
        return [
            {
                "targets": [f"127.0.0.1:{port}"],
                "labels": {"__metrics_path__": page, **({"node": node} if node else {})},
            }
            for page, node in pages
        ]

    machines = [(f"/{name}", node) for name, node in nodes.items()]
    kubelets = [(f"/{name}/cadvisor", node) for name, node in nodes.items()]
    return [
        {"job_name": "node-exporter", "static_configs": targets(*machines)},
        {"job_name": "kubelet", "static_configs": targets(("/cadvisor", ""), *kubelets)},
    ]


async def one_node(cluster: Cluster, labels: dict[str, str]) -> str:
    [name] = await cluster.add_nodes(1, cpu="8", memory="16Gi", labels=labels)
    return name


async def deployed(
    cluster: Cluster, pods: Pods, name: str, count: int, usage: str, where: dict[str, str]
) -> None:
    """Create a Deployment and wait until its pods are Ready."""
    before = len(pods.now)
    made = build.deployment(
        name,
        count,
        namespace=cluster.namespace,
        cpu="100m",
        usage_cpu=usage,
        spec={"nodeSelector": where},
    )
    await cluster.create([made])
    await cluster.wait(
        lambda: len(pods.now) == before + count and pods.settled, PATIENCE_S, f"{name} is Ready"
    )
