"""Random planning problems, in two forms that say the same.

`draw` throws the dice for nodes, pods and what they use. `Problem.instance()` is the problem
in numbers, as bounds and the exact solver take it; `Problem.snapshot()` and `Problem.load()`
are the same cluster as the watches and the metrics would tell it, so that the real planner
can be run on it. Pods of a kind may only run on nodes of that kind.

Every pod is the only replica of a Deployment of its own: nothing but load, ceilings and the
kinds of nodes limits a plan, and the optimum of the numbers is the optimum of the cluster.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.cluster.objects import Deployment, ReplicaSet
from common.cluster.records import NodeName, PodUid
from common.cluster.snapshot import Snapshot
from common.cluster.state import ClusterState
from common.config import RebalancerConfiguration, SingleReplica, Strategy
from common.contract import MAINTENANCE_LABEL
from common.load import LoadBook, LoadView
from common.usage.source import Sample, Usage
from rebalancer.goals import AtMost, Ceiling, Dimension, Empty, Goal, Spread
from rebalancer.planner import Demand
from rebalancer.planner.instance import Instance
from simulator import build
from tests.support.planner_world import demand_of, look_at
from tests.support.wire import stamped, wire, wire_node, wire_pod

Pair = tuple[float, float]

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
    """How a random problem looks."""

    nodes: int = 20
    pods: int = 200
    hot: int = 3
    """Nodes above the ceiling."""
    empty: int = 0
    """Nodes to be emptied."""
    cold_percent: float = 50.0
    """About how much of the other nodes is used."""
    kinds: tuple[str, ...] = ("",)
    ceiling: Ceiling = CEILING


@dataclass(frozen=True, slots=True)
class Problem:
    """Nodes and pods, ready to be told in numbers or as a cluster."""

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
            state.nodes.upsert(wire_node(_node_manifest(node)))
        for pod in self.pods:
            deployment, replica_set = _owners(pod)
            state.deployments.upsert(wire(Deployment, deployment))
            state.replica_sets.upsert(wire(ReplicaSet, replica_set))
            state.pods.upsert(
                wire_pod(_pod_manifest(pod), owner=replica_set, scheduled=SCHEDULED, uid=_uid(pod))
            )
        return state

    def snapshot(self) -> Snapshot:
        return self.state().snapshot()

    def load(self, snapshot: Snapshot) -> LoadView:
        """Return what is believed once everything has been measured."""
        book = LoadBook()
        book.observe(self.sample(), snapshot, NOW_S)
        return book.view(snapshot, NOW_S)

    def sample(self) -> Sample:
        """Return what the metrics would say."""
        used = self.instance().load
        rows = zip(sorted(node.name for node in self.nodes), used, strict=True)
        return Sample(
            nodes={NodeName(name): _usage(cpu, memory) for name, (cpu, memory) in rows},
            pods={f"default/{p.name}": _usage(p.cpu_milli, p.memory * MIB) for p in self.pods},
        )

    def demand(self, strategies: Sequence[Strategy], *, threshold: float = 20.0) -> Demand:
        """Return what the real strategies and gates make of the cluster."""
        config = RebalancerConfiguration(
            cpu_threshold=self.ceiling.cpu_percent,
            memory_threshold=self.ceiling.mem_percent,
            imbalance_threshold=threshold,
            enabled_strategies=tuple(strategies),
            single_replica=SingleReplica.ALLOW,
        )
        snapshot = self.snapshot()
        return demand_of(look_at(snapshot, self.load(snapshot), config))


def draw(seed: int, shape: Shape) -> Problem:
    """Return a random problem; the same one for the same seed."""
    dice = random.Random(f"{seed} {shape}")
    nodes = tuple(_draw_node(dice, number, shape) for number in range(shape.nodes))
    wanted = [_wanted(dice, number, shape) for number in range(shape.nodes)]
    weights = [_weights(dice, share) for share in _shares(shape)]
    pods: list[DrawnPod] = []
    for node, levels, parts in zip(nodes, wanted, weights, strict=True):
        for cpu, memory in parts:
            pods.append(_draw_pod(dice, len(pods), node, cpu * levels[0], memory * levels[1]))
    return Problem(nodes, tuple(pods), shape.ceiling)


def instance_of(
    pods: Mapping[str, Sequence[Pair]],
    *,
    size: Mapping[str, float] | None = None,
    empty: Sequence[str] = (),
    fixed: Sequence[str] = (),
    closed: Sequence[str] = (),
    ceiling: Pair = (80.0, 80.0),
) -> Instance:
    """Return an instance in which a unit is a percent of a node of size 100."""
    names = sorted(pods)
    at = [row for row, name in enumerate(names) for _ in pods[name]]
    loads = np.array([pair for name in names for pair in pods[name]], dtype=float).reshape(-1, 2)
    load = np.zeros((len(names), 2))
    np.add.at(load, at, loads)
    allowed = np.array([[row != other for other in range(len(names))] for row in at], dtype=bool)
    return Instance(
        nodes=tuple(NodeName(name) for name in names),
        capacity=np.array([[(size or {}).get(name, 100.0)] * 2 for name in names]),
        load=load,
        ceiling=np.tile(ceiling, (len(names), 1)),
        gives=np.array([name not in fixed for name in names]),
        takes=np.array([name not in closed and name not in empty for name in names]),
        pods=tuple(PodUid(f"p{number}") for number in range(len(at))),
        at=np.array(at, dtype=np.int64),
        pod_load=loads,
        allowed=allowed.reshape(-1, len(names)),
        empty=np.array([name in empty for name in names]),
    )


def cpu(*loads: float) -> list[Pair]:
    return [(load, 0.0) for load in loads]


def ceiling_goals(instance: Instance) -> list[Goal]:
    """Return a goal for every node that is above its ceiling and not to be emptied."""
    return [
        AtMost(
            strategy=Strategy.RESOURCE_OPTIMIZATION,
            node=name,
            ceiling=Ceiling(*map(float, instance.ceiling[row])),
            broken=tuple(
                dimension
                for axis, dimension in enumerate(Dimension)
                if instance.percent[row, axis] > instance.ceiling[row, axis]
            ),
            words=f"{name} is above its ceiling",
        )
        for row, name in enumerate(instance.nodes)
        if (instance.percent[row] > instance.ceiling[row]).any() and not instance.empty[row]
    ]


def empty_goals(instance: Instance) -> list[Goal]:
    """Return a goal for every node that has to be emptied."""
    return [
        Empty(strategy=Strategy.NODE_MAINTENANCE, node=name, words=f"{name} has to be emptied")
        for row, name in enumerate(instance.nodes)
        if instance.empty[row]
    ]


def spread_goal(
    instance: Instance,
    points: float,
    dimension: Dimension = Dimension.CPU,
    *,
    fill_low: bool = True,
) -> Spread:
    """Return the goal that all nodes which take pods come together."""
    nodes = tuple(n for n, takes in zip(instance.nodes, instance.takes, strict=True) if takes)
    return Spread(
        strategy=Strategy.LOAD_BALANCING,
        pool="",
        dimension=dimension,
        points=points,
        nodes=nodes,
        fill_low=fill_low,
        words=f"the nodes differ by more than {points:g} points",
    )


def goals_of(instance: Instance) -> list[Goal]:
    """Return the goals of ceilings and of emptying."""
    return ceiling_goals(instance) + empty_goals(instance)


def _draw_node(dice: random.Random, number: int, shape: Shape) -> DrawnNode:
    return DrawnNode(
        name=f"node-{number:04}",
        cpu_milli=dice.choice((8000, 8000, 16000)),
        memory=dice.choice((32, 32, 64)) * 1024,
        kind=shape.kinds[number % len(shape.kinds)],
        empty=shape.hot <= number < shape.hot + shape.empty,
    )


def _wanted(dice: random.Random, number: int, shape: Shape) -> tuple[float, float]:
    """Return the shares of CPU and memory that are used on a node."""
    cold = (dice.gauss(shape.cold_percent, 6.0) / 100, dice.gauss(shape.cold_percent, 6.0) / 100)
    if number >= shape.hot:
        return cold
    hot = dice.uniform(0.85, 0.98)
    return dice.choice(((hot, cold[1]), (hot, cold[1]), (cold[0], hot), (hot, hot)))


def _shares(shape: Shape) -> list[int]:
    each, rest = divmod(shape.pods, shape.nodes)
    return [each + (number < rest) for number in range(shape.nodes)]


def _weights(dice: random.Random, count: int) -> list[tuple[float, float]]:
    """Return how a node's load is divided among its pods: a few are much larger than others."""
    cpu = [dice.lognormvariate(0.0, 0.8) for _ in range(count)]
    memory = [dice.lognormvariate(0.0, 0.8) for _ in range(count)]
    return [(c / sum(cpu), m / sum(memory)) for c, m in zip(cpu, memory, strict=True)]


def _draw_pod(
    dice: random.Random, number: int, node: DrawnNode, cpu: float, memory: float
) -> DrawnPod:
    return DrawnPod(
        name=f"pod-{number:05}",
        node=node.name,
        cpu_milli=max(1, round(node.cpu_milli * cpu)),
        memory=max(1, round(node.memory * memory)),
        kind=node.kind if dice.random() < 0.3 else "",
    )


def _may(pod: DrawnPod, node: DrawnNode) -> bool:
    return pod.node != node.name and not node.empty and pod.kind in ("", node.kind)


def _uid(pod: DrawnPod) -> str:
    return f"uid-{pod.name}"


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
    deployment = stamped(build.deployment(pod.name, 1, **_template(pod)), generation=1)
    replica_set = stamped(
        build.replica_set(pod.name, 1, **_template(pod)),
        generation=1,
        ownerReferences=[_reference(deployment)],
    )
    return {**deployment, "status": status}, {**replica_set, "status": status}


def _reference(owner: build.Manifest) -> build.Manifest:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
