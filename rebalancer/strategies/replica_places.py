# SPDX-License-Identifier: Apache-2.0
"""Which nodes hold so many replicas of a workload that a plan brings no more of them there.

The planner keeps replicas apart (`rebalancer/planner/replicas.py`). Strategies that ask where a
pod could go count the same: a place that a plan never uses is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from common.cluster.records import ControllerId, NodeName, PodRecord
from rebalancer.strategies.base import ClusterView, Participation
from rebalancer.strategies.shares import HOST, ZONE, fair_share

_STATEFUL_SET: Final = "StatefulSet"

Possible = Callable[[], Collection[NodeName]]
"""Where a pod could run, room aside."""


class _Full(NamedTuple):
    """Where no more replicas of a workload go."""

    hosts: frozenset[NodeName]
    zones: frozenset[str]


class ReplicaPlaces:
    """Answers for one moment; replicas of a workload share the answer."""

    def __init__(self, cluster: ClusterView, parts: Participation) -> None:
        self._snapshot = cluster.snapshot
        closed = parts.targets_refused.keys() & parts.refuges_refused.keys()
        self._houses = cluster.snapshot.nodes.keys() - closed
        self._known: dict[ControllerId, _Full] = {}

    def full(self, pod: PodRecord, among: Iterable[NodeName], possible: Possible) -> set[NodeName]:
        """Return the nodes that take no more replicas of a pod's workload from where it is."""
        group = pod.controller_id
        if group is None:
            return set()
        found = self._known.get(group)
        if found is None:
            found = self._known[group] = self._counted(pod, possible)
        if not (found.hosts or found.zones):
            return set()
        zones = found.zones - {self._zone(pod.node)}
        return {name for name in among if name in found.hosts or self._zone(name) in zones}

    def _zone(self, name: NodeName) -> str:
        return self._snapshot.nodes[name].node.labels.get(ZONE, "")

    def _counted(self, pod: PodRecord, possible: Possible) -> _Full:
        siblings = self._snapshot.siblings(pod).values()
        there = (p for p in siblings if not (p.terminating or p.finished))
        hosts = Counter(p.node for p in there if p.node in self._snapshot.nodes)
        zones: Counter[str] = Counter()
        for name, count in hosts.items():
            zones[self._zone(name)] += count
        del zones[""]
        stated = {constraint.topology_key for constraint in pod.shape.spread}
        per_host, per_zone = self._most(pod, hosts, zones, possible)
        return _Full(
            frozenset(n for n, count in hosts.items() if HOST not in stated and count >= per_host),
            frozenset(z for z, count in zones.items() if ZONE not in stated and count >= per_zone),
        )

    def _most(
        self, pod: PodRecord, hosts: Counter[NodeName], zones: Counter[str], possible: Possible
    ) -> tuple[int, int]:
        """Return how many replicas a host and a zone may hold."""
        if pod.owner is not None and pod.owner.kind == _STATEFUL_SET:
            return max(hosts.values(), default=1), max(zones.values(), default=1)
        fits = self._houses if _has_ties(pod) else self._houses & set(possible())
        rows = fits | hosts.keys()
        replicas, named = hosts.total(), {self._zone(name) for name in rows} - {""}
        return fair_share(replicas, len(rows)), fair_share(replicas, len(named))


def _has_ties(pod: PodRecord) -> bool:
    """Tell whether other pods decide where a pod may run."""
    shape = pod.shape
    return bool(shape.affinity or shape.anti_affinity or shape.spread or shape.host_ports)
