# SPDX-License-Identifier: Apache-2.0
"""One cycle of the descheduler on a simulated cluster: what it costs and what it leaves.

It runs twice. A dry run measures how long it takes to decide, without the evictions on the
simulated API server; the second run evicts, the simulated controllers and scheduler replace the
pods, and the load of the nodes is counted once every pod has a node again.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import descheduler
from bench.crowd import (
    CPU_CEILING,
    MEM_CEILING,
    REPLICAS,
    Crowd,
    Workload,
    node_manifest,
    too_hot,
    workload_manifest,
)
from bench.front import Amounts, Front
from common.clock import SYSTEM
from simulator.cluster import Settings, SimulatedCluster, simulate, write_kubeconfig

SPEED = 10.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one cycle."""

    cycle_s: float
    evictions: int
    hot_left: int


def peer(found: Crowd) -> Outcome:
    """Run one cycle of the descheduler on a cluster."""
    return asyncio.run(_on(found, descheduler.build()))


async def _on(found: Crowd, binary: Path) -> Outcome:
    settings = Settings(seed=1, speed=SPEED, metrics=False)
    with tempfile.TemporaryDirectory() as folder:
        async with simulate(settings, clock=SYSTEM, build=lambda c: _stage(found, c)) as cluster:
            front = Front(cluster.server.url, *_measured(found, cluster))
            await _until(lambda: _running(cluster) == _pods(found))
            async with front.serving() as url:
                config = write_kubeconfig(Path(folder, "kubeconfig"), url)
                dry = await _run(binary, config, dry_run=True)
                real = await _run(binary, config, dry_run=False)
            await _until(lambda: _running(cluster) == _pods(found))
            return Outcome(dry.seconds, real.evictions, _hot(found, cluster))


async def _run(binary: Path, kubeconfig: Path, *, dry_run: bool) -> descheduler.Cycle:
    ceilings = {"cpu_percent": CPU_CEILING, "mem_percent": MEM_CEILING}
    work = partial(descheduler.run, binary, kubeconfig, dry_run=dry_run, **ceilings)
    return await asyncio.to_thread(work)


def _stage(found: Crowd, cluster: SimulatedCluster) -> None:
    cluster.create(map(node_manifest, found.nodes))
    cluster.create(map(workload_manifest, found.workloads))
    cluster.settle()
    turns = {
        workload.name: list(places)
        for workload, places in zip(found.workloads, found.places, strict=True)
    }
    for pod in cluster.pods("default"):
        meta = pod["metadata"]
        node = found.nodes[turns[meta["labels"]["app"]].pop()]
        cluster.store.bind(meta["name"], meta["namespace"], node, uid=meta["uid"])


def _measured(
    found: Crowd, cluster: SimulatedCluster
) -> tuple[dict[str, Amounts], dict[str, Amounts]]:
    """Return what nodes and pods use, by name."""
    sizes = _sizes(found)
    pods = {
        pod["metadata"]["name"]: _amounts(sizes[pod["metadata"]["labels"]["app"]])
        for pod in cluster.pods("default")
    }
    used = zip(found.nodes, found.used(), strict=True)
    return {name: (cpu, memory) for name, (cpu, memory) in used}, pods


def _sizes(found: Crowd) -> dict[str, Workload]:
    return {workload.name: workload for workload in found.workloads}


def _amounts(workload: Workload) -> Amounts:
    return float(workload.cpu_milli), float(workload.mem_mib)


def _pods(found: Crowd) -> int:
    return len(found.workloads) * REPLICAS


def _running(cluster: SimulatedCluster) -> int:
    """Return how many pods run and are not terminating."""
    return sum(
        pod.get("status", {}).get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
        for pod in cluster.pods("default")
    )


def _hot(found: Crowd, cluster: SimulatedCluster) -> int:
    sizes = _sizes(found)
    used = {name: [0.0, 0.0] for name in found.nodes}
    for pod in cluster.pods("default"):
        if "deletionTimestamp" not in pod["metadata"]:
            cpu, memory = _amounts(sizes[pod["metadata"]["labels"]["app"]])
            used[pod["spec"]["nodeName"]][0] += cpu
            used[pod["spec"]["nodeName"]][1] += memory
    return sum(too_hot(cpu, memory) for cpu, memory in used.values())


async def _until(done: Callable[[], bool]) -> None:
    while not done():
        await asyncio.sleep(0.5)
