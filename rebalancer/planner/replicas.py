# SPDX-License-Identifier: Apache-2.0
"""How many replicas of a workload a host or a zone may hold.

An extender that keeps one node switches off kube-scheduler's soft spreading, so the planner
does not pile replicas up. Where the user has stated a topology spread constraint for hosts or
zones, that one decides. Otherwise a host or zone takes at most one replica more than an even
share, and never all of them; what is there already may stay. A StatefulSet often holds a
quorum, so no host or zone gets more of its members than one has now. With the strategy
`Duplicates` a host gets no more than that leaves it, whatever a pod is moved for.

Replicas that leave are not subtracted, because they may still be there when others arrive;
only from the host where one arrives that waits until they are gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from math import ceil
from typing import Final

import numpy as np

from common.cluster.records import ControllerId
from common.config import Strategy
from rebalancer.planner.fitting import Fitting
from rebalancer.planner.instance import Flags, Ints
from rebalancer.planner.movable import Movable
from rebalancer.planner.problem import Problem
from rebalancer.planner.resources import every
from rebalancer.strategies.shares import HOST, NO_ZONE, UNLIMITED, ZONE, fair_share

_NONE: Final[Counter[int]] = Counter()


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """Where the replicas of one workload are now, and how many a host or zone may hold."""

    hosts: Counter[int]
    zones: Counter[int]
    per_host: int
    per_zone: int
    full_hosts: list[int] = field(init=False)
    full_zones: list[int] = field(init=False)

    def __post_init__(self) -> None:
        hosts = [row for row, count in self.hosts.items() if count >= self.per_host]
        zones = [zone for zone, count in self.zones.items() if count >= self.per_zone]
        object.__setattr__(self, "full_hosts", hosts)
        object.__setattr__(self, "full_zones", zones)


class Census:
    """Counts the replicas of workloads on demand, as the cluster is now."""

    def __init__(self, problem: Problem, fitting: Fitting) -> None:
        self._problem = problem
        self._fitting = fitting
        self._groups: dict[ControllerId, ReplicaCounts] = {}
        views = (problem.snapshot.nodes[name] for name in problem.nodes)
        labels = [view.node.labels.get(ZONE, "") for view in views]
        numbers = {zone: number for number, zone in enumerate(sorted(set(labels) - {""}))}
        self.zone: Ints = np.array([numbers.get(z, NO_ZONE) for z in labels], dtype=np.int64)
        self.zones = len(numbers)
        self.everywhere = problem.all_rows

    def of(self, m: Movable) -> ReplicaCounts | None:
        """Return where the replicas of a pod's workload are; a bare pod has none."""
        if m.group is None:
            return None
        if m.group not in self._groups:
            self._groups[m.group] = self._counted(m)
        return self._groups[m.group]

    def _counted(self, m: Movable) -> ReplicaCounts:
        rows = self._problem.row_of
        siblings = self._problem.snapshot.siblings(m.pod).values()
        there = (p for p in siblings if not (p.terminating or p.finished) and p.node in rows)
        hosts = Counter(rows[pod.node] for pod in there)
        zones: Counter[int] = Counter()
        for row, count in hosts.items():
            zones[int(self.zone[row])] += count
        del zones[NO_ZONE]
        return ReplicaCounts(hosts, zones, *self._most(m, hosts, zones))

    def _most(self, m: Movable, hosts: Counter[int], zones: Counter[int]) -> tuple[int, int]:
        """Return how many replicas a host and a zone may hold."""
        if m.stateful:
            most = max(hosts.values(), default=1), max(zones.values(), default=1)
        else:
            replicas, rows = hosts.total(), self._eligible(m)
            rows[list(hosts)] = True
            domains = int(np.count_nonzero(rows)), self._zones_among(rows)
            most = fair_share(replicas, domains[0]), fair_share(replicas, domains[1])
        stated = {constraint.topology_key for constraint in m.pod.shape.spread}
        return (
            min(UNLIMITED if HOST in stated else most[0], self._apart(m, hosts)),
            UNLIMITED if ZONE in stated else most[1],
        )

    def _apart(self, m: Movable, hosts: Counter[int]) -> int:
        """Return how many replicas a host may hold before `Duplicates` would take some away."""
        problem = self._problem
        if m.group in problem.per_host:
            return problem.per_host[m.group]
        rules = problem.demand.cluster.rules.of_node(m.pod.node)
        if Strategy.DUPLICATES not in rules.enabled_strategies:
            return UNLIMITED
        rows = self._eligible(m) & every(problem.load + m.load <= problem.roof)
        rows[[row for row in hosts if not problem.empty[row]]] = True
        return ceil(hosts.total() / max(1, int(np.count_nonzero(rows))))

    def _zones_among(self, rows: Flags) -> int:
        """Return in how many zones these rows are."""
        # Shifted by one, because a row without a zone has the number -1.
        held = np.bincount(self.zone[rows] - NO_ZONE, minlength=1)
        return int(np.count_nonzero(held[1:]))

    def _eligible(self, m: Movable) -> Flags:
        """Return the rows where a replica could run, room and other pods aside."""
        houses = self._problem.houses.copy()
        return houses if self._fitting.has_ties(m) else houses & self._fitting.possible(m)


class Replicas:
    """The replicas of the census, and those that the moves of a draft bring."""

    def __init__(self, census: Census) -> None:
        self._census = census
        self._hosts: dict[ControllerId, Counter[int]] = {}
        self._zones: dict[ControllerId, Counter[int]] = {}

    def hosts_free_of(self, m: Movable, gone: Collection[Movable] = ()) -> Flags | None:
        """Return the rows where a host may hold one more replica.

        Those that are gone by then do not count where they were.
        """
        counts = self._census.of(m)
        if counts is None or m.group is None:
            return None
        found = self._census.everywhere.copy()
        found[counts.full_hosts] = False
        for row, more in self._hosts.get(m.group, _NONE).items():
            if more and counts.hosts[row] + more >= counts.per_host:
                found[row] = False
        left = Counter(q.row for q in gone if q.group == m.group) if gone else _NONE
        for row, fewer in left.items():
            there = counts.hosts[row] + self._hosts.get(m.group, _NONE)[row] - fewer
            found[row] = there < counts.per_host
        return found

    def zones_free_of(self, m: Movable) -> Flags | None:
        """Return the rows in zones that may hold one more replica."""
        counts, census = self._census.of(m), self._census
        if counts is None or m.group is None or not census.zones:
            return None
        by_zone = np.ones(census.zones + 1, dtype=np.bool_)
        by_zone[counts.full_zones] = False
        for zone, more in self._zones.get(m.group, _NONE).items():
            if more and counts.zones[zone] + more >= counts.per_zone:
                by_zone[zone] = False
        by_zone[[NO_ZONE, census.zone[m.row]]] = True
        return by_zone[census.zone]

    def shift(self, m: Movable, row: int, sign: int) -> None:
        """Note that a replica comes to a node, or does not after all."""
        if m.group is None:
            return
        self._hosts.setdefault(m.group, Counter())[row] += sign
        zone = int(self._census.zone[row])
        if zone not in (NO_ZONE, int(self._census.zone[m.row])):
            self._zones.setdefault(m.group, Counter())[zone] += sign
