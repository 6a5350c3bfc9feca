# SPDX-License-Identifier: Apache-2.0
"""A scenario of the simulator as a cluster to play on; the only importer of the simulator here.

What its pods use is taken from the scenario, not from measurements: those of pods that have just
started depend on the machine, and the same scenario and seed must lead to the same moves.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from common.cache.snapshot import Snapshot
from common.clock import Clock
from common.cluster.records import NodeName
from common.config import ConfigError, RebalancerConfiguration
from common.load import Belief, LoadTracker
from common.usage.source import Sample, Usage
from evenkeel.errors import UsageError
from simulator.cluster import SimulatedCluster
from simulator.nodes.kubelet import Kubelet
from simulator.process import CommandError
from simulator.scenarios import names
from simulator.serve import ServeOptions, scenario_of, serving

SPEED: Final = 60.0
"""Simulated time passes this much faster until all pods run."""
LATER_S: Final = 600.0
"""When the play begins: pods and nodes are old enough by then to be moved."""
WINDOW_S: Final = 60.0


class Staged:
    """A scenario whose cluster runs."""

    def __init__(self, cluster: SimulatedCluster, kubeconfig: str) -> None:
        self._cluster = cluster
        self.kubeconfig: Final = kubeconfig

    def runs(self) -> bool:
        """Tell whether every pod has a node, and has started there."""
        kubelets = self._cluster.fleet.kubelets.values()
        pods = [pod for kubelet in kubelets for pod in kubelet.pods.values()]
        started = all(pod.started_s is not None for pod in pods)
        return started and len(pods) == len(self._cluster.pods())

    def believed(self, snapshot: Snapshot, config: RebalancerConfiguration, now_s: float) -> Belief:
        """Return the cluster with what its pods use at a time."""
        tracker = LoadTracker(config)
        tracker.observe(self._sample(now_s), snapshot, now_s)
        return Belief(snapshot, tracker.view(snapshot, now_s))

    def _sample(self, now_s: float) -> Sample:
        at_s = self._cluster.context.time_scale.elapsed_s()
        kubelets = self._cluster.fleet.kubelets.items()
        pods = {
            pod.record.key: _usage(
                pod.load.cpu(at_s - WINDOW_S, at_s, pod.started_s or at_s),
                pod.load.memory(at_s, pod.started_s or at_s),
                now_s,
            )
            for _, kubelet in kubelets
            for pod in kubelet.pods.values()
        }
        nodes = {NodeName(name): _of_node(kubelet, pods, at_s, now_s) for name, kubelet in kubelets}
        return Sample(nodes=nodes, pods=pods)


def _of_node(kubelet: Kubelet, pods: dict[str, Usage], at_s: float, now_s: float) -> Usage:
    mine: Iterable[Usage] = [pods[pod.record.key] for pod in kubelet.pods.values()]
    cpu = kubelet.overhead.cpu(at_s - WINDOW_S, at_s, 0.0) + sum(each.cpu_milli for each in mine)
    memory = kubelet.overhead.memory(at_s, 0.0) + sum(each.mem_bytes for each in mine)
    return _usage(cpu, memory, now_s)


def _usage(cpu_milli: float, mem_bytes: float, now_s: float) -> Usage:
    return Usage(cpu_milli, mem_bytes, now_s, WINDOW_S)


@asynccontextmanager
async def staged(name: str, *, seed: int, clock: Clock) -> AsyncIterator[Staged]:
    """Run a simulated cluster with a scenario."""
    try:
        options = ServeOptions(scenario=scenario_of(name, None), seed=seed, speed=SPEED)
    except (CommandError, ConfigError) as error:
        raise UsageError(f"{error}; known scenarios: {', '.join(names())}") from None
    with tempfile.TemporaryDirectory(prefix="evenkeel-simulate-") as folder:
        async with serving(options, clock=clock) as cluster:
            file = cluster.write_kubeconfig(Path(folder) / "kubeconfig")
            yield Staged(cluster, str(file))
