# SPDX-License-Identifier: Apache-2.0
"""How many replicas of each workload were ever missing at the same time.

A replica counts as available while it is Ready and not terminating, as for a PDB. Every watch
event counts, so a shortage between two observations is not missed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from common.cache.snapshot import Snapshot
from common.cluster.records import ControllerId, PodRecord, PodUid


@dataclass(frozen=True, slots=True, order=True)
class Shortage:
    """A workload that was short of replicas."""

    workload: str
    most: int
    replicas: int


class Availability:
    """Counts available replicas by owner, and remembers the fewest since the beginning."""

    def __init__(self) -> None:
        self._available: dict[ControllerId, set[PodUid]] = defaultdict(set)
        self._at_first: dict[ControllerId, int] = {}
        self._fewest: dict[ControllerId, int] = {}

    def begin(self) -> None:
        """Use what is available now as the full number."""
        self._at_first = {owner: len(pods) for owner, pods in self._available.items()}
        self._fewest = dict(self._at_first)

    def on_pod(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """Handle a change of a pod."""
        pod = new or old
        owner = pod.controller_id if pod is not None else None
        if pod is None or owner is None:
            return
        if new is not None and new.ready and not new.terminating:
            self._available[owner].add(new.uid)
        else:
            self._available[owner].discard(pod.uid)
        if owner in self._fewest:
            self._fewest[owner] = min(self._fewest[owner], len(self._available[owner]))

    def shortages(self, snapshot: Snapshot) -> list[Shortage]:
        """Return the workloads that were short of replicas, by name."""
        found = [
            Shortage(_name(owner, snapshot), whole - self._fewest[owner], whole)
            for owner, whole in self._at_first.items()
            if self._fewest[owner] < whole
        ]
        return sorted(found)


def _name(owner: ControllerId, snapshot: Snapshot) -> str:
    workload = snapshot.workload(owner)
    if workload is None:
        return owner.uid
    above = workload.owner.within(owner.namespace) if workload.owner is not None else None
    return (snapshot.workload(above) or workload).name


def describe_shortages(shortages: list[Shortage]) -> str:
    """Return one line: `replicas unavailable at most: 2 of 5 (web), 1 of 5 (api)`."""
    if not shortages:
        return "every workload kept all replicas"
    groups: Mapping[tuple[int, int], list[str]] = defaultdict(list)
    for each in shortages:
        groups[each.most, each.replicas].append(each.workload)
    parts = [
        f"{most} of {replicas} ({', '.join(names)})"
        for (most, replicas), names in sorted(groups.items(), reverse=True)
    ]
    return f"replicas unavailable at most: {', '.join(parts)}"
