"""The utilisation of all nodes, kept in step with the moves of a draft.

Levelling asks for it many times between two moves, each of which changes two nodes only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rebalancer.goals import Dimension, Spread
from rebalancer.planner.draft import Draft
from rebalancer.planner.instance import CPU, MEMORY, Flags, Floats, Ints
from rebalancer.planner.movable import Movable

AXES: Final = {Dimension.CPU: CPU, Dimension.MEMORY: MEMORY}
EPSILON: Final = 1e-6

# Small enough that a difference in the second key never outweighs one in the first.
_SECOND: Final = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Where every node of a pool has to be, in one resource."""

    rows: Ints
    inside: Flags
    """[N] the same rows as flags."""
    axis: int
    low: float
    high: float

    def outside(self, levels: Floats) -> Floats:
        """Return by how many points nodes are above or below."""
        found: Floats = np.maximum(levels - self.high, 0.0) + np.maximum(self.low - levels, 0.0)
        return found


class Levels:
    """A draft, and what its moves make of the nodes in percent."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.problem = draft.problem
        self.percent: Floats = draft.percent()
        self._points: Floats = 100.0 / draft.problem.capacity

    def put(self, m: Movable, row: int) -> None:
        """Move a pod to a node."""
        self.draft.put(m, row)
        self._refresh(m.row, row)

    def take_out(self, m: Movable) -> int:
        """Leave a pod where it was; return where it would have gone."""
        row = self.draft.take_out(m)
        self._refresh(m.row, row)
        return row

    def back_to(self, before: dict[Movable, int]) -> None:
        """Undo what was not among these moves."""
        for m in [m for m in self.draft.moves if m not in before]:
            self.take_out(m)

    def left(self, m: Movable, axis: int) -> float:
        """Return the level of a pod's node without it."""
        return float(self.percent[m.row, axis] - m.load[axis] * self._points[m.row, axis])

    def without(self, row: int, loads: Floats, axis: int) -> Floats:
        """Return the level of a node without one or another of these loads."""
        found: Floats = self.percent[row, axis] - loads * self._points[row, axis]
        return found

    def joined(self, m: Movable, rows: Ints, axis: int) -> Floats:
        """Return the levels of nodes with a pod more."""
        found: Floats = self.percent[:, axis][rows] + m.load[axis] * self._points[:, axis][rows]
        return found

    def gap(self, goal: Spread, percent: Floats | None = None) -> float:
        """Return by how much the highest node is above the lowest, or above the others' mean."""
        rows = self.problem.rows(goal)
        if rows.size < 2:
            return 0.0
        levels = (self.percent if percent is None else percent)[:, AXES[goal.dimension]][rows]
        highest = float(levels.max())
        if goal.fill_low:
            return highest - float(levels.min())
        return highest - (float(levels.sum()) - highest) / (rows.size - 1)

    def _refresh(self, *rows: int) -> None:
        for row in rows:
            self.percent[row] = 100.0 * self.draft.load[row] / self.problem.capacity[row]


def smallest(first: Floats, second: Floats, count: int) -> Ints:
    """Return the indices of the smallest few in their order, by one key and then another."""
    key = np.round(first, 6) + _SECOND * second
    few = np.argpartition(key, count)[:count] if key.size > count else np.arange(key.size)
    return few[np.lexsort((few, key[few]))]
