# SPDX-License-Identifier: Apache-2.0
"""Groups that leave nodes under maintenance as a whole, with `groups: restart`.

A group that is disrupted all at once or not at all, that has to stay in one domain, or that can
do without none of its pods, cannot be moved pod by pod. It is restarted: all of its pods are
evicted together, and kube-scheduler places their replacements together. That is planned only if
every gate allows it for each pod, PodDisruptionBudgets allow it for all, and all replacements fit
elsewhere at once, once the pods are gone. Pure.

One group is restarted at a time: where the replacements of another still wait for nodes, the
room that is free now is theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from common.api.contract import under_maintenance
from common.api.migrations import Purpose
from common.cluster.pod_groups import PodGroupRecord
from common.cluster.records import NodeName, PodRecord
from common.config import Groups, Strategy
from common.fit import Arrive, Leave, World, replacement
from rebalancer.evictability import Ledger
from rebalancer.goals import BALANCED, Removal
from rebalancer.planner import Demand
from rebalancer.pod_groups import GroupKey
from rebalancer.refusals import Reason
from rebalancer.removals import Removals
from rebalancer.strategies.pools import percent_now

LARGEST: Final = 500
"""Pods of a group that is restarted at most."""
_OF_GROUPS: Final = frozenset({Reason.POD_GROUP_WHOLE, Reason.POD_GROUP_MINIMUM})


def group_restarts(demand: Demand) -> Removals:
    """Return the pods of a group that is restarted now, and why other groups are not."""
    if demand.cluster.config.groups is not Groups.RESTART:
        return Removals()
    search = _Search(demand)
    notes: list[str] = []
    for key in search.groups():
        why = search.why_not(key)
        if not why:
            return Removals(search.removals(key), tuple(notes))
        notes.append(f"PodGroup {'/'.join(key)} is not restarted: {why}.")
    return Removals(notes=tuple(notes))


class _Search:
    """The groups of one moment."""

    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        self._cluster = demand.cluster
        self._snapshot = demand.cluster.snapshot
        self._parts = demand.assessment.participation

    def groups(self) -> Sequence[GroupKey]:
        """Return the groups with pods on drained nodes that cannot leave one by one."""
        return sorted(
            {
                (pod.namespace, pod.shape.pod_group)
                for name in self._drained()
                for pod in self._snapshot.nodes[name].pods.values()
                if pod.shape.pod_group and _runs(pod) and self._only_whole(pod)
            }
        )

    def _drained(self) -> Iterator[NodeName]:
        for name, view in self._snapshot.nodes.items():
            if under_maintenance(view.node.labels):
                enabled = self._cluster.rules.of_node(name).enabled_strategies
                if Strategy.NODE_MAINTENANCE in enabled:
                    yield name

    def _only_whole(self, pod: PodRecord) -> bool:
        key = (pod.namespace, pod.shape.pod_group)
        record = self._record(key)
        if record is None:
            return False
        groups = self._cluster.rules.pod_groups
        return record.whole or bool(record.topology) or (record.minimum > 0 >= groups.spare(key))

    def _record(self, key: GroupKey) -> PodGroupRecord | None:
        return self._snapshot.pod_groups.get("/".join(key))

    def _members(self, key: GroupKey) -> list[PodRecord]:
        pods = self._snapshot.by_namespace[key[0]].values()
        found = (pod for pod in pods if pod.shape.pod_group == key[1] and not pod.finished)
        return sorted(found, key=lambda pod: pod.uid)

    def why_not(self, key: GroupKey) -> str:
        """Return why a group is not restarted now; empty if it is."""
        members = self._members(key)
        if len(members) > LARGEST:
            return f"it has {len(members)} pods (limit {LARGEST})"
        return (
            self._waiting()
            or self._incomplete(members)
            or self._refused(members)
            or self._without_place(key, members)
        )

    def _waiting(self) -> str:
        """Return which pod of a group has no node yet: it comes first."""
        pods = self._snapshot.pods.values()
        waits = (p.key for p in pods if p.shape.pod_group and not p.node and not p.finished)
        first = min(waits, default="")
        return f"{first} of a pod group waits for a node" if first else ""

    def _incomplete(self, members: Sequence[PodRecord]) -> str:
        """Return which pod does not run yet, or has started just now."""
        for pod in members:
            if pod.terminating or not pod.ready or pod.node not in self._snapshot.nodes:
                return f"{pod.key} is not Ready"
        config, now_s = self._cluster.config, self._cluster.now_s
        youngest = max(members, key=lambda pod: pod.created_s)
        if now_s - youngest.created_s < config.workload_cooldown.seconds:
            return f"{youngest.key} is younger than workloadCooldown"
        return ""

    def _refused(self, members: Sequence[PodRecord]) -> str:
        """Return why one of the pods may not be evicted, or not with the others."""
        ledger = Ledger(self._demand.budgets)
        for pod in members:
            refusals = self._demand.judge(pod, Purpose.MAINTENANCE)
            against = [found for found in refusals if found.name not in _OF_GROUPS]
            budget = ledger.take(pod)
            if budget is not None:
                against.append(budget)
            if against:
                return f"{pod.key} stays, because {against[0].message}"
        return ""

    def _without_place(self, key: GroupKey, members: Sequence[PodRecord]) -> str:
        """Return which pod finds no place beside the others, wherever the group may go."""
        record, why = self._record(key), ""
        domains = self._domains(record.topology if record is not None else "")
        for nodes in domains:
            why = self._not_placed(members, nodes)
            if not why:
                return ""
        return why or "no node has the labels of its topology constraint"

    def _domains(self, topology: str) -> Sequence[Collection[NodeName]]:
        """Return the sets of nodes that may hold all of the group."""
        open_ = [n for n in self._snapshot.nodes if n not in self._parts.refuges_refused]
        keys = [key for key in topology.split(", ") if key]
        if not keys:
            return [open_]
        found: dict[tuple[str, ...], list[NodeName]] = {}
        for name in open_:
            labels = self._snapshot.nodes[name].node.labels
            if all(key in labels for key in keys):
                found.setdefault(tuple(labels[key] for key in keys), []).append(name)
        return [found[domain] for domain in sorted(found)]

    def _not_placed(self, members: Sequence[PodRecord], nodes: Collection[NodeName]) -> str:
        world = self._cluster.world.after(*(Leave(pod.uid) for pod in members))
        levels = _Levels(self._demand, members)
        by_size = sorted(members, key=lambda p: (-p.requests.cpu_milli, -p.requests.mem_bytes))
        for pod in by_size:
            target = self._place_for(pod, world, levels, nodes)
            if target is None:
                return f"its {len(members)} pods do not fit at once, {pod.key} is left without node"
            levels.add(pod, target)
            world = world.after(Arrive(replacement(pod, world.snapshot), target))
        return ""

    def _place_for(
        self, pod: PodRecord, world: World, levels: _Levels, nodes: Collection[NodeName]
    ) -> NodeName | None:
        fitting = sorted(world.feasible(replacement(pod, world.snapshot)))
        return next((name for name in fitting if name in nodes and levels.take(pod, name)), None)

    def removals(self, key: GroupKey) -> tuple[Removal, ...]:
        """Return the evictions of a group, all or none of which begin in this cycle."""
        members, group = self._members(key), "/".join(key)
        held = next(filter(None, map(self._held, members)), "")
        drained = min(pod.node for pod in members if pod.node in set(self._drained()))
        return tuple(
            Removal(
                strategy=Strategy.NODE_MAINTENANCE,
                node=pod.node,
                pod=pod.uid,
                namespace=pod.namespace,
                name=pod.name,
                finished=False,
                group=group,
                message=(
                    f"PodGroup {group} is restarted with all of its {len(members)} pods, because "
                    f"{drained} is under maintenance"
                ),
                deferred_by=held,
            )
            for pod in members
        )

    def _held(self, pod: PodRecord) -> str:
        rules, strategy = self._cluster.rules, Strategy.NODE_MAINTENANCE
        refusal = rules.observed(strategy, pod.node, pod.namespace)
        return refusal.message if refusal is not None else ""


class _Levels:
    """What nodes would use while the replacements of a group arrive."""

    def __init__(self, demand: Demand, members: Sequence[PodRecord]) -> None:
        self._cluster = demand.cluster
        self._ceilings = demand.assessment.participation.ceilings
        self._added: dict[NodeName, tuple[float, float]] = {}
        for pod in members:
            self._shift(pod, pod.node, -1.0)

    def take(self, pod: PodRecord, name: NodeName) -> bool:
        """Tell whether a node stays below its ceiling with one more pod; by requests if unknown."""
        load = self._cluster.load.nodes[name]
        if not load.known:
            return True
        more = zip(self._added.get(name, (0.0, 0.0)), self._percent(pod, name), strict=True)
        return all(
            percent_now(load, dimension) + sum(each) <= self._ceilings[name].of(dimension)
            for dimension, each in zip(BALANCED, more, strict=True)
        )

    def add(self, pod: PodRecord, name: NodeName) -> None:
        self._shift(pod, name, 1.0)

    def _shift(self, pod: PodRecord, name: NodeName, sign: float) -> None:
        cpu, memory = self._added.get(name, (0.0, 0.0))
        more = self._percent(pod, name)
        self._added[name] = cpu + sign * more[0], memory + sign * more[1]

    def _percent(self, pod: PodRecord, name: NodeName) -> tuple[float, float]:
        used, has = self._cluster.load.load_of(pod), self._cluster.snapshot.nodes[name].node
        return (
            100.0 * used.cpu_milli / max(1, has.allocatable.cpu_milli),
            100.0 * used.mem_bytes / max(1, has.allocatable.mem_bytes),
        )


def _runs(pod: PodRecord) -> bool:
    return not (pod.terminating or pod.finished)
