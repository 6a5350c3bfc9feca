# SPDX-License-Identifier: Apache-2.0
"""A cluster in numbers, and what is wrong in it for `Violations`, `Duplicates`, `PreferredNodes`.

What rules say is written here once more, from their documentation, for the judge and the replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from bench.zoo.cluster import GIB, Json, Use, ZooCluster

VIOLATIONS: Final = "Violations"
DUPLICATES: Final = "Duplicates"
PREFERRED: Final = "PreferredNodes"

CEILING: Final = 0.8
TRANSIENT: Final = 0.9
"""While pods are exchanged."""
FIRM: Final = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
KIND: Final = "kind"
HARD: Final = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
SOFT: Final = {"key": "costly", "value": "yes", "effect": "PreferNoSchedule"}
MEMORY: Final = GIB // 64
TAINTED: Final = 1000
"""How many points of weight a soft taint counts as."""
EPSILON: Final = 1e-6

Homes = dict[str, str]
Move = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a drawn cluster."""

    zone: str
    cores: int = 8
    kind: str = "a"
    hard: bool = False
    """Whether it has a taint that keeps pods away."""
    soft: bool = False
    """Whether it has a taint that makes it a worse node."""

    def labels(self, name: str) -> dict[str, str]:
        return {ZONE: self.zone, HOST: name, KIND: self.kind}


@dataclass(frozen=True, slots=True)
class Workload:
    """A ReplicaSet."""

    cores: float = 0.05
    """What a pod requests."""
    use: float = 0.01
    """Cores that a pod uses."""
    kinds: str = ""
    """The kinds of nodes where it may run; empty for all."""
    prefers: tuple[tuple[str, int], ...] = ()
    """Kinds of nodes and their weights."""
    tolerates: bool = False
    """The taint of hard nodes."""
    minds: bool = True
    """The taint of soft nodes."""
    group: str = ""
    """A label that anti-affinity of others may name."""
    apart: tuple[tuple[str, str], ...] = ()
    """Topology keys, and groups from which it has to be apart."""

    def runs_on(self, node: Node) -> bool:
        return (not self.kinds or node.kind in self.kinds) and (self.tolerates or not node.hard)

    def likes(self, node: Node) -> tuple[int, int]:
        """Return how well a node suits it; larger is better."""
        weight = sum(weight for kind, weight in self.prefers if kind == node.kind)
        return -int(node.soft and self.minds), weight

    def spec(self) -> Json:
        affinity: Json = {}
        if self.kinds:
            term = _kinds(*self.kinds)
            terms = {"nodeSelectorTerms": [term]}
            affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        if self.prefers:
            terms_ = [{"weight": w, "preference": _kinds(kind)} for kind, w in self.prefers]
            node = affinity.setdefault("nodeAffinity", {})
            node["preferredDuringSchedulingIgnoredDuringExecution"] = terms_
        if self.apart:
            found = [
                {"topologyKey": key, "labelSelector": {"matchLabels": {"group": group}}}
                for key, group in self.apart
            ]
            rules = {"requiredDuringSchedulingIgnoredDuringExecution": found}
            affinity["podAntiAffinity"] = rules
        found_: Json = {"affinity": affinity} if affinity else {}
        keys = ("dedicated",) * self.tolerates + ("costly",) * (not self.minds)
        if keys:
            found_["tolerations"] = [{"key": key, "operator": "Exists"} for key in keys]
        return found_


def _kinds(*values: str) -> Json:
    return {"matchExpressions": [{"key": KIND, "operator": "In", "values": list(values)}]}


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a drawn cluster."""

    workload: str
    home: str
    firm: bool = False


@dataclass(slots=True)
class Drawn:
    """A cluster in numbers."""

    strategy: str
    nodes: dict[str, Node] = field(default_factory=dict)
    workloads: dict[str, Workload] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)

    def add(self, name: str, workload: Workload, homes: Sequence[str], firm: float = 0.0) -> None:
        """Add a workload with a pod on each of these nodes, the first share of them immovable."""
        self.workloads[name] = workload
        for number, home in enumerate(homes):
            self.pods[f"{name}-{number}"] = Pod(name, home, number < firm * len(homes))

    @property
    def homes(self) -> Homes:
        return {name: pod.home for name, pod in self.pods.items()}

    def after(self, homes: Homes) -> Drawn:
        """Return the cluster with its pods elsewhere."""
        pods = {name: replace(pod, home=homes[name]) for name, pod in self.pods.items()}
        return replace(self, pods=pods)

    def manifests(self) -> ZooCluster:
        """Return it as API objects."""
        settings = {
            "enabledStrategies": [self.strategy],
            "singleReplica": "allow",
            "maxReschedulePods": 1000,
            "imbalanceThreshold": 100,
        }
        cluster = ZooCluster(settings)
        for name, node in self.nodes.items():
            taints = [HARD] * node.hard + [SOFT] * node.soft
            more: Json = {"taints": taints} if taints else {}
            cluster.node(name, cpu=node.cores, gib=64, labels=node.labels(name), **more)
        for name, workload in self.workloads.items():
            homes = [pod.home for pod in self.pods.values() if pod.workload == name]
            cluster.workload(
                name,
                homes,
                [Use(round(1000 * workload.use), MEMORY)] * len(homes),
                requests=Use(round(1000 * workload.cores), MEMORY),
                labels={"group": workload.group or name},
                spec=workload.spec(),
            )
        for made in cluster.objects["pods"]:
            if self.pods[made["metadata"]["name"]].firm:
                made["metadata"]["annotations"] = FIRM
        return cluster

    def of(self, pod: str) -> Workload:
        return self.workloads[self.pods[pod].workload]

    def suits(self, pod: str, name: str) -> bool:
        """Tell whether no rule about nodes and their labels forbids a pod there."""
        return self.of(pod).runs_on(self.nodes[name])

    def domain(self, name: str, key: str) -> str:
        return self.nodes[name].labels(name)[key]

    def pairs(self) -> Iterator[tuple[str, str, str]]:
        """Yield the pods that have to be apart, with the key of the domains."""
        found = set()
        for one in self.pods:
            for key, group in self.of(one).apart:
                for other, pod in self.pods.items():
                    if other != one and (self.of(other).group or pod.workload) == group:
                        found.add((min(one, other), max(one, other), key))
        yield from sorted(found)

    def has_room(
        self, pod: str, target: str, homes: Mapping[str, str], ceiling: float = CEILING
    ) -> bool:
        """Tell whether requests and load of a pod fit on a node."""
        there = [self.of(p) for p, home in homes.items() if home == target and p != pod]
        mine, cores = self.of(pod), self.nodes[target].cores
        asked = sum(w.cores for w in there) + mine.cores
        used = sum(w.use for w in there) + mine.use
        return asked <= cores + EPSILON and used <= ceiling * cores + EPSILON

    def takes(
        self, pod: str, target: str, homes: Mapping[str, str], ceiling: float = CEILING
    ) -> bool:
        """Tell whether the scheduler could place a pod on a node, below its ceiling."""
        return (
            self.suits(pod, target)
            and self.has_room(pod, target, homes, ceiling)
            and all(
                self.domain(homes[other], key) != self.domain(target, key)
                for other, key in self.apart_from(pod)
            )
        )

    def apart_from(self, pod: str) -> Iterator[tuple[str, str]]:
        """Yield the pods that one has to be apart from, with the key of the domains."""
        for one, other, key in self.pairs():
            if pod in (one, other):
                yield (other if pod == one else one), key

    def held(self, workload: str, homes: Mapping[str, str]) -> Counter[str]:
        """Return how many replicas of a workload each host has."""
        mine = (name for name, pod in self.pods.items() if pod.workload == workload)
        return Counter(homes[name] for name in mine)

    def shares(self, workload: str) -> tuple[int, int]:
        """Return how many replicas a host and a zone may hold: one more than an even share."""
        held, own = self.held(workload, self.homes), self.workloads[workload]
        free = bool(own.apart) or any(
            group == (own.group or workload)
            for each in self.workloads.values()
            for _, group in each.apart
        )
        rows = {n for n, node in self.nodes.items() if free or own.runs_on(node)} | held.keys()
        zones = {self.nodes[name].zone for name in rows}
        return _most(held.total(), len(rows)), _most(held.total(), len(zones))

    def share(self, workload: str) -> int:
        """Return the even share of a host, among those that hold some or would take one now."""
        held, homes = self.held(workload, self.homes), self.homes
        crowded = [
            name
            for name, pod in self.pods.items()
            if pod.workload == workload and not pod.firm and held[pod.home] > 1
        ]
        takers = {
            target
            for name in crowded
            for target in self.nodes
            if self.takes(name, target, homes) and not self.worse(name, target)
        }
        return ceil(held.total() / max(1, len(held.keys() | takers)))

    def worse(self, pod: str, target: str) -> bool:
        """Tell whether a node suits a pod less than its own, or has a soft taint against it."""
        own = self.of(pod)
        there = own.likes(self.nodes[target])
        return there < own.likes(self.nodes[self.pods[pod].home]) or there[0] < 0

    def better(self, pod: str, target: str) -> bool:
        """Tell whether a node suits a pod strictly better, and has no soft taint against it."""
        own = self.of(pod)
        there = own.likes(self.nodes[target])
        return there > own.likes(self.nodes[self.pods[pod].home]) and not there[0]

    def wrong(self, homes: Mapping[str, str]) -> int:
        """Return how much is left of what the strategy is about."""
        if self.strategy == VIOLATIONS:
            unfit = sum(not self.suits(name, home) for name, home in homes.items())
            near = sum(
                self.domain(homes[one], key) == self.domain(homes[other], key)
                for one, other, key in self.pairs()
            )
            return unfit + near
        if self.strategy == DUPLICATES:
            return sum(
                max(0, count - self.share(workload))
                for workload in self.workloads
                for count in self.held(workload, homes).values()
            )
        return -sum(self.gain(name, home) for name, home in homes.items())

    def gain(self, pod: str, target: str) -> int:
        """Return how much better a node suits a pod than where it was drawn."""
        own = self.of(pod)
        there, here = own.likes(self.nodes[target]), own.likes(self.nodes[self.pods[pod].home])
        return TAINTED * (there[0] - here[0]) + there[1] - here[1]


def _most(replicas: int, domains: int) -> int:
    share = ceil(replicas / max(1, domains)) + 1
    return min(share, replicas - 1) if replicas > 1 and domains > 1 else share
