"""What a contestant came to, from what was seen of the pods. Pure.

Both contestants are judged by the same figures: what pods really use is known from their
manifests, and every pod that left counts as an eviction, whoever says what about it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import pstdev

CEILING = 80.0
"""Percent of a node's CPU."""
THRESHOLD = 20.0
"""Points between the most and the least used node."""


@dataclass(frozen=True, slots=True)
class Goal:
    """When a cluster counts as level."""

    spread: float | None = None
    """Without it, no node above the ceiling is enough."""

    def met(self, moment: Moment) -> bool:
        """Tell whether it is reached; a pod without a node has its load still to come."""
        wide = self.spread is not None and moment.spread > self.spread
        return not (moment.hot or moment.homeless or wide)


@dataclass(frozen=True, slots=True)
class Moment:
    """A cluster at one time."""

    seconds: float
    percent: Sequence[float]
    """What pods use of each node's CPU."""
    homeless: int = 0
    """Pods that no scheduler has placed yet."""

    @property
    def hot(self) -> int:
        return sum(value > CEILING for value in self.percent)

    @property
    def spread(self) -> float:
        return max(self.percent) - min(self.percent)

    @property
    def deviation(self) -> float:
        return pstdev(self.percent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One contestant's result in one scenario."""

    contestant: str
    scenario: str
    seed: int
    bound: int
    evictions: int
    repeats: int
    """Evictions of pods that had replaced an evicted one."""
    landed: int | None
    """Replacements on their planned node; nothing for whoever plans none."""
    level_s: float | None
    """When the goal was reached for good; nothing if it was not."""
    watched_s: float
    before: Moment
    after: Moment

    @property
    def ratio(self) -> float | None:
        return self.evictions / self.bound if self.bound else None

    def as_json(self) -> Mapping[str, object]:
        """Return all figures by the names that programs read."""
        return {
            "contestant": self.contestant,
            "scenario": self.scenario,
            "seed": self.seed,
            "bound": self.bound,
            "evictions": self.evictions,
            "evictionsPerBound": _rounded(self.ratio, 2),
            "repeatEvictions": self.repeats,
            "landedAsPlanned": self.landed,
            "secondsUntilLevel": _rounded(self.level_s, 1),
            "secondsWatched": _rounded(self.watched_s, 1),
            "hotBefore": self.before.hot,
            "hotAfter": self.after.hot,
            "spreadBefore": _rounded(self.before.spread, 1),
            "spreadAfter": _rounded(self.after.spread, 1),
            "deviationBefore": _rounded(self.before.deviation, 1),
            "deviationAfter": _rounded(self.after.deviation, 1),
        }


def level_since(moments: Sequence[Moment], goal: Goal) -> float | None:
    """Return when the goal was reached for good: it held from then on until the end."""
    since = None
    for moment in moments:
        if not goal.met(moment):
            since = None
        elif since is None:
            since = moment.seconds
    return since


def repeats(start: Collection[str], left: Collection[str]) -> int:
    """Count the evicted pods that were not there at the start: they replaced an evicted one."""
    return len(set(left) - set(start))


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
