"""How many replicas of a workload are on each host and in each zone.

Keeping one node switches off the scheduler's own soft spreading, so the planner does not
pile replicas up: no move may raise the largest number on one host, or in one zone. Replicas
that leave are not subtracted, for nobody knows whether they have left when the others arrive;
only from the host where one arrives that waits until they are gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from common.cluster.records import ControllerId
from rebalancer.planner.instance import Flags, Ints
from rebalancer.planner.movable import Movable
from rebalancer.planner.problem import Problem

ZONE: Final = "topology.kubernetes.io/zone"
NO_ZONE: Final = -1

_NOBODY: Final[Counter[int]] = Counter()


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the replicas of one workload are now, and how many at most in one place."""

    hosts: Counter[int]
    zones: Counter[int]
    most_on_host: int
    most_in_zone: int
    full_hosts: tuple[int, ...]
    full_zones: tuple[int, ...]

    @classmethod
    def of(cls, hosts: Counter[int], zones: Counter[int]) -> Self:
        on_host, in_zone = max(hosts.values(), default=1), max(zones.values(), default=1)
        return cls(
            hosts,
            zones,
            on_host,
            in_zone,
            tuple(sorted(row for row, count in hosts.items() if count >= on_host)),
            tuple(sorted(zone for zone, count in zones.items() if count >= in_zone)),
        )


class Census:
    """The workloads of the pods that are asked about, as the cluster is now."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._groups: dict[ControllerId, Standing] = {}
        views = (problem.snapshot.nodes[name] for name in problem.nodes)
        labels = [view.node.labels.get(ZONE, "") for view in views]
        numbers = {zone: number for number, zone in enumerate(sorted(set(labels) - {""}))}
        self.zone: Ints = np.array([numbers.get(z, NO_ZONE) for z in labels], dtype=np.int64)
        self.zones = len(numbers)

    def of(self, m: Movable) -> Standing | None:
        """Return where the replicas of a pod's workload are; a bare pod has none."""
        if m.group is None:
            return None
        if m.group not in self._groups:
            self._groups[m.group] = self._counted(m)
        return self._groups[m.group]

    def _counted(self, m: Movable) -> Standing:
        rows = self._problem.row_of
        siblings = self._problem.snapshot.siblings(m.pod).values()
        there = (p for p in siblings if not (p.terminating or p.finished) and p.node in rows)
        hosts = Counter(rows[pod.node] for pod in there)
        zones: Counter[int] = Counter()
        for row, count in hosts.items():
            zones[int(self.zone[row])] += count
        del zones[NO_ZONE]
        return Standing.of(hosts, zones)


class Replicas:
    """The census, and whom the moves of a draft bring."""

    def __init__(self, census: Census) -> None:
        self._census = census
        self._hosts: dict[ControllerId, Counter[int]] = {}
        self._zones: dict[ControllerId, Counter[int]] = {}

    def hosts_free_of(self, m: Movable, gone: Collection[Movable] = ()) -> Flags | None:
        """Return the rows where one more replica is not more than any host has.

        Those that are gone by then do not count where they were.
        """
        standing = self._census.of(m)
        if standing is None or m.group is None:
            return None
        found = np.ones(self._census.zone.size, dtype=np.bool_)
        found[list(standing.full_hosts)] = False
        for row, more in self._hosts.get(m.group, _NOBODY).items():
            if more and standing.hosts[row] + more >= standing.most_on_host:
                found[row] = False
        left = Counter(q.row for q in gone if q.group == m.group) if gone else _NOBODY
        for row, fewer in left.items():
            there = standing.hosts[row] + self._hosts.get(m.group, _NOBODY)[row] - fewer
            found[row] = there < standing.most_on_host
        return found

    def zones_free_of(self, m: Movable) -> Flags | None:
        """Return the rows in zones that one more replica does not make the fullest."""
        standing, census = self._census.of(m), self._census
        if standing is None or m.group is None or not census.zones:
            return None
        by_zone = np.ones(census.zones + 1, dtype=np.bool_)
        by_zone[list(standing.full_zones)] = False
        for zone, more in self._zones.get(m.group, _NOBODY).items():
            if more and standing.zones[zone] + more >= standing.most_in_zone:
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
