# SPDX-License-Identifier: Apache-2.0
"""The results of a contestant, from the observed pods. Pure.

Both contestants are compared by the same figures: the usage of pods is known from their
manifests, and every pod that left counts as an eviction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import pstdev

CEILING = 80.0
"""Percent of a node's CPU."""
THRESHOLD = 20.0
"""Points between the most and the least utilized node."""


@dataclass(frozen=True, slots=True)
class Goal:
    """When a cluster counts as level."""

    spread: float | None = None
    """Without it, no node above the ceiling is enough."""

    def met(self, moment: Moment) -> bool:
        """Return whether it is reached; not while a pod has no node yet."""
        wide = self.spread is not None and moment.spread > self.spread
        return not (moment.hot or moment.homeless or wide)


@dataclass(frozen=True, slots=True)
class Moment:
    """A cluster at one time."""

    seconds: float
    percent: Sequence[float]
    """CPU utilization of each node in percent."""
    homeless: int = 0
    """Pending pods."""

    @property
    def hot(self) -> int:
        return sum(value > CEILING for value in self.percent)

    @property
    def spread(self) -> float:
        return max(self.percent) - min(self.percent)

    @property
    def deviation(self) -> float:
        return pstdev(self.percent)


@dataclass(frozen=True, slots=True)
class Run:
    """One contestant in one scenario."""

    contestant: str
    scenario: str
    seed: int


@dataclass(frozen=True, slots=True)
class Evictions:
    """What was evicted, and what became of it."""

    total: int
    repeated: int
    """Evictions of pods that had replaced an evicted one."""
    landed: int | None = None
    """Replacements on their planned node; None without planned nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The result of one run."""

    run: Run
    bound: int
    evictions: Evictions
    level_s: float | None
    """When the goal was reached and kept; None if it was not."""
    before: Moment
    after: Moment

    @property
    def ratio(self) -> float | None:
        return self.evictions.total / self.bound if self.bound else None

    def as_json(self) -> Mapping[str, object]:
        """Return all figures by their JSON names."""
        return {
            "contestant": self.run.contestant,
            "scenario": self.run.scenario,
            "seed": self.run.seed,
            "bound": self.bound,
            "evictions": self.evictions.total,
            "evictionsPerBound": _rounded(self.ratio, 2),
            "repeatEvictions": self.evictions.repeated,
            "landedAsPlanned": self.evictions.landed,
            "secondsUntilLevel": _rounded(self.level_s, 1),
            "secondsWatched": _rounded(self.after.seconds, 1),
            "hotBefore": self.before.hot,
            "hotAfter": self.after.hot,
            "spreadBefore": _rounded(self.before.spread, 1),
            "spreadAfter": _rounded(self.after.spread, 1),
            "deviationBefore": _rounded(self.before.deviation, 1),
            "deviationAfter": _rounded(self.after.deviation, 1),
        }


def level_since(moments: Sequence[Moment], goal: Goal) -> float | None:
    """Return since when the goal held until the end."""
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
