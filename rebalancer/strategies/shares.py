# SPDX-License-Identifier: Apache-2.0
"""How many replicas of a workload a host or a zone may hold, in numbers only.

A host or zone takes at most one replica more than an even share, and never all of them; what is
there already may stay. Domains that hold a replica count as well as those that could take one,
but not those that are being emptied: pods go to what is left.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from math import ceil
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
NO_ZONE: Final = -1
UNLIMITED: Final = 1 << 30


def fair_share(replicas: int, domains: int) -> int:
    """Return how many replicas one of several domains may hold."""
    share = ceil(replicas / max(1, domains)) + 1
    return min(share, replicas - 1) if replicas > 1 and domains > 1 else share


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplicaRules:
    """Where the replicas of one workload are, and how many a host or zone may hold."""

    hosts: Ints
    """[N] how many each node holds."""
    eligible: Flags
    """[N] where its pods could run, room aside."""
    zone: Ints
    """[N] the zone of each node, or `NO_ZONE`."""
    per_host: int | None = None
    """How many a host may hold whatever is emptied; None for a fair share."""
    per_zone: int | None = None
    free: Flags | None = None
    """[N] where an even share of a host is counted that `Duplicates` leaves it; None without it."""
    _known: dict[frozenset[int], tuple[int, int]] = field(default_factory=dict)

    def open_to(self, home: int, come: Arrivals, emptied: Collection[int]) -> Flags:
        """[N] return where one more replica may go that leaves its home.

        Those that leave are not subtracted: they may still be there when others arrive.
        """
        per_host, per_zone = self._most(frozenset(emptied))
        found: Flags = self.hosts + come.hosts < per_host
        zoned = self.zone != NO_ZONE
        if zoned.any():
            held = np.bincount(self.zone[zoned], self.hosts[zoned], minlength=come.zones.size)
            found &= (
                ~zoned | (self.zone == self.zone[home]) | (held + come.zones < per_zone)[self.zone]
            )
        return found

    def _most(self, emptied: frozenset[int]) -> tuple[int, int]:
        """Return how many replicas a host and a zone may hold once these nodes are emptied."""
        if emptied not in self._known:
            self._known[emptied] = self._counted(emptied)
        return self._known[emptied]

    def _counted(self, emptied: frozenset[int]) -> tuple[int, int]:
        gone, replicas, holds = list(emptied), int(self.hosts.sum()), self.hosts > 0
        rows = self.eligible.copy()
        rows[gone] = False
        rows |= holds
        zones = np.unique(self.zone[rows & (self.zone != NO_ZONE)]).size
        per_host, per_zone = self.per_host, self.per_zone
        if per_host is None:
            per_host = fair_share(replicas, int(np.count_nonzero(rows)))
        if per_zone is None:
            per_zone = fair_share(replicas, zones)
        if self.free is not None:
            taking = self.free | holds
            taking[gone] = False
            per_host = min(per_host, ceil(replicas / max(1, int(np.count_nonzero(taking)))))
        return per_host, per_zone


class Arrivals:
    """The replicas of one workload that come to hosts, and from elsewhere to zones."""

    def __init__(self, rules: ReplicaRules) -> None:
        self._zone = rules.zone
        self.hosts: Ints = np.zeros(rules.zone.size, dtype=np.int64)
        self.zones: Ints = np.zeros(int(rules.zone.max(initial=NO_ZONE)) + 1, dtype=np.int64)

    def shift(self, home: int, target: int, sign: int) -> None:
        """Note that a replica comes, or does not after all."""
        self.hosts[target] += sign
        zone = int(self._zone[target])
        if zone not in (NO_ZONE, int(self._zone[home])):
            self.zones[zone] += sign

    def copy(self, rules: ReplicaRules) -> Arrivals:
        found = Arrivals(rules)
        found.hosts, found.zones = self.hosts.copy(), self.zones.copy()
        return found
