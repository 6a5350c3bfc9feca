# SPDX-License-Identifier: Apache-2.0
"""Random planning problems, in two equivalent forms.

`draw` makes random nodes, pods and usage. `Problem.instance()` is the problem in numbers, the
form that bounds and the exact solver take; `Problem.snapshot()` and `Problem.load()` are the
same cluster as watches and metrics would report it, the form that the real planner takes.
Pods of a kind may only run on nodes of that kind.

Every pod is the only replica of its own Deployment: only load, ceilings and the kinds of
nodes limit a plan, so the optimum of the numbers is the optimum of the cluster.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.observed import observed, owner_reference, ready_node, running_pod, uid_of
from common.api.contract import MAINTENANCE_LABEL
from common.api.migrations import Purpose
from common.api.objects import Deployment, ReplicaSet
from common.cache.snapshot import Snapshot
from common.cache.state import ClusterState
from common.cluster.records import NodeName, PodUid
from common.config import RebalancerConfiguration, SingleReplica, Strategy
from common.fit import FitIndex, World
from common.load import LoadTracker, LoadView
from common.usage.source import Sample, Usage
from rebalancer.evictability import Budgets, Context, judge
from rebalancer.goals import Ceiling
from rebalancer.planner import Demand
from rebalancer.planner.instance import Instance
from rebalancer.strategies import Assessor, ClusterView
from simulator import build

MIB = 1024.0 * 1024.0
NOW_S = 1_800_000_000.0
SCHEDULED = "2027-01-15T06:00:00+00:00"
KIND = "example.com/kind"
CEILING = Ceiling(80.0, 85.0)


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node; memory in MiB."""

    name: str
    cpu_milli: int
    memory: int
    kind: str = ""
    empty: bool = False


@dataclass(frozen=True, slots=True)
class DrawnPod:
    """A pod and what it uses; memory in MiB."""

    name: str
    node: str
    cpu_milli: int
    memory: int
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """The size and form of a random problem."""

    nodes: int = 20
    pods: int = 200
    hot: int = 3
    """Nodes above the ceiling."""
    empty: int = 0
    """Nodes to drain."""
    cold_percent: float = 50.0
    """Approximate utilization of the other nodes."""
    kinds: tuple[str, ...] = ("",)
    ceiling: Ceiling = CEILING


@dataclass(frozen=True, slots=True)
class Problem:
    """Nodes and pods of a problem, from which both forms are made."""

    nodes: tuple[DrawnNode, ...]
    pods: tuple[DrawnPod, ...]
    ceiling: Ceiling

    def instance(self) -> Instance:
        """Return the problem in numbers."""
        nodes = sorted(self.nodes, key=lambda node: node.name)
        pods = sorted(self.pods, key=_uid)
        row = {node.name: number for number, node in enumerate(nodes)}
        at = np.array([row[pod.node] for pod in pods], dtype=np.int64)
        pod_load = np.array([(p.cpu_milli, p.memory * MIB) for p in pods], dtype=np.float64)
        load = np.zeros((len(nodes), 2))
        np.add.at(load, at, pod_load)
        empty = np.array([node.empty for node in nodes])
        return Instance(
            nodes=tuple(NodeName(node.name) for node in nodes),
            capacity=np.array([(n.cpu_milli, n.memory * MIB) for n in nodes], dtype=np.float64),
            load=load,
            ceiling=np.tile([self.ceiling.cpu_percent, self.ceiling.mem_percent], (len(nodes), 1)),
            gives=np.full(len(nodes), True),
            takes=~empty,
            pods=tuple(PodUid(_uid(pod)) for pod in pods),
            at=at,
            pod_load=pod_load,
            allowed=np.array([[_may(pod, node) for node in nodes] for pod in pods]),
            empty=empty,
        )

    def state(self) -> ClusterState:
        """Return the cluster as the watches would have filled it."""
        state = ClusterState()
        for node in self.nodes:
            state.nodes.upsert(ready_node(_node_manifest(node)))
        for pod in self.pods:
            deployment, replica_set = _owners(pod)
            state.deployments.upsert(observed(Deployment, deployment, generation=1))
            above = [owner_reference(deployment)]
            state.replica_sets.upsert(
                observed(ReplicaSet, replica_set, generation=1, ownerReferences=above)
            )
            state.pods.upsert(running_pod(_pod_manifest(pod), replica_set, since=SCHEDULED))
        return state

    def snapshot(self) -> Snapshot:
        return self.state().snapshot()

    def load(self, snapshot: Snapshot) -> LoadView:
        """Return the load of nodes and pods once everything has been measured."""
        tracker = LoadTracker()
        tracker.observe(self.sample(), snapshot, NOW_S)
        return tracker.view(snapshot, NOW_S)

    def sample(self) -> Sample:
        """Return what the metrics would report."""
        used = self.instance().load
        rows = zip(sorted(node.name for node in self.nodes), used, strict=True)
        return Sample(
            nodes={NodeName(name): _usage(cpu, memory) for name, (cpu, memory) in rows},
            pods={f"default/{p.name}": _usage(p.cpu_milli, p.memory * MIB) for p in self.pods},
        )

    def demand(self, strategies: Sequence[Strategy], *, threshold: float = 20.0) -> Demand:
        """Return the demand of the real strategies and gates."""
        config = RebalancerConfiguration(
            cpu_threshold=self.ceiling.cpu_percent,
            memory_threshold=self.ceiling.mem_percent,
            imbalance_threshold=threshold,
            enabled_strategies=tuple(strategies),
            single_replica=SingleReplica.ALLOW,
        )
        snapshot = self.snapshot()
        world = World(snapshot, FitIndex())
        return demand_of(ClusterView(snapshot, self.load(snapshot), config, NOW_S, world))


def demand_of(cluster: ClusterView) -> Demand:
    """Return the demand of the strategies, with pods judged by the gates."""
    context = Context.of(cluster.snapshot, cluster.config, now_s=cluster.now_s)
    contexts = {purpose: context.for_purpose(purpose) for purpose in Purpose}
    assessor = Assessor(cluster.config)
    assessment = assessor.assess(
        cluster, lambda pod: not judge(pod, contexts[Purpose.LOAD]), at_once=True
    )
    return Demand(
        cluster=cluster,
        assessment=assessment,
        judge=lambda pod, purpose: judge(pod, contexts[purpose]),
        budgets=Budgets(cluster.snapshot.budgets.values()),
    )


def draw(seed: int, shape: Shape) -> Problem:
    """Return a random problem; the same one for the same seed."""
    rng = random.Random(f"{seed} {shape}")
    nodes = tuple(_draw_node(rng, number, shape) for number in range(shape.nodes))
    wanted = [_wanted(rng, number, shape) for number in range(shape.nodes)]
    weights = [_weights(rng, share) for share in _shares(shape)]
    pods: list[DrawnPod] = []
    for node, levels, parts in zip(nodes, wanted, weights, strict=True):
        for cpu, memory in parts:
            pods.append(_draw_pod(rng, len(pods), node, cpu * levels[0], memory * levels[1]))
    return Problem(nodes, tuple(pods), shape.ceiling)


def _draw_node(rng: random.Random, number: int, shape: Shape) -> DrawnNode:
    return DrawnNode(
        name=f"node-{number:04}",
        cpu_milli=rng.choice((8000, 8000, 16000)),
        memory=rng.choice((32, 32, 64)) * 1024,
        kind=shape.kinds[number % len(shape.kinds)],
        empty=shape.hot <= number < shape.hot + shape.empty,
    )


def _wanted(rng: random.Random, number: int, shape: Shape) -> tuple[float, float]:
    """Return the CPU and memory utilization of a node."""
    cold = (rng.gauss(shape.cold_percent, 6.0) / 100, rng.gauss(shape.cold_percent, 6.0) / 100)
    if number >= shape.hot:
        return cold
    hot = rng.uniform(0.85, 0.98)
    return rng.choice(((hot, cold[1]), (hot, cold[1]), (cold[0], hot), (hot, hot)))


def _shares(shape: Shape) -> list[int]:
    each, rest = divmod(shape.pods, shape.nodes)
    return [each + (number < rest) for number in range(shape.nodes)]


def _weights(rng: random.Random, count: int) -> list[tuple[float, float]]:
    """Return how a node's load is divided among its pods: a few are much larger than others."""
    cpu = [rng.lognormvariate(0.0, 0.8) for _ in range(count)]
    memory = [rng.lognormvariate(0.0, 0.8) for _ in range(count)]
    return [(c / sum(cpu), m / sum(memory)) for c, m in zip(cpu, memory, strict=True)]


def _draw_pod(
    rng: random.Random, number: int, node: DrawnNode, cpu: float, memory: float
) -> DrawnPod:
    return DrawnPod(
        name=f"pod-{number:05}",
        node=node.name,
        cpu_milli=max(1, round(node.cpu_milli * cpu)),
        memory=max(1, round(node.memory * memory)),
        kind=node.kind if rng.random() < 0.3 else "",
    )


def _may(pod: DrawnPod, node: DrawnNode) -> bool:
    return pod.node != node.name and not node.empty and pod.kind in ("", node.kind)


def _uid(pod: DrawnPod) -> str:
    return uid_of("Pod", pod.name)


def _usage(cpu: float, memory: float) -> Usage:
    return Usage(float(cpu), float(memory), NOW_S - 5.0, 60.0)


def _node_manifest(node: DrawnNode) -> build.Manifest:
    return build.node(
        node.name,
        cpu=f"{node.cpu_milli}m",
        memory=f"{node.memory}Mi",
        labels={KIND: node.kind, **({MAINTENANCE_LABEL: "true"} if node.empty else {})},
    )


def _template(pod: DrawnPod) -> dict[str, Any]:
    selector = {"nodeSelector": {KIND: pod.kind}} if pod.kind else {}
    return {
        "labels": {"app": pod.name},
        # Requests small enough to fit anywhere: only load decides.
        "cpu": "10m",
        "memory": "16Mi",
        "usage_cpu": f"{pod.cpu_milli}m",
        "usage_memory": f"{pod.memory}Mi",
        "spec": selector,
    }


def _pod_manifest(pod: DrawnPod) -> build.Manifest:
    return build.pod(pod.name, node=pod.node, **_template(pod))


def _owners(pod: DrawnPod) -> tuple[build.Manifest, build.Manifest]:
    """Return the Deployment and the ReplicaSet of a pod, as their controllers would leave them."""
    status = {
        "replicas": 1,
        "readyReplicas": 1,
        "availableReplicas": 1,
        "updatedReplicas": 1,
        "observedGeneration": 1,
    }
    deployment = build.deployment(pod.name, 1, **_template(pod))
    replica_set = build.replica_set(pod.name, 1, **_template(pod))
    return {**deployment, "status": status}, {**replica_set, "status": status}
