# SPDX-License-Identifier: Apache-2.0
"""How often in a row something was seen to be wrong.

One sample proves little, so a goal counts as broken only after it was broken in several
new samples (three by default), and as met again after two good ones; a single good sample
in between neither counts nor clears. Looking twice at the same sample counts once.

The count starts over when what is observed is no longer the same: after our own moves
(`restart`), when pods came or left that make ten points of allocatable between two samples,
and when a goal is broken or met again by a jump of that size. Samples of a node that is
busy jump as well, while it is above its ceiling all the time: they count, otherwise a node
would never be relieved whose load is high and restless.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

CHANGE_PERCENT: Final = 10.0


@dataclass(slots=True)
class _Streak:
    levels: tuple[float, ...]
    sample_s: float | None = None
    broken: bool = False
    bad: int = 0
    good: int = 0
    standing: bool = False

    def restart(self) -> None:
        self.bad = self.good = 0
        self.standing = False


class Observations(Generic[K]):
    """Counts, per thing observed: a node and its goal, or the ends of a pool."""

    def __init__(self, needed: int = 3, to_clear: int = 2) -> None:
        self._needed = needed
        self._to_clear = to_clear
        self._streaks: dict[K, _Streak] = {}

    def observe(
        self, key: K, *, broken: bool, sample_s: float | None, levels: tuple[float, ...]
    ) -> bool:
        """Take one observation into account and return whether the goal counts as broken now.

        `sample_s` tells samples apart: when the newest one ended, for a pair the older of
        the two ends. Without samples, where load is what pods ask for, every observation counts.
        `levels` are the percentages of allocatable that were observed.
        """
        streak = self._streaks.setdefault(key, _Streak(levels))
        same_sample = sample_s is not None and sample_s == streak.sample_s
        if _differs(streak.levels, levels) and (same_sample or broken != streak.broken):
            streak.restart()
        if not same_sample:
            streak.sample_s, streak.levels, streak.broken = sample_s, levels, broken
            self._count(streak, broken=broken)
        return streak.standing

    def restart(self, key: K) -> None:
        """Reset the count after a change; the current sample is from before it."""
        if key in self._streaks:
            self._streaks[key].restart()

    def count(self, key: K) -> int:
        """Return how many bad samples have been counted."""
        streak = self._streaks.get(key)
        return 0 if streak is None else streak.bad

    def keep(self, keys: Collection[K]) -> None:
        """Forget everything but these."""
        self._streaks = {key: streak for key, streak in self._streaks.items() if key in keys}

    def _count(self, streak: _Streak, *, broken: bool) -> None:
        if broken:
            streak.bad += 1
            streak.good = 0
        else:
            streak.good += 1
            if streak.good >= self._to_clear:
                streak.bad = 0
        streak.standing = streak.bad >= self._needed


def _differs(old: tuple[float, ...], new: tuple[float, ...]) -> bool:
    return any(abs(a - b) > CHANGE_PERCENT for a, b in zip(old, new, strict=True))
