# SPDX-License-Identifier: Apache-2.0
"""Which pods of a neighborhood keep each other out of nodes: by host ports and anti-affinity.

Where a pod could run is asked without those that keep it out and may move away themselves; that
they are not both there in the end is a rule of the linear problem. So every pair of pods of which
one could keep the other out has to be found here: what is missed only costs solutions that
cannot be carried out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from common.cluster.records import ControllerId, PodUid
from common.cluster.shapes import HostPort
from common.fit import Candidate
from common.fit.index.ports import clash
from rebalancer.planner.fitting import Fitting
from rebalancer.planner.movable import Movable

Group = ControllerId | PodUid
MANY: Final = 100_000
"""Pairs of a term and a workload above which only replicas of one workload are compared."""


@dataclass(frozen=True, slots=True)
class Repelled:
    """Two workloads that must not share a domain of a topology key."""

    one: Group
    other: Group
    key: str


class Company:
    """Answers for the pods of one neighborhood, which come by workload."""

    def __init__(self, fitting: Fitting, groups: Mapping[Group, Sequence[Movable]]) -> None:
        self._groups = groups
        self._candidates = {g: fitting.candidate(pods[0]) for g, pods in groups.items()}
        ports = (port for c in self._candidates.values() for port in c.shape.host_ports)
        self.ports: tuple[HostPort, ...] = tuple(dict.fromkeys(ports))
        """In a fixed order, because the solver's result depends on that of the rules."""
        self.repelled = tuple(dict.fromkeys(self._found()))
        self._near: dict[Group, set[Group]] = defaultdict(set)
        for pair in self.repelled:
            self._near[pair.one].add(pair.other)
            self._near[pair.other].add(pair.one)
        for port in self.ports:
            users = [g for g in groups if self._clashes(g, port)]
            for group in users:
                self._near[group].update(users)

    def of(self, m: Movable) -> Iterator[Movable]:
        """Return the other pods that may keep a pod out."""
        group = m.group or m.pod.uid
        for near in {group: None} | dict.fromkeys(self._groups):
            if near == group or near in self._near[group]:
                yield from (q for q in self._groups[near] if q is not m)

    def users(self, port: HostPort) -> Iterator[Movable]:
        """Return the pods that cannot share a node with one that has a port."""
        for group, pods in self._groups.items():
            if self._clashes(group, port):
                yield from pods

    def _clashes(self, group: Group, port: HostPort) -> bool:
        return any(clash(port, mine) for mine in self._candidates[group].shape.host_ports)

    def _found(self) -> Iterator[Repelled]:
        """Yield the pairs of different workloads; replicas of one are a rule of their own."""
        repel = [g for g, c in self._candidates.items() if c.shape.anti_affinity]
        if len(repel) * len(self._groups) > MANY:
            return
        for one in repel:
            for other, key in self._repelled_by(self._candidates[one]):
                if one != other:
                    yield Repelled(min(one, other), max(one, other), key)

    def _repelled_by(self, candidate: Candidate) -> Iterable[tuple[Group, str]]:
        for term in candidate.shape.anti_affinity:
            for group, other in self._candidates.items():
                if term.selects(other.namespace, other.labels):
                    yield group, term.topology_key
