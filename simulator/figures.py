# SPDX-License-Identifier: Apache-2.0
"""How evenly a cluster is utilized, and the results of moves: figures from the API.

Pure. Nothing is estimated: usage is as measured, and the result of a move is as recorded in
its Migration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from common.api.migrations import Outcome, Phase
from common.cache.snapshot import Snapshot
from common.cluster.migrations import MigrationRecord
from common.cluster.quantities import milli
from common.cluster.records import NodeName
from simulator.api import Json

HOT_PERCENT: Final = 80.0
_PARTS: Final = re.compile(r"([0-9]+)")
_NOT_ELSEWHERE: Final = frozenset({"", Outcome.AS_PLANNED, Outcome.NOT_REPLACED})


@dataclass(frozen=True, slots=True)
class Utilization:
    """CPU utilization in percent by node; nodes that are not measured are left out."""

    percent: Mapping[str, float]
    nodes: int
    ceiling: float = HOT_PERCENT

    @property
    def hot(self) -> int:
        """How many nodes are above the ceiling."""
        return sum(value > self.ceiling for value in self.percent.values())

    @property
    def spread(self) -> float | None:
        """Points between the most and the least utilized node."""
        values = self.percent.values()
        return round(max(values) - min(values), 1) if values else None

    @property
    def complete(self) -> bool:
        """Whether every node is measured."""
        return self.nodes > 0 and len(self.percent) >= self.nodes

    def is_level(self, points: float) -> bool:
        """Whether no node is hot and the spread is at most this many points."""
        return self.complete and not self.hot and (self.spread or 0.0) <= points


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The results of moves, counted."""

    evictions: int = 0
    as_planned: int = 0
    elsewhere: int = 0
    not_replaced: int = 0
    failed: int = 0
    """Failed, with or without an eviction."""
    again: int = 0
    """Replacements that were evicted themselves."""
    under_way: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The results of a demo."""

    before: Utilization
    after: Utilization
    tally: Tally
    lower_bound: int
    seconds: float

    def json(self) -> Json:
        """Return the figures under their published names."""
        return {
            "hotBefore": self.before.hot,
            "hotAfter": self.after.hot,
            "spreadBefore": self.before.spread,
            "spreadAfter": self.after.spread,
            "evictions": self.tally.evictions,
            "lowerBound": self.lower_bound,
            "landedAsPlanned": self.tally.as_planned,
            "landedElsewhere": self.tally.elsewhere,
            "evictedAgain": self.tally.again,
            "seconds": round(self.seconds, 1),
        }


def utilization(
    measured: Iterable[Json], snapshot: Snapshot, ceiling: float = HOT_PERCENT
) -> Utilization:
    """Return the CPU utilization of all nodes, from NodeMetrics."""
    found: dict[str, float] = {}
    for each in measured:
        view = snapshot.nodes.get(NodeName(each["metadata"]["name"]))
        if view is not None and view.node.allocatable.cpu_milli > 0:
            used = milli(each["usage"]["cpu"])
            found[each["metadata"]["name"]] = 100.0 * used / view.node.allocatable.cpu_milli
    by_name = sorted(found.items(), key=lambda each: natural(each[0]))
    return Utilization(dict(by_name), len(snapshot.nodes), ceiling)


def tally(migrations: Iterable[MigrationRecord]) -> Tally:
    """Count the results that are recorded in Migrations."""
    known = list(migrations)
    evicted = [each for each in known if each.evicted_s is not None]
    replaced = {each.replacement_uid for each in evicted}
    return Tally(
        evictions=len(evicted),
        as_planned=sum(each.outcome == Outcome.AS_PLANNED for each in evicted),
        elsewhere=sum(each.outcome not in _NOT_ELSEWHERE for each in evicted),
        not_replaced=sum(each.outcome == Outcome.NOT_REPLACED for each in evicted),
        failed=sum(each.phase == Phase.FAILED for each in known),
        again=sum(each.pod_uid in replaced for each in evicted),
        under_way=sum(each.open for each in known),
    )


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that puts node-2 before node-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _PARTS.split(name)]
