# SPDX-License-Identifier: Apache-2.0
"""How large a cluster the simulator can run: pods created and scheduled, events, memory.

python -m bench.simulator [--nodes 1000] [--pods 20000]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import time
from collections.abc import Callable, Iterator

from common.clock import SYSTEM
from common.kube.resources import NODES, PODS
from simulator import build
from simulator.api import Change, Store, is_ready
from simulator.build import Manifest
from simulator.cluster import Settings, SimulatedCluster, simulate

_REPLICAS = 50


class Counter:
    """Counts changes of pods, and pods in each state."""

    def __init__(self, store: Store) -> None:
        self.changes = self.bound = self.ready = 0
        store.subscribe(PODS, self._on_pod)
        store.subscribe(NODES, self._on_any)

    def _on_any(self, _: Change) -> None:
        self.changes += 1

    def _on_pod(self, change: Change) -> None:
        self.changes += 1
        old = change.old_obj or {"spec": {}}
        self.bound += bool(change.obj["spec"].get("nodeName")) - bool(old["spec"].get("nodeName"))
        self.ready += is_ready(change.obj) - is_ready(old)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--speed", type=float, default=10.0)
    flags = parser.parse_args()
    asyncio.run(measure(flags.nodes, flags.pods, flags.speed))


async def measure(nodes: int, pods: int, speed: float) -> None:
    """Create nodes and Deployments in a running cluster and follow their pods."""
    base_mb = memory_mb()
    async with simulate(Settings(seed=1, speed=speed), clock=SYSTEM) as cluster:
        started = time.perf_counter()
        cluster.create(build.node(f"node-{i}", zone="abc"[i % 3]) for i in range(nodes))
        await until(lambda: len(cluster.fleet.kubelets) == nodes)
        await until(lambda: not any(v.node.taints for v in cluster.cache.snapshot().nodes.values()))
        print(f"{nodes} nodes ready after {time.perf_counter() - started:.1f} s")
        await follow(cluster, list(deployments(pods)), pods)
        gc.collect()
        print(f"memory: {memory_mb() - base_mb:.0f} MB above {base_mb:.0f} MB at the start")


async def follow(cluster: SimulatedCluster, manifests: list[Manifest], pods: int) -> None:
    """Print when all pods were created, scheduled and ready, and at what rates."""
    counter = Counter(cluster.store)
    began = time.perf_counter()
    version = cluster.store.resource_version
    cluster.create(manifests)
    steps: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("created", lambda: len(cluster.cache.state.pods.records) >= pods),
        ("scheduled", lambda: counter.bound >= pods),
        ("ready", lambda: counter.ready >= pods),
    )
    for words, done in steps:
        await until(done)
        took = time.perf_counter() - began
        print(f"{pods} pods {words:9} after {took:6.1f} s: {pods / took:7.0f} pods/s")
    written = cluster.store.resource_version - version
    print(f"events: {counter.changes} of pods and nodes, {counter.changes / took:.0f} a second")
    print(f"writes: {written} of all kinds, {written / took:.0f} a second")


def deployments(pods: int) -> Iterator[Manifest]:
    """Return Deployments with this many pods in total."""
    for number in range(0, pods, _REPLICAS):
        replicas = min(_REPLICAS, pods - number)
        yield build.deployment(f"app-{number}", replicas, cpu="100m", usage_cpu="80m")


async def until(done: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    while not done():
        await asyncio.sleep(0.05)


def memory_mb() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
