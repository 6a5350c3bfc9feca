# SPDX-License-Identifier: Apache-2.0
"""What `Consolidation` chooses from: which nodes could be emptied, and where their pods could go.

A node counts only if every pod that keeps it from being removed may be moved. DaemonSet and static
pods do not: they go with their node. Nodes that an autoscaler is told to keep, or is removing
already, and nodes that it has just added, are left to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final

import numpy as np

from common.api.contract import CONSOLIDATION_SINCE, kept_empty
from common.api.objects import Effect
from common.cache.snapshot import NodeView
from common.cluster.records import ControllerId, NodeName, NodeRecord, PodRecord
from common.cluster.shapes import PodShape
from common.cluster.tolerations import tolerated
from common.config import NodeCost
from common.config import Strategy as StrategyName
from common.fit import Leave, replacement
from common.load import NodeLoad
from rebalancer.evictability.deadline import moment_of
from rebalancer.goals import Places
from rebalancer.refusals import Reason, Refusal
from rebalancer.strategies.base import ClusterView, Participation
from rebalancer.strategies.consolidation_choice import Floats, Packing, Parcel
from rebalancer.strategies.pools import kept_by_autoscalers
from rebalancer.strategies.preferences import Preferences
from rebalancer.strategies.shares import HOST, NO_ZONE, UNLIMITED, ZONE, Flags, Ints, ReplicaRules

CANDIDATES: Final = 100
"""Nodes that are considered at a time, those with the fewest pods first."""
PODS: Final = 1000
"""Pods of these nodes that are weighed, about."""
PATIENCE_S: Final = 1800.0
"""For how long pods of a node that is being emptied may wait for something."""
GOES_WITH_NODE: Final = frozenset(
    {Reason.DAEMON_SET_POD, Reason.MIRROR_POD, Reason.FINISHED, Reason.TERMINATING}
)
"""Pods with one of these reasons keep no node from being removed."""
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
_STATEFUL_SET: Final = "StatefulSet"


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A node that may be emptied, with the pods that have to leave it."""

    name: NodeName
    marked: bool
    """It is being emptied, or has been, and is kept empty."""
    pods: tuple[PodRecord, ...]


def refusal(cluster: ClusterView, parts: Participation, view: NodeView) -> Refusal | None:
    """Return why a node is not emptied, whatever runs on it."""
    name = view.node.name
    others = (r for r in parts.sources_refused.get(name, ()) if r.name != Reason.KEPT_EMPTY)
    return next(others, None) or next(
        (found for rule in CANDIDATE_RULES if (found := rule(view.node, cluster)) is not None), None
    )


def is_not_cordoned(node: NodeRecord, _: ClusterView) -> Refusal | None:
    return Reason.CORDONED.refusal() if node.unschedulable else None


def is_not_kept_by_autoscalers(node: NodeRecord, _: ClusterView) -> Refusal | None:
    return Reason.NODE_KEPT.refusal() if kept_by_autoscalers(node) else None


def is_old_enough(node: NodeRecord, cluster: ClusterView) -> Refusal | None:
    wanted, age_s = cluster.config.consolidation.min_node_age, cluster.now_s - node.created_s
    if age_s >= wanted.seconds:
        return None
    return Reason.TOO_YOUNG.refusal("emptied", age_s=max(0.0, age_s), wanted=wanted)


def could_be_emptied_lately(node: NodeRecord, cluster: ClusterView) -> Refusal | None:
    return Reason.NOT_EMPTIED.refusal() if node.name in cluster.not_emptied else None


CANDIDATE_RULES: Final[tuple[Callable[[NodeRecord, ClusterView], Refusal | None], ...]] = (
    is_not_cordoned,
    is_not_kept_by_autoscalers,
    is_old_enough,
    could_be_emptied_lately,
)


def marked_nodes(cluster: ClusterView) -> frozenset[NodeName]:
    """Return the nodes that are being emptied or kept empty, where the strategy is on."""
    views = cluster.snapshot.nodes
    found = {name for name in views if kept_empty(views[name].node.annotations)}
    found |= cluster.consolidated.intersection(views)
    return frozenset(name for name in found if is_on(cluster, name))


def is_on(cluster: ClusterView, name: NodeName) -> bool:
    return StrategyName.CONSOLIDATION in cluster.rules.of_node(name).enabled_strategies


def surveyed(
    view: NodeView, cluster: ClusterView, parts: Participation, *, marked: bool
) -> Surveyed | tuple[PodRecord, Refusal]:
    """Return the pods that have to leave a node, or one that cannot.

    On a node that is being emptied, a pod may wait for a cool-down or a PodDisruptionBudget, but
    not forever: the node would be neither used nor removed.
    """
    since_s = moment_of(view.node, CONSOLIDATION_SINCE)
    patient = marked and (since_s is None or cluster.now_s - since_s < PATIENCE_S)
    moving = {m.pod_uid for m in cluster.snapshot.migrations.values() if m.open}
    pods = []
    for pod in sorted(view.pods.values(), key=lambda pod: pod.uid):
        why = (*parts.refusals(pod), *_observed(pod, cluster))
        if pod.uid in moving or not GOES_WITH_NODE.isdisjoint(each.name for each in why):
            continue
        against = next((each for each in why if not (patient and each.for_now())), None)
        if against is not None:
            return pod, against
        pods.append(pod)
    return Surveyed(view.node.name, marked, tuple(pods))


def _observed(pod: PodRecord, cluster: ClusterView) -> tuple[Refusal, ...]:
    """Return that the namespace of a pod lets other strategies move it, and this one not."""
    rule = cluster.rules.observing_namespace(pod, {StrategyName.CONSOLIDATION})
    return (Reason.RULE_OBSERVES.refusal(rule=rule),) if rule else ()


def costs(cluster: ClusterView, names: Collection[NodeName]) -> dict[NodeName, float | None]:
    """Return what nodes cost; None where that is not known."""
    found, views = cluster.config.consolidation.cost, cluster.snapshot.nodes
    return {name: _cost(views[name].node, found) for name in names}


def _cost(node: NodeRecord, cost: NodeCost) -> float | None:
    if cost.instance_types:
        return cost.instance_types.get(node.labels.get(INSTANCE_TYPE, ""))
    if not cost.label and not cost.annotation:
        return 1.0
    text = node.labels.get(cost.label) if cost.label else node.annotations.get(cost.annotation)
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if isfinite(found) and found > 0.0 else None


def filled_in(known: Mapping[NodeName, float | None]) -> dict[NodeName, float]:
    """Return costs in which an unknown one is the lowest: such a node is never preferred."""
    lowest = min((cost for cost in known.values() if cost is not None), default=1.0)
    return {name: lowest if cost is None else cost for name, cost in known.items()}


def _has_ties(pod: PodRecord) -> bool:
    """Tell whether it matters to a pod's replacement from which node the pod leaves."""
    shape = pod.shape
    ties = (shape.affinity, shape.anti_affinity, shape.spread, shape.host_ports, shape.claims)
    return pod.controller_id is None or any(ties)


class Market:
    """Nodes as rows, and the pods of those that may be emptied."""

    def __init__(
        self, cluster: ClusterView, parts: Participation, nodes: Collection[Surveyed]
    ) -> None:
        self._cluster = cluster
        self._parts = parts
        self._nodes = sorted(nodes, key=lambda node: node.name)
        self.names = sorted(cluster.snapshot.nodes)
        self._row = {name: row for row, name in enumerate(self.names)}
        marked = {node.name for node in nodes if node.marked}
        self.takes = np.array([self._may_take(name, marked) for name in self.names], dtype=np.bool_)
        self._masks: dict[Hashable, Flags] = {}
        self._suited: dict[Hashable, Flags] = {}
        self._rules: dict[ControllerId, ReplicaRules] = {}
        self._preferences = Preferences(cluster.world)
        refuses = parts.refuges_refused
        shelters = [name not in refuses and name not in marked for name in self.names]
        self._houses: Flags = self.takes | np.array(shelters, dtype=np.bool_)
        self._zone = self._zones()
        self._room = np.array([self._room_of(name) for name in self.names]).reshape(-1, 5)
        prices = filled_in(costs(cluster, self.names))
        self._costs = [prices[name] for name in self.names]
        self._pods = [each for node in self._nodes for each in self._weighed(node)]

    def packing(self) -> Packing:
        """Return what to choose from."""
        return Packing(
            room=self._room,
            costs=self._costs,
            parcels=[self._parcel(*each) for each in self._pods],
            candidates=[self._row[node.name] for node in self._nodes],
            kept=[self._row[node.name] for node in self._nodes if node.marked],
        )

    def places(self, found: Mapping[int, int]) -> Places:
        """Return where pods go, by the numbers of their parcels."""
        return tuple((self._pods[p][0].uid, self.names[row]) for p, row in sorted(found.items()))

    def _zones(self) -> Ints:
        """[N] return the zone of each node as a number."""
        labels = [self._cluster.snapshot.nodes[n].node.labels.get(ZONE, "") for n in self.names]
        numbers = {zone: number for number, zone in enumerate(sorted({*labels} - {""}))}
        return np.array([numbers.get(label, NO_ZONE) for label in labels], dtype=np.int64)

    def _may_take(self, name: NodeName, marked: Collection[NodeName]) -> bool:
        against = self._parts.targets_refused.get(name, ())
        kept = name in marked
        return not kept and all(each.name == Reason.KEPT_EMPTY for each in against)

    def _room_of(self, name: NodeName) -> tuple[float, ...]:
        """Return what a node may still use, what can be requested, and how many pods fit."""
        view, load = self._cluster.snapshot.nodes[name], self._cluster.load.nodes[name]
        if not self.takes[self._row[name]] or not load.known:
            return (0.0,) * 5
        cpu, memory = self._allowed_of(name, load)
        asked, offered = view.requested, view.node.allocatable
        return (
            max(0.0, cpu - load.room.cpu_milli),
            max(0.0, memory - load.room.mem_bytes),
            max(0.0, float(offered.cpu_milli - asked.cpu_milli)),
            max(0.0, float(offered.mem_bytes - asked.mem_bytes)),
            max(0.0, float(view.node.max_pods - len(view.pods))),
        )

    def _allowed_of(self, name: NodeName, load: NodeLoad) -> tuple[float, float]:
        target, ceiling = self._cluster.config.consolidation.target, self._parts.ceilings[name]
        return (
            min(target, ceiling.cpu_percent) * load.offered.cpu_milli / 100.0,
            min(target, ceiling.mem_percent) * load.offered.mem_bytes / 100.0,
        )

    def _weighed(self, node: Surveyed) -> list[tuple[PodRecord, Floats]]:
        found = []
        for pod in node.pods:
            used = self._cluster.load.load_of(pod)
            asked = replacement(pod, self._cluster.snapshot).shape.requests
            weight = (used.cpu_milli, used.mem_bytes, asked.cpu_milli, asked.mem_bytes, 1.0)
            found.append((pod, np.array(weight, dtype=np.float64)))
        return found

    def _parcel(self, pod: PodRecord, weight: Floats) -> Parcel:
        return Parcel(
            home=self._row[pod.node],
            weight=weight,
            allowed=self._mask(pod) & self.takes & self._suits(pod),
            replicas=self._replicas(pod),
        )

    def _mask(self, pod: PodRecord) -> Flags:
        """Return where a pod may run, room and the others that move aside."""
        world = self._cluster.world
        key: Hashable = (id(pod.shape), pod.controller_id, pod.node if _has_ties(pod) else "")
        found = self._masks.get(key)
        if found is None:
            after = world.after(Leave(pod.uid))
            mask = after.mask(replacement(pod, after.snapshot))
            rows = after.index.facts.row_of
            found = np.array([bool(mask[rows[name]]) for name in self.names], dtype=np.bool_)
            self._masks[key] = found
        return found

    def _suits(self, pod: PodRecord) -> Flags:
        """Return the nodes without soft taints against a pod, and none that it prefers less."""
        shape, rules = pod.shape, self._cluster.rules.of_node(pod.node)
        prefers = StrategyName.PREFERRED_NODES in rules.enabled_strategies
        prefers = prefers and bool(shape.preferred_nodes)
        key: Hashable = (
            (shape.tolerations, shape.preferred_nodes, pod.node) if prefers else (shape.tolerations)
        )
        if key not in self._suited:
            found = [self._welcomes(name, shape) for name in self.names]
            if prefers:
                least = self._preferences.of(shape, pod.node)
                suits = (self._preferences.of(shape, name) >= least for name in self.names)
                found = [welcome and each for welcome, each in zip(found, suits, strict=True)]
            self._suited[key] = np.array(found, dtype=np.bool_)
        return self._suited[key]

    def _welcomes(self, name: NodeName, shape: PodShape) -> bool:
        taints = self._cluster.snapshot.nodes[name].node.taints
        soft = (taint for taint in taints if taint.effect == Effect.PREFER_NO_SCHEDULE)
        return all(tolerated(taint, shape.tolerations) for taint in soft)

    def _replicas(self, pod: PodRecord) -> ReplicaRules | None:
        """Return how many replicas hosts and zones may hold, as the planner has it."""
        group = pod.controller_id
        if group is None:
            return None
        if group not in self._rules:
            self._rules[group] = self._counted(pod)
        return self._rules[group]

    def _counted(self, pod: PodRecord) -> ReplicaRules:
        hosts, stated = self._hosts(pod), {each.topology_key for each in pod.shape.spread}
        stateful = pod.owner is not None and pod.owner.kind == _STATEFUL_SET
        zones = np.bincount(self._zone[self._zone != NO_ZONE], hosts[self._zone != NO_ZONE])
        per_host = int(hosts.max(initial=1)) if stateful else None
        per_zone = int(zones.max(initial=1)) if stateful else None
        if any(term.topology_key == HOST for term in pod.shape.anti_affinity):
            per_host = 1
        enabled = self._cluster.rules.of_node(pod.node).enabled_strategies
        fits = self._mask(pod)
        return ReplicaRules(
            hosts=hosts,
            eligible=self._houses if _has_ties(pod) else self._houses & fits,
            zone=self._zone,
            per_host=UNLIMITED if HOST in stated else per_host,
            per_zone=UNLIMITED if ZONE in stated else per_zone,
            free=self.takes & fits if StrategyName.DUPLICATES in enabled else None,
        )

    def _hosts(self, pod: PodRecord) -> Ints:
        found: Ints = np.zeros(len(self.names), dtype=np.int64)
        for each in self._cluster.snapshot.siblings(pod).values():
            if each.node in self._row and not (each.terminating or each.finished):
                found[self._row[each.node]] += 1
        return found
