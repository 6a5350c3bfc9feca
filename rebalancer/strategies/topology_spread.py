# SPDX-License-Identifier: Apache-2.0
"""Spread pods over the domains of their topology spread constraints.

The scheduler looks at a constraint once, when it places a pod: scaling down, evictions, and nodes
or zones that come and go leave pods uneven afterwards. Hard constraints that are broken are
repaired, and soft ones, or those of kube-scheduler for workloads without any, brought within
their skew.

Pods that may not be moved count where they are. Which of the others move is for the planner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import ClassVar, Final, NamedTuple

import numpy as np

from common.cluster.records import NodeName, PodRecord
from common.config import Strategy as StrategyName
from common.fit import Candidate, replacement
from rebalancer.goals import Distribute, Goal
from rebalancer.strategies.base import ClusterView, Participation
from rebalancer.strategies.homes import Homes
from rebalancer.strategies.topologies import DEFAULTS, Topology, constraints_of, topology_of

NAMED: Final = 5
"""Workloads that a note names at most."""
_MOST: Final = min(skew for _, skew in DEFAULTS)
"""Pods with which no workload can break kube-scheduler's own constraints."""


class TopologySpread:
    """States over which domains pods have to be spread better."""

    name: ClassVar[StrategyName] = StrategyName.TOPOLOGY_SPREAD
    for_load: ClassVar[bool] = False

    def goals(self, cluster: ClusterView, parts: Participation) -> Sequence[Goal]:
        survey = _Survey(cluster, parts)
        return [survey.goal(uneven) for uneven in survey.uneven() if survey.movable(uneven)]

    def notes(self, cluster: ClusterView, parts: Participation) -> Sequence[str]:
        """Name the workloads that break hard constraints and whose pods may not be moved."""
        survey = _Survey(cluster, parts)
        hard = (uneven for uneven in survey.uneven() if uneven.topology.constraint.hard)
        names = sorted({survey.owner_of(u.pod) for u in hard if not survey.movable(u)})
        if not names:
            return ()
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        verb = "breaks" if len(names) == 1 else "break"
        said = f"{', '.join(names[:NAMED])}{more}"
        return [f"{said} {verb} a topology spread constraint, but none of the pods may be moved."]


class _Uneven(NamedTuple):
    """A constraint over whose domains pods are not spread as it asks."""

    pod: PodRecord
    """One that has it."""
    topology: Topology


class _Survey:
    """What is uneven at one moment."""

    def __init__(self, cluster: ClusterView, parts: Participation) -> None:
        self._cluster = cluster
        self._snapshot = cluster.snapshot
        self._homes = Homes(cluster, parts)
        index = cluster.world.index
        index.seek(cluster.world.snapshot, cluster.world.changes)
        self._names = [n for n in sorted(cluster.snapshot.nodes) if n in index.facts.row_of]
        self._rows = np.array([index.facts.row_of[n] for n in self._names], dtype=np.int64)

    def uneven(self) -> Iterator[_Uneven]:
        """Yield the constraints that pods break, each once."""
        seen: set[Hashable] = set()
        for pod in self._samples():
            candidate = replacement(pod, self._snapshot)
            for constraint in constraints_of(pod, candidate, self._cluster.world):
                topology = topology_of(self._cluster.world, candidate, constraint, self._rows)
                key = (*_nodes_key(candidate), constraint, topology.selector)
                if key not in seen and topology.distance(topology.held):
                    seen.add(key)
                    yield _Uneven(pod, topology)

    def _samples(self) -> Iterator[PodRecord]:
        """Yield one pod for all that have the same constraints, which may break them."""
        known: dict[Hashable, PodRecord] = {}
        for pod in self._snapshot.pods.values():
            if pod.node and not (pod.terminating or pod.finished):
                values = tuple(
                    pod.labels.get(key)
                    for each in pod.shape.spread
                    for key in each.match_label_keys
                )
                known.setdefault((pod.controller_id or pod.uid, id(pod.shape), values), pod)
        crowded = {pod.uid: pod for pod in known.values() if pod.shape.spread or self._crowds(pod)}
        return (crowded[uid] for uid in sorted(crowded))

    def _crowds(self, pod: PodRecord) -> bool:
        """Tell whether a workload without constraints may break those of kube-scheduler."""
        replicas = self._snapshot.siblings(pod).values()
        if len(replicas) <= _MOST:
            return False
        nodes = [
            self._snapshot.nodes[p.node].node for p in replicas if p.node in self._snapshot.nodes
        ]
        return any(
            max(Counter(node.labels.get(key) for node in nodes).values(), default=0) > skew
            for key, skew in DEFAULTS
        )

    def movable(self, uneven: _Uneven) -> bool:
        """Tell whether a pod may be moved out of a domain that is not the emptiest."""
        topology, held = uneven.topology, uneven.topology.held
        full = np.append(held > (0 if topology.short else held.min()), False)[topology.ids]
        return any(
            topology.selector.matches(pod.labels) and self._homes.movable(pod)
            for name, gives in zip(self._names, full.tolist(), strict=True)
            if gives and self._enabled(name)
            for pod in self._snapshot.nodes[name].pods.values()
            if pod.namespace == topology.namespace
        )

    def _enabled(self, name: NodeName) -> bool:
        enabled = self._cluster.rules.of_node(name).enabled_strategies
        return StrategyName.TOPOLOGY_SPREAD in enabled

    def owner_of(self, pod: PodRecord) -> str:
        found = self._snapshot.top_workload(pod)
        return f"{found.kind} {found.key}" if found is not None else pod.key

    def goal(self, uneven: _Uneven) -> Distribute:
        topology = uneven.topology
        return Distribute(
            strategy=StrategyName.TOPOLOGY_SPREAD,
            namespace=topology.namespace,
            name=self.owner_of(uneven.pod),
            pod=uneven.pod.uid,
            constraint=topology.constraint,
            selector=topology.selector,
            message=f"{self.owner_of(uneven.pod)} {self._said(uneven)}",
        )

    def _said(self, uneven: _Uneven) -> str:
        topology, shape = uneven.topology, uneven.pod.shape
        held, wanted = topology.held, topology.constraint
        most, least = int(np.argmax(held)), int(np.argmin(held))
        kind = "DoNotSchedule" if wanted.hard else "ScheduleAnyway"
        whose = f"its {kind} constraint" if shape.spread else "kube-scheduler's default constraint"
        fullest = f"{held[most]} pods in {wanted.topology_key}={topology.names[most]}"
        if topology.short:
            return (
                f"has {fullest}, and {whose} allows {topology.skew} while there are fewer than "
                f"{wanted.min_domains} domains"
            )
        emptiest = f"{held[least]} in {topology.names[least]}"
        return f"has {fullest} and {emptiest}, and {whose} allows a difference of {topology.skew}"


def _nodes_key(candidate: Candidate) -> tuple[Hashable, ...]:
    """Return what decides which nodes count, besides the constraint."""
    shape = candidate.shape
    return candidate.namespace, shape.node_selector, shape.required_nodes, shape.tolerations
