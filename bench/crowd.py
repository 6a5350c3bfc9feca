# SPDX-License-Identifier: Apache-2.0
"""A cluster in which one node in ten is too hot, for planners to be compared on.

The usage of workloads of ten replicas is log-normal; their pods are placed on nodes, the largest
first, so that each node is near its random target. It comes in two equivalent forms: as state
and samples for our planner, and as manifests for a simulated cluster that other programs use.

In a tied one, which has five zones with as many replicas in each, three of four workloads have
hard constraints on other pods: one replica per host, the same number in each zone, or a zone with
pods of another workload.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bench.observed import observed, ready_node, running_pod
from common.api.objects import ReplicaSet
from common.cache.state import ClusterState
from common.cluster.records import NodeName
from common.usage.source import Sample, Usage
from simulator import build

REPLICAS = 10
ZONES = 5
NODE_MILLI, NODE_MIB = 16_000, 64 * 1024
MOST_PODS = 110
MIB = 1024.0 * 1024.0
CPU_CEILING, MEM_CEILING = 80.0, 85.0

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """Replicas with the same usage."""

    name: str
    cpu_milli: int
    mem_mib: int
    spec: Json = field(default_factory=dict)
    """Constraints of its pods."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Workloads, and the nodes of their replicas."""

    nodes: tuple[str, ...]
    workloads: tuple[Workload, ...]
    places: tuple[tuple[int, ...], ...]
    """By workload and replica: the node's number."""
    full: bool = False
    """All other nodes are so full that no pod fits."""
    tied: bool = False
    """Most pods have constraints on other pods."""
    calm: bool = False
    """All nodes are near their mean, so there is nothing to do."""

    def pods(self) -> Iterator[tuple[Workload, int, int]]:
        """Return workload, number of the replica, and number of the node of every pod."""
        for workload, places in zip(self.workloads, self.places, strict=True):
            for replica, node in enumerate(places):
                yield workload, replica, node

    def used(self) -> list[list[float]]:
        """Return the usage of the nodes: CPU (milli) and memory (MiB)."""
        found = [[0.0, 0.0] for _ in self.nodes]
        for workload, _, node in self.pods():
            found[node][0] += workload.cpu_milli
            found[node][1] += workload.mem_mib
        if self.full:
            least = 0.9999 * NODE_MILLI * CPU_CEILING / 100
            found = [[max(cpu, least), memory] for cpu, memory in found]
        if self.calm:
            found = [[_calm(cpu, NODE_MILLI), _calm(memory, NODE_MIB)] for cpu, memory in found]
        return found

    def hot(self) -> int:
        """Return how many nodes are above a ceiling."""
        return sum(too_hot(cpu, memory) for cpu, memory in self.used())


def _calm(used: float, of: float) -> float:
    return min(max(used, 0.45 * of), 0.55 * of)


def _name(number: int) -> str:
    return f"web-{number:05}"


def too_hot(cpu_milli: float, mem_mib: float) -> bool:
    return 100 * cpu_milli / NODE_MILLI > CPU_CEILING or 100 * mem_mib / NODE_MIB > MEM_CEILING


def crowd(
    nodes: int, per_node: int, *, full: bool = False, tied: bool = False, seed: int = 1
) -> Crowd:
    """Return a random cluster; the same one for the same numbers."""
    dice = random.Random(seed)
    targets = [
        dice.uniform(86.0, 97.0) if number < nodes / 10 else dice.gauss(50.0, 6.0)
        for number in range(nodes)
    ]
    sizes = [dice.lognormvariate(0.0, 0.7) for _ in range(nodes * per_node // REPLICAS)]
    scale = sum(targets) / 100 * NODE_MILLI / (REPLICAS * sum(sizes))
    workloads = tuple(
        Workload(
            name=_name(number),
            cpu_milli=max(1, round(min(size * scale, NODE_MILLI / 8))),
            mem_mib=max(1, round(0.45 * NODE_MIB / per_node * dice.uniform(0.5, 1.5))),
            spec=_ties(number) if tied else {},
        )
        for number, size in enumerate(sizes)
    )
    names = tuple(f"node-{number:05}" for number in range(nodes))
    places = _placed(workloads, targets, ZONES if tied else 1)
    return Crowd(names, workloads, places, full, tied)


def _ties(number: int) -> Json:
    """Return the constraints of a workload: none, or one of three kinds."""
    own = {"matchLabels": {"app": _name(number)}}
    other = {"matchLabels": {"app": _name(number - 1)}}
    host, zone = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
    apart = {"labelSelector": own, "topologyKey": host}
    near = {"labelSelector": other, "topologyKey": zone}
    evenly = {
        "maxSkew": 1,
        "topologyKey": zone,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": own,
    }
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    kinds: tuple[Json, ...] = (
        {},
        {"affinity": {"podAntiAffinity": {required: [apart]}}},
        {"topologySpreadConstraints": [evenly]},
        {"affinity": {"podAffinity": {required: [near]}}},
    )
    return kinds[number % len(kinds)]


def _placed(
    workloads: tuple[Workload, ...], targets: list[float], zones: int
) -> tuple[tuple[int, ...], ...]:
    """Place each replica on the node of its zone that is furthest below its target."""
    lacking: list[list[tuple[float, int, int]]] = [[] for _ in range(zones)]
    for node, target in enumerate(targets):
        heapq.heappush(lacking[node % zones], (-target / 100 * NODE_MILLI, 0, node))
    places: dict[int, tuple[int, ...]] = {}
    for number in sorted(range(len(workloads)), key=lambda n: (-workloads[n].cpu_milli, n)):
        # All are taken before one is put back: no two replicas on one node.
        taken = [heapq.heappop(lacking[replica % zones]) for replica in range(REPLICAS)]
        places[number] = tuple(node for _, _, node in taken)
        for lack, count, node in taken:
            if count + 1 < MOST_PODS - 5:
                entry = (lack + workloads[number].cpu_milli, count + 1, node)
                heapq.heappush(lacking[node % zones], entry)
    return tuple(places[number] for number in range(len(workloads)))


def state_of(found: Crowd) -> ClusterState:
    """Return the cluster as the watches would have filled it."""
    state = ClusterState()
    for number, name in enumerate(found.nodes):
        zone = f"zone-{number % ZONES}" if found.tied else None
        state.nodes.upsert(ready_node(node_manifest(name, zone)))
    for workload in found.workloads:
        state.replica_sets.upsert(observed(ReplicaSet, _replica_set(workload)))
    for workload, replica, node in found.pods():
        made = _pod(workload, replica, found.nodes[node])
        state.pods.upsert(running_pod(made, _replica_set(workload)))
    return state


def sample_of(found: Crowd, now_s: float) -> Sample:
    """Return what the metrics would report."""
    used = zip(found.nodes, found.used(), strict=True)
    return Sample(
        nodes={NodeName(n): Usage(cpu, mem * MIB, now_s, 60.0) for n, (cpu, mem) in used},
        pods={
            f"default/{pod_name(workload, replica)}": Usage(
                float(workload.cpu_milli), workload.mem_mib * MIB, now_s, 60.0
            )
            for workload, replica, _ in found.pods()
        },
    )


def pod_name(workload: Workload, replica: int) -> str:
    return f"{workload.name}-{replica:02}"


def node_manifest(name: str, zone: str | None = None) -> build.Manifest:
    """Return a node without usage of its own."""
    return build.node(
        name,
        cpu=f"{NODE_MILLI}m",
        memory=f"{NODE_MIB}Mi",
        pods=MOST_PODS,
        zone=zone,
        annotations={build.OVERHEAD_CPU: "0", build.OVERHEAD_MEMORY: "0"},
    )


def workload_manifest(workload: Workload) -> build.Manifest:
    return build.replica_set(workload.name, REPLICAS, **_template(workload))


def _template(workload: Workload) -> Json:
    return {
        "labels": {"app": workload.name},
        "cpu": "100m",
        "memory": "128Mi",
        "usage_cpu": f"{workload.cpu_milli}m",
        "usage_memory": f"{workload.mem_mib}Mi",
        "spec": workload.spec,
    }


def _replica_set(workload: Workload) -> Json:
    counts = ("replicas", "readyReplicas", "availableReplicas")
    return {**workload_manifest(workload), "status": dict.fromkeys(counts, REPLICAS)}


def _pod(workload: Workload, replica: int, node: str) -> Json:
    return build.pod(pod_name(workload, replica), node=node, **_template(workload))
