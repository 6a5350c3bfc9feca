"""A cluster in which one node in ten is too hot, for planners to be compared on.

Workloads of ten replicas use what they use, log-normally; their pods are put on nodes, the
largest first, so that each node comes near the level that was drawn for it. Told in two
forms that say the same: as state and samples for our planner, and as manifests for a
simulated cluster, where any other program can look at it.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from common.cluster.objects import Node, Pod, ReplicaSet
from common.cluster.records import NodeName
from common.cluster.state import ClusterState
from common.usage.source import Sample, Usage
from simulator import build

REPLICAS = 10
NODE_MILLI, NODE_MIB = 16_000, 64 * 1024
MOST_PODS = 110
MIB = 1024.0 * 1024.0
CPU_CEILING, MEM_CEILING = 80.0, 85.0
STAMP = "2026-11-16T08:00:00Z"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """Replicas that all use the same."""

    name: str
    cpu_milli: int
    mem_mib: int


@dataclass(frozen=True, slots=True)
class Crowd:
    """Workloads, and the nodes of their replicas."""

    nodes: tuple[str, ...]
    workloads: tuple[Workload, ...]
    places: tuple[tuple[int, ...], ...]
    """By workload and replica: the node's number."""
    full: bool
    """What is not too hot is used so much that no pod fits."""

    def pods(self) -> Iterator[tuple[Workload, int, int]]:
        """Return workload, number of the replica, and number of the node of every pod."""
        for workload, places in zip(self.workloads, self.places, strict=True):
            for replica, node in enumerate(places):
                yield workload, replica, node

    def used(self) -> list[list[float]]:
        """Return CPU (milli) and memory (MiB) that the nodes use."""
        found = [[0.0, 0.0] for _ in self.nodes]
        for workload, _, node in self.pods():
            found[node][0] += workload.cpu_milli
            found[node][1] += workload.mem_mib
        if self.full:
            least = 0.9999 * NODE_MILLI * CPU_CEILING / 100
            found = [[max(cpu, least), memory] for cpu, memory in found]
        return found

    def hot(self) -> int:
        """Return how many nodes are above a ceiling."""
        return sum(too_hot(cpu, memory) for cpu, memory in self.used())


def too_hot(cpu_milli: float, mem_mib: float) -> bool:
    return 100 * cpu_milli / NODE_MILLI > CPU_CEILING or 100 * mem_mib / NODE_MIB > MEM_CEILING


def crowd(nodes: int, per_node: int, *, full: bool = False, seed: int = 1) -> Crowd:
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
            name=f"web-{number:05}",
            cpu_milli=max(1, round(min(size * scale, NODE_MILLI / 8))),
            mem_mib=max(1, round(0.45 * NODE_MIB / per_node * dice.uniform(0.5, 1.5))),
        )
        for number, size in enumerate(sizes)
    )
    names = tuple(f"node-{number:05}" for number in range(nodes))
    return Crowd(names, workloads, _placed(workloads, targets), full)


def _placed(workloads: tuple[Workload, ...], targets: list[float]) -> tuple[tuple[int, ...], ...]:
    """Put each replica on the node that lacks most, never two of a workload on one."""
    lacking = [(-target / 100 * NODE_MILLI, 0, node) for node, target in enumerate(targets)]
    heapq.heapify(lacking)
    places: dict[int, tuple[int, ...]] = {}
    for number in sorted(range(len(workloads)), key=lambda n: (-workloads[n].cpu_milli, n)):
        taken = [heapq.heappop(lacking) for _ in range(REPLICAS)]
        places[number] = tuple(node for _, _, node in taken)
        for lack, count, node in taken:
            if count + 1 < MOST_PODS - 5:
                entry = (lack + workloads[number].cpu_milli, count + 1, node)
                heapq.heappush(lacking, entry)
    return tuple(places[number] for number in range(len(workloads)))


def state_of(found: Crowd) -> ClusterState:
    """Return the cluster as the watches would have filled it."""
    state = ClusterState()
    for name in found.nodes:
        state.nodes.upsert(msgspec.convert(_node(name), Node))
    for workload in found.workloads:
        state.replica_sets.upsert(msgspec.convert(_replica_set(workload), ReplicaSet))
    for workload, replica, node in found.pods():
        made = _pod(workload, replica, found.nodes[node])
        state.pods.upsert(msgspec.convert(made, Pod))
    return state


def sample_of(found: Crowd, now_s: float) -> Sample:
    """Return what the metrics would say."""
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


def node_manifest(name: str) -> build.Manifest:
    """Return a node that uses nothing beside its pods."""
    return build.node(
        name,
        cpu=f"{NODE_MILLI}m",
        memory=f"{NODE_MIB}Mi",
        pods=MOST_PODS,
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
    }


def _node(name: str) -> Json:
    made = node_manifest(name)
    made["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": STAMP}
    made["status"]["conditions"] = [_true("Ready")]
    return made


def _replica_set(workload: Workload) -> Json:
    made = workload_manifest(workload)
    made["metadata"] |= {"uid": f"uid-{workload.name}", "creationTimestamp": STAMP}
    counts = ("replicas", "readyReplicas", "availableReplicas")
    return {**made, "status": dict.fromkeys(counts, REPLICAS)}


def _pod(workload: Workload, replica: int, node: str) -> Json:
    name = pod_name(workload, replica)
    made = build.pod(name, node=node, **_template(workload))
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": workload.name,
        "uid": f"uid-{workload.name}",
        "controller": True,
    }
    made["metadata"] |= {
        "uid": f"uid-{name}",
        "creationTimestamp": STAMP,
        "ownerReferences": [owner],
    }
    status = {"phase": "Running", "conditions": [_true("PodScheduled"), _true("Ready")]}
    return {**made, "status": status}


def _true(kind: str) -> Json:
    return {"type": kind, "status": "True", "lastTransitionTime": STAMP}
