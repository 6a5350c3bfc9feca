"""Whether moves are worth it.

Over the nodes that a chain touches, in the goal's resource, the utilisations afterwards,
sorted from the highest down, must be smaller than before by `minGain` points for each of its
evictions, at the first place where the two differ. So the highest of the touched nodes comes
down, or stays and the next one comes down: a pod never goes back and forth, and a swap that
levels two nodes still counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rebalancer.planner.draft import Draft
from rebalancer.planner.instance import Flags, Floats
from rebalancer.planner.movable import Movable
from rebalancer.reasons import Refusal

_SAME = 1e-6


def gained(before: Floats, after: Floats) -> float:
    """Return by how many points the first of the sorted utilisations that differs is lower."""
    fall = np.sort(before)[::-1] - np.sort(after)[::-1]
    differs = np.flatnonzero(np.abs(fall) > _SAME)
    return float(fall[differs[0]]) if differs.size else 0.0


def not_worth_it(
    before: Floats, after: Floats, *, axes: Sequence[int], evictions: int, min_gain: float
) -> Refusal | None:
    """Return why a chain is not worth it; before and after are [touched, 2] in percent."""
    gain = max((gained(before[:, axis], after[:, axis]) for axis in axes), default=0.0)
    needed = min_gain * evictions
    if gain >= needed - _SAME and gain > 0.0:
        return None
    moves = "1 eviction" if evictions == 1 else f"{evictions} evictions"
    words = f"gains {gain:.1f} points of utilisation for {moves}, {needed:.1f} are asked for"
    return Refusal("NotWorthIt", words, for_good=False)


def worthwhile(draft: Draft, m: Movable, axes: Sequence[int], min_gain: float) -> Flags:
    """Return the rows to which moving one pod alone would be worth it."""
    problem = draft.problem
    found = np.zeros(len(problem.nodes), dtype=np.bool_)
    for axis in axes:
        high = 100.0 * draft.load[m.row, axis] / problem.capacity[m.row, axis]
        low = high - 100.0 * m.load[axis] / problem.capacity[m.row, axis]
        after = 100.0 * (draft.load[:, axis] + m.load[axis]) / problem.capacity[:, axis]
        fall = high - np.maximum(low, after)
        found |= (fall >= min_gain - _SAME) & (fall > _SAME)
    return found
