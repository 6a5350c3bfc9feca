# SPDX-License-Identifier: Apache-2.0
"""Spread in several resources at once.

Leveling one resource after the other spends moves on the first that do nothing for the second.
Here every move is chosen by what it does to all of them: a window is chosen for each resource,
and of all pods and nodes of the pool the move that removes most of what is outside of any
window is made, until nothing is. It compares all pods with all nodes, so it is for pools of
modest size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Final

import numpy as np

from rebalancer.goals import PRECISION, Spread
from rebalancer.planner.constraints import worthwhile
from rebalancer.planner.instance import Flags, Floats, Ints
from rebalancer.planner.movable import Movable
from rebalancer.planner.pool_levels import EPSILON, Guard, Levels, Window
from rebalancer.planner.resources import some

PAIRS: Final = 100_000
"""Pairs of pod and node that are compared for one move at most."""
LOWS: Final = 4
"""Windows that are tried for each resource."""
TRIES: Final = 40
"""Moves that are asked about until one is allowed."""


class JointSpread:
    """Levels one pool in all resources that have a goal."""

    def __init__(
        self, levels: Levels, guard: Guard, goals: Sequence[Spread], min_gain: float
    ) -> None:
        self._levels = levels
        self._draft = levels.draft
        self._problem = levels.problem
        self._guard = guard
        self._goals = goals
        self._rows: Ints = self._problem.rows(goals[0])
        self._pods = list(islice(self._unmoved(), PAIRS // max(1, self._rows.size) + 1))
        self._min_gain = min_gain

    @property
    def feasible(self) -> bool:
        """Tell whether the pool is small enough."""
        return 0 < len(self._pods) * self._rows.size <= PAIRS

    def _unmoved(self) -> Iterator[Movable]:
        # Judged node by node: of a pool that is too large, only a few pods are.
        pods = (m for row in self._rows.tolist() for m in self._problem.movables(row))
        return (m for m in pods if m not in self._draft.moves)

    def fewest(self, most: int | None) -> dict[Movable, int] | None:
        """Return the fewest moves found that meet all goals; None if `most` is not undercut."""
        best: dict[Movable, int] | None = None
        for windows in self._windows():
            limit = len(best) if best is not None else most
            found = self._tried(windows, limit)
            if found is not None:
                best = found
            if not self._draft.evaluations.plenty:
                break
        return best

    def _tried(self, windows: Sequence[Window], limit: int | None) -> dict[Movable, int] | None:
        """Bring the pool into the windows, note the moves, and undo them."""
        made: list[Movable] = []
        # Pruning takes moves out again, so a few more than the limit may be made.
        while not self._met() and (limit is None or len(made) < limit + LOWS):
            choice = self._best(windows)
            if choice is None:
                break
            self._levels.put(*choice)
            made.append(choice[0])
        kept = self._pruned(made) if self._met() else made
        found = {m: self._draft.moves[m] for m in kept}
        met = self._met()
        for m in reversed(kept):
            self._levels.take_out(m)
        return found if met and (limit is None or len(found) < limit) else None

    def _pruned(self, made: Sequence[Movable]) -> list[Movable]:
        kept = []
        for m in made:
            row = self._levels.take_out(m)
            if not self._met():
                self._levels.put(m, row)
                kept.append(m)
        return kept

    def _met(self) -> bool:
        return all(self._levels.gap(goal) <= goal.points + PRECISION for goal in self._goals)

    def _best(self, windows: Sequence[Window]) -> tuple[Movable, int] | None:
        """Return the move that removes most of what is outside, of those that are allowed."""
        pods = [m for m in self._pods if m not in self._draft.moves]
        if not pods or self._draft.evaluations.left <= 0:
            return None
        removed = self._removed(windows, pods)
        allowed: dict[int, Flags] = {}
        for place in np.argsort(-removed, axis=None, kind="stable")[:TRIES]:
            number, column = divmod(int(place), self._rows.size)
            if removed[number, column] <= EPSILON:
                break
            m, row = pods[number], int(self._rows[column])
            if number not in allowed:
                allowed[number] = self._allowed(m, windows)
            if allowed[number][row] and self._guard.harmless([(m, row)]):
                return m, row
        return None

    def _allowed(self, m: Movable, windows: Sequence[Window]) -> Flags:
        axes = [window.axis for window in windows]
        mask = worthwhile(self._draft, m, axes, self._min_gain)
        return mask & self._draft.targets(m) if some(mask) else mask

    def _removed(self, windows: Sequence[Window], pods: Sequence[Movable]) -> Floats:
        """[P, R] return how many points each move brings nodes closer to their windows."""
        loads = np.array([m.load for m in pods])
        sources = np.array([m.row for m in pods])
        total = np.zeros((len(pods), self._rows.size))
        for window in windows:
            level = self._levels.percent[:, window.axis]
            points = 100.0 / self._problem.capacity[:, window.axis]
            load = loads[:, window.axis]
            left = level[sources] - load * points[sources]
            total += (window.outside(level[sources]) - window.outside(left))[:, None]
            there = level[self._rows]
            joined = there[None, :] + load[:, None] * points[self._rows][None, :]
            total += window.outside(there)[None, :] - window.outside(joined)
        total[sources[:, None] == self._rows[None, :]] = 0.0
        return total

    def _windows(self) -> Iterator[tuple[Window, ...]]:
        """Return combinations of windows, those that seem to need the fewest moves first."""
        return product(*(self._of(goal) for goal in self._goals))

    def _of(self, goal: Spread) -> list[Window]:
        axis, inside = goal.dimension.axis, self._problem.inside(goal)
        levels = self._levels.percent[:, axis][self._rows]
        lows = np.linspace(float(levels.min()), float(levels.max()) - goal.points, 17)
        ranked = sorted(lows.tolist(), key=lambda low: _effort(levels, low, goal.points))
        return [Window(self._rows, inside, axis, low, low + goal.points) for low in ranked[:LOWS]]


def _effort(levels: Floats, low: float, points: float) -> float:
    above = np.maximum(levels - low - points, 0.0).sum()
    below = np.maximum(low - levels, 0.0).sum()
    return float(max(above, below))
