"""How evenly a cluster is used, and what moves have come to: figures from what the API says.

Pure. Nothing is assumed: usage is what was measured, and what became of a move is what its
Migration says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from common.cluster.migrations import MigrationRecord, Outcome, Phase
from common.cluster.quantity import milli
from common.cluster.records import NodeName
from common.cluster.snapshot import Snapshot
from simulator.api import Json

HOT_PERCENT: Final = 80.0
_PARTS: Final = re.compile(r"([0-9]+)")
_NOT_ELSEWHERE: Final = frozenset({"", Outcome.AS_PLANNED, Outcome.NOT_REPLACED})


@dataclass(frozen=True, slots=True)
class Look:
    """Percent of CPU in use, by node; nodes that are not measured are left out."""

    percent: Mapping[str, float]
    nodes: int
    ceiling: float = HOT_PERCENT

    @property
    def hot(self) -> int:
        """How many nodes are above the mark."""
        return sum(value > self.ceiling for value in self.percent.values())

    @property
    def spread(self) -> float | None:
        """Points between the most and the least used node."""
        values = self.percent.values()
        return round(max(values) - min(values), 1) if values else None

    @property
    def complete(self) -> bool:
        """Whether every node is measured."""
        return self.nodes > 0 and len(self.percent) >= self.nodes

    def is_level(self, points: float) -> bool:
        """Whether no node is hot and the highest is within so many points of the lowest."""
        return self.complete and not self.hot and (self.spread or 0.0) <= points


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What moves have come to."""

    evictions: int = 0
    as_planned: int = 0
    elsewhere: int = 0
    not_replaced: int = 0
    failed: int = 0
    """Given up, with or without an eviction."""
    again: int = 0
    """Replacements that were evicted themselves."""
    under_way: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a demo came to."""

    before: Look
    after: Look
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


def look(measured: Iterable[Json], snapshot: Snapshot, ceiling: float = HOT_PERCENT) -> Look:
    """Return how much of each node's CPU is in use, from NodeMetrics."""
    found: dict[str, float] = {}
    for each in measured:
        view = snapshot.nodes.get(NodeName(each["metadata"]["name"]))
        if view is not None and view.node.allocatable.cpu_milli > 0:
            used = milli(each["usage"]["cpu"])
            found[each["metadata"]["name"]] = 100.0 * used / view.node.allocatable.cpu_milli
    by_name = sorted(found.items(), key=lambda each: natural(each[0]))
    return Look(dict(by_name), len(snapshot.nodes), ceiling)


def tally(migrations: Iterable[MigrationRecord]) -> Tally:
    """Count what Migrations say became of their pods."""
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
