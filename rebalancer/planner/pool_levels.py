# SPDX-License-Identifier: Apache-2.0
"""The utilization of pools while they are leveled, and what leveling must not undo.

Leveling asks for the levels of nodes many times between two moves, each of which changes two
nodes only, so they are kept in step with the draft. A guard rejects moves that would undo
what is level already: pools that were level before, and windows that were reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rebalancer.goals import PRECISION, Dimension, Spread
from rebalancer.planner.draft import Draft
from rebalancer.planner.instance import Flags, Floats, Ints
from rebalancer.planner.movable import Movable
from rebalancer.planner.pool_spreads import pool_spreads
from rebalancer.planner.problem import Problem, width

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

    def amount(self, level: float) -> float:
        """Return the same of one node, without the cost of an array."""
        return max(level - self.high, 0.0) + max(self.low - level, 0.0)


class Levels:
    """A draft, and what its moves make of the nodes in percent."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.problem = draft.problem
        self.percent: Floats = draft.percent()
        self._points: Floats = 100.0 / draft.problem.capacity
        self._ends: dict[tuple[int, int], tuple[float, float]] = {}
        """The lowest and highest level of pools since the last move."""

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

    def gap(self, goal: Spread) -> float:
        """Return by how much the highest node is above the lowest, or above the others' mean."""
        if goal.fill_low and self.problem.rows(goal).size > 1:
            lowest, highest = self.ends(goal)
            return highest - lowest
        levels = self.percent[:, goal.dimension.axis]
        return width(levels[self.problem.rows(goal)], fill_low=goal.fill_low)

    def gap_with(self, goal: Spread, changed: Mapping[int, Floats]) -> float:
        """Return the same with other levels of some nodes."""
        axis, inside = goal.dimension.axis, self.problem.inside(goal)
        if goal.fill_low and self.problem.rows(goal).size > 1:
            lowest, highest = self.ends(goal)
            before = [float(self.percent[row, axis]) for row in changed if inside[row]]
            # Unless one of these nodes is at an end, the ends stay where they are or move out.
            if lowest not in before and highest not in before:
                after = [float(changed[row][axis]) for row in changed if inside[row]]
                return max(highest, *after) - min(lowest, *after) if after else highest - lowest
        levels = self.percent[:, axis].copy()
        for row, level in changed.items():
            levels[row] = level[axis]
        return width(levels[self.problem.rows(goal)], fill_low=goal.fill_low)

    def ends(self, goal: Spread) -> tuple[float, float]:
        """Return the lowest and the highest level of a pool."""
        key = (id(goal.nodes), goal.dimension.axis)
        found = self._ends.get(key)
        if found is None:
            levels = self.percent[:, key[1]][self.problem.rows(goal)]
            found = self._ends[key] = float(levels.min(initial=np.inf)), float(levels.max())
        return found

    def _refresh(self, *rows: int) -> None:
        for row in rows:
            self.percent[row] = 100.0 * self.draft.load[row] / self.problem.capacity[row]
        self._ends.clear()


def smallest(first: Floats, second: Floats, count: int) -> Ints:
    """Return the indices of the smallest few in their order, by one key and then another."""
    key = first.round(6) + _SECOND * second
    if key.size <= count:
        return key.argsort(kind="stable")
    few = key.argpartition(count)[:count]
    return few[np.lexsort((few, key[few]))]


class Guard:
    """Judges moves by what they would do to other pools and resources."""

    def __init__(self, levels: Levels, spreads: Sequence[Spread]) -> None:
        self.spreads = tuple(spreads)
        """The spreads that hold now and must not be lost."""
        self._levels = levels
        self._problem = levels.problem
        self._kept: dict[tuple[str, Dimension], Window] = {}

    def keep(self, goal: Spread, window: Window) -> None:
        """Let the pool stay inside the window that it has reached."""
        self._kept[goal.pool, goal.dimension] = window

    def forget(self, goal: Spread) -> None:
        self._kept.pop((goal.pool, goal.dimension), None)

    def harmless(self, moves: Sequence[tuple[Movable, int]]) -> bool:
        """Tell whether pools that are level stay so, and the worst node is no worse in the end."""
        levels, problem = self._levels, self._problem
        touched = sorted({row for m, target in moves for row in (m.row, target)})
        after = {row: levels.percent[row].copy() for row in touched}
        for m, row in moves:
            after[m.row] -= 100.0 * m.load / problem.capacity[m.row]
            after[row] += 100.0 * m.load / problem.capacity[row]
        worst = max(float(after[row].max()) for _, row in moves)
        return worst <= problem.worst + EPSILON and all(
            levels.gap_with(goal, after) <= max(levels.gap(goal), goal.points) + EPSILON
            for goal in self.spreads
        )

    def keeping(self, m: Movable, rows: Ints) -> Flags:
        """Tell to which rows a pod can go without leaving a window reached before."""
        found = np.ones(rows.size, dtype=np.bool_)
        for window in self._kept.values():
            before = self._levels.percent[:, window.axis]
            if window.inside[m.row]:
                left = self._levels.left(m, window.axis)
                if left < min(window.low, float(before[m.row])):
                    return np.zeros(rows.size, dtype=np.bool_)
            after = self._levels.joined(m, rows, window.axis)
            found &= ~window.inside[rows] | (after <= np.maximum(window.high, before[rows]))
        for goal in self.spreads:
            if goal.fill_low:
                found &= self._staying(goal, m, rows)
        return found

    def _staying(self, goal: Spread, m: Movable, rows: Ints) -> Flags:
        """Tell to which rows a pod can go and a pool stays as level as it may be."""
        axis, compared = goal.dimension.axis, self._problem.inside(goal)
        lowest, top = self._levels.ends(goal)
        span = top - lowest
        if compared[m.row]:
            lowest = min(lowest, self._levels.left(m, axis))
        highest = lowest + max(goal.points, span) + EPSILON
        found: Flags = ~compared[rows] | (self._levels.joined(m, rows, axis) <= highest)
        return found


def guards(problem: Problem) -> tuple[Spread, ...]:
    """Return the spreads that hold now and must not be lost by what else is moved."""
    if not problem.goals:
        return ()
    spreads = pool_spreads(problem)
    return tuple(g for g in spreads if problem.gap(g, problem.load) <= g.points + PRECISION)
