"""Spread: brings the nodes of a pool within so many points of each other.

A level is chosen, and with it the window that every node of the pool has to be in. Of the
moves from nodes above the window, or to nodes below it, the one that removes most of what is
outside is made, until nothing is. Where pods are too large for that, two nodes swap. A few
levels are tried; the one that meets the goal with the fewest moves stays. Where the low end
does not count, only nodes too far above the mean of the others give.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from common.config import Strategy
from rebalancer.goals import Dimension, Spread
from rebalancer.planner.draft import Draft
from rebalancer.planner.explain import gap
from rebalancer.planner.gain import worthwhile
from rebalancer.planner.instance import CPU, MEMORY, Flags, Floats, Ints
from rebalancer.planner.movable import Movable
from rebalancer.planner.problem import Problem
from rebalancer.strategies.pools import fills_low

AXES: Final = {Dimension.CPU: CPU, Dimension.MEMORY: MEMORY}
EPSILON: Final = 1e-6
PODS: Final = 8
"""Pods of a node that are looked at for one move, the most suitable first."""
FEW: Final = 4
"""The same in large pools."""
ENDS: Final = 4
"""Nodes at either end that are looked at for one move."""
LARGE: Final = 500
"""In pools with more nodes only the most promising level is tried."""
LEVELS: Final = 5

Choice = tuple[float, Movable, int]
"""What a move removes, and the move."""


@dataclass(frozen=True, slots=True)
class Window:
    """Where every node of a pool has to be, in one resource."""

    rows: Ints
    axis: int
    low: float
    high: float

    def outside(self, levels: Floats) -> Floats:
        """Return by how many points nodes are above or below."""
        found: Floats = np.maximum(levels - self.high, 0.0) + np.maximum(self.low - levels, 0.0)
        return found


class Leveling:
    """Levels the pools of one draft."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.problem = draft.problem
        self._min_gain = draft.problem.demand.settings.min_gain
        self._kept: dict[tuple[str, Dimension], Window] = {}
        self._moved: set[Movable] = set()
        self._guarded = guards(self.problem)
        self.swaps: list[tuple[Movable, Movable]] = []
        """Moves that make sense only together."""

    def run(self) -> set[Movable]:
        """Level every pool that is to be levelled; return the pods that move for it."""
        stated = sorted(self.problem.spreads, key=lambda goal: (goal.pool, goal.dimension))
        guarded = self._guarded
        self._level_all((*stated, *guarded))
        if not self._met(stated) and self.draft.effort.plenty:
            self._regardless(stated, guarded)
        return {m for m in self._moved if m in self.draft.moves}

    def _level_all(self, goals: Sequence[Spread]) -> None:
        for goal in goals:
            while self._level(goal):
                continue

    def _regardless(self, stated: Sequence[Spread], guarded: tuple[Spread, ...]) -> None:
        """Put goals first and restore what was level afterwards; all of that, or nothing."""
        before = dict(self.draft.moves)
        self._guarded = ()
        self._level_all((*stated, *guarded))
        if not self._met((*stated, *guarded)):
            for m in [m for m in self.draft.moves if m not in before]:
                self.draft.take_out(m)

    def _met(self, goals: Sequence[Spread]) -> bool:
        return all(
            gap(goal, self.problem, self.draft.load) <= goal.points + EPSILON for goal in goals
        )

    def _level(self, goal: Spread) -> bool:
        """Bring a pool closer together; tell whether another round may bring it further."""
        self._kept.pop((goal.pool, goal.dimension), None)
        rows = self.problem.rows(goal)
        if rows.size < 2 or gap(goal, self.problem, self.draft.load) <= goal.points + EPSILON:
            return False
        best: tuple[tuple[bool, float, int], dict[Movable, int], Window] | None = None
        for window in self._windows(goal, rows):
            made = self._reach(goal, window)
            left = max(0.0, gap(goal, self.problem, self.draft.load) - goal.points)
            rank = (left > EPSILON, round(left, 6), len(made))
            if best is None or rank < best[0]:
                best = (rank, {m: self.draft.moves[m] for m in made}, window)
            for m in reversed(made):
                self.draft.take_out(m)
        assert best is not None
        for m, row in best[1].items():
            self.draft.put(m, row)
        self._moved |= best[1].keys()
        self._kept[goal.pool, goal.dimension] = best[2]
        return bool(best[1]) and best[0][0]

    def _windows(self, goal: Spread, rows: Ints) -> Iterator[Window]:
        """Return the levels to try, those that seem to need the fewest moves first."""
        axis = AXES[goal.dimension]
        levels = self.draft.percent()[rows, axis]
        if not goal.fill_low:
            # Moving within the pool hardly changes the mean.
            mean = float(levels.mean())
            size = rows.size
            high = mean + goal.points * (size - 1) / size
            yield Window(rows, axis, -np.inf, high)
            return
        lowest, highest = float(levels.min()), float(levels.max()) - goal.points
        choices = sorted(
            np.linspace(lowest, highest, 17), key=lambda low: self._effort(levels, low, goal.points)
        )
        tried = 1 if rows.size > LARGE else LEVELS
        for low in choices[:tried]:
            yield Window(rows, axis, float(low), float(low) + goal.points)

    @staticmethod
    def _effort(levels: Floats, low: float, points: float) -> tuple[float, float]:
        above = np.maximum(levels - low - points, 0.0)
        below = np.maximum(low - levels, 0.0)
        return max(float(above.sum()), float(below.sum())), float(above.sum() + below.sum())

    def _reach(self, goal: Spread, window: Window) -> list[Movable]:
        """Make moves until the pool is inside the window, or nothing helps any more."""
        made: list[Movable] = []
        while gap(goal, self.problem, self.draft.load) > goal.points + EPSILON:
            if self.draft.effort.left <= 0:
                break
            choice = self._best_move(window)
            moves = [choice[1:]] if choice is not None else self._swap(window)
            if not moves:
                break
            for m, row in moves:
                self.draft.put(m, row)
                made.append(m)
            if len(moves) == 2:
                self.swaps.append((moves[0][0], moves[1][0]))
        return self._pruned(goal, made)

    def _pruned(self, goal: Spread, made: list[Movable]) -> list[Movable]:
        """Take out moves that later ones made unnecessary."""
        if gap(goal, self.problem, self.draft.load) > goal.points + EPSILON:
            return made
        kept = []
        for m in made:
            row = self.draft.take_out(m)
            if gap(goal, self.problem, self.draft.load) > goal.points + EPSILON:
                self.draft.put(m, row)
                kept.append(m)
        return kept

    def _best_move(self, window: Window) -> Choice | None:
        levels = self.draft.percent()[window.rows, window.axis]
        order = np.lexsort((window.rows, -levels))
        sources = window.rows[order]
        above = sources[levels[order] > window.high + EPSILON]
        for row in above[:ENDS]:
            found = self._from(window, int(row))
            if found is not None:
                return found
        if above.size or not (levels < window.low - EPSILON).any():
            return None
        choices = [self._from(window, int(row)) for row in sources[:ENDS]]
        return max((c for c in choices if c is not None), key=_worth, default=None)

    def _from(self, window: Window, source: int) -> Choice | None:
        """Return the move away from a node that removes most of what is outside."""
        choices = [self._to(window, m) for m in self._suitable(window, source)]
        return max((c for c in choices if c is not None), key=_worth, default=None)

    def _suitable(self, window: Window, source: int) -> list[Movable]:
        """Return the pods of a node whose leaving brings it closest to the window."""
        axis, moved = window.axis, self.draft.moves
        pods = [m for m in self.problem.movables(source) if m not in moved]
        level = float(self.draft.percent()[source, axis])
        scale = 100.0 / self.problem.capacity[source, axis]
        after = np.array([level - scale * m.load[axis] for m in pods])
        outside = window.outside(after)
        # Of those that overshoot nothing, the largest moves most.
        order = sorted(range(len(pods)), key=lambda i: (outside[i], pods[i].cost, after[i], i))
        wanted = PODS if window.rows.size <= LARGE else FEW
        return [pods[i] for i in order[:wanted]]

    def _to(self, window: Window, m: Movable) -> Choice | None:
        """Return the best target for a pod and what the move removes."""
        draft, axis = self.draft, window.axis
        mask = draft.targets(m)
        inside = np.zeros(len(self.problem.nodes), dtype=np.bool_)
        inside[window.rows] = True
        mask &= inside & worthwhile(draft, m, (axis,), self._min_gain) & self._keeping(m)
        rows = np.flatnonzero(mask)
        if not rows.size:
            return None
        before = draft.percent()[:, axis]
        after = before[rows] + 100.0 * m.load[axis] / self.problem.capacity[rows, axis]
        left = before[m.row] - 100.0 * m.load[axis] / self.problem.capacity[m.row, axis]
        removed = window.outside(before[rows]) - window.outside(after)
        total = (
            removed + window.outside(before[m.row : m.row + 1]) - window.outside(np.array([left]))
        )
        for best in np.lexsort((rows, after, -np.round(total, 6)))[:ENDS]:
            if total[best] <= EPSILON:
                return None
            if self._harmless([(m, int(rows[best]))]):
                return float(total[best]), m, int(rows[best])
        return None

    def _harmless(self, moves: Sequence[tuple[Movable, int]]) -> bool:
        """Tell whether pools that are level stay so, and the worst node is no worse in the end."""
        before = [gap(goal, self.problem, self.draft.load) for goal in self._guarded]
        for m, row in moves:
            self.draft.put(m, row)
        after = [gap(goal, self.problem, self.draft.load) for goal in self._guarded]
        rows = [row for _, row in moves]
        worst = float((100.0 * self.draft.load[rows] / self.problem.capacity[rows]).max())
        for m, _ in moves:
            self.draft.take_out(m)
        return worst <= self.problem.worst + EPSILON and all(
            then <= max(now, goal.points) + EPSILON
            for goal, now, then in zip(self._guarded, before, after, strict=True)
        )

    def _keeping(self, m: Movable) -> Flags:
        """Return the rows to which a pod can go without leaving a window reached before."""
        found = np.ones(len(self.problem.nodes), dtype=np.bool_)
        for window in self._kept.values():
            axis = window.axis
            before = self.draft.percent()[:, axis]
            after = before + 100.0 * m.load[axis] / self.problem.capacity[:, axis]
            left = before[m.row] - 100.0 * m.load[axis] / self.problem.capacity[m.row, axis]
            inside = np.zeros(len(found), dtype=np.bool_)
            inside[window.rows] = True
            found &= ~inside | (after <= np.maximum(window.high, before))
            if inside[m.row] and left < min(window.low, float(before[m.row])):
                found[:] = False
        for goal in self._guarded:
            if goal.fill_low:
                found &= self._staying(goal, m)
        return found

    def _staying(self, goal: Spread, m: Movable) -> Flags:
        """Return the rows to which a pod can go and a pool stays as level as it may be."""
        axis, rows = AXES[goal.dimension], self.problem.rows(goal)
        before = self.draft.percent()[:, axis]
        left = before[m.row] - 100.0 * m.load[axis] / self.problem.capacity[m.row, axis]
        compared = np.zeros(before.size, dtype=np.bool_)
        compared[rows] = True
        lowest = min(float(before[rows].min()), float(left) if compared[m.row] else np.inf)
        after = before + 100.0 * m.load[axis] / self.problem.capacity[:, axis]
        highest = lowest + max(goal.points, float(np.ptp(before[rows]))) + EPSILON
        found: Flags = ~compared | (after <= highest)
        return found

    def _swap(self, window: Window) -> list[tuple[Movable, int]]:
        """Return two moves that exchange a large pod of a high node for one of a low node."""
        levels = self.draft.percent()[window.rows, window.axis]
        order = window.rows[np.lexsort((window.rows, levels))]
        highs = [int(row) for row in order[::-1][:ENDS]]
        lows = [int(row) for row in order[:ENDS]]
        for high in highs:
            for low in lows:
                found = self._exchange(window, high, low) if high != low else None
                if found is not None:
                    return found
        return []

    def _exchange(self, window: Window, high: int, low: int) -> list[tuple[Movable, int]] | None:
        pairs = self._pairs(window, high, low)
        for p, q in pairs[:PODS]:
            if not self._allowed(p, low):
                continue
            self.draft.put(p, low)
            fine = self._allowed(q, high)
            self.draft.take_out(p)
            if fine and self._harmless([(p, low), (q, high)]):
                return [(p, low), (q, high)]
        return None

    def _allowed(self, m: Movable, row: int) -> bool:
        return bool(self.draft.targets(m, under_way=True)[row])

    def _pairs(self, window: Window, high: int, low: int) -> Sequence[tuple[Movable, Movable]]:
        """Return pods to exchange, the pair that removes most first."""
        axis, moved, capacity = window.axis, self.draft.moves, self.problem.capacity
        ps = [m for m in self.problem.movables(high) if m not in moved]
        qs = [m for m in self.problem.movables(low) if m not in moved]
        if not ps or not qs:
            return ()
        given = np.array([m.load[axis] for m in ps])[:, None]
        taken = np.array([m.load[axis] for m in qs])[None, :]
        top, bottom = self.draft.percent()[[high, low], axis]
        tops = top - 100.0 * (given - taken) / capacity[high, axis]
        bottoms = bottom + 100.0 * (given - taken) / capacity[low, axis]
        before = window.outside(np.array([top, bottom])).sum()
        removed = before - window.outside(tops) - window.outside(bottoms)
        fall = top - np.maximum(tops, bottoms)
        fine = (removed > EPSILON) & (fall >= 2 * self._min_gain) & (fall > EPSILON)
        found = np.argwhere(fine)
        order = sorted(
            found.tolist(), key=lambda pair: (-round(removed[pair[0], pair[1]], 6), pair)
        )
        return [(ps[i], qs[j]) for i, j in order]


def guards(problem: Problem) -> tuple[Spread, ...]:
    """Return the spreads that hold now and must not be lost by what else is moved."""
    look, parts = problem.demand.look, problem.demand.assessment.participation
    if Strategy.LOAD_BALANCING not in look.config.enabled_strategies or not problem.goals:
        return ()
    found = []
    for pool in sorted(parts.pools):
        nodes = tuple(n for n in parts.pools[pool] if n not in parts.spread_refused)
        fill_low = fills_low(look.config.fill_low_nodes, parts.autoscalers[pool])
        for dimension in Dimension:
            goal = Spread(
                strategy=Strategy.LOAD_BALANCING,
                pool=pool,
                dimension=dimension,
                points=look.config.imbalance_threshold,
                nodes=nodes,
                fill_low=fill_low,
                words="its pool would no longer be level",
            )
            if gap(goal, problem, problem.load) <= goal.points:
                found.append(goal)
    return tuple(found)


def _worth(choice: Choice) -> tuple[float, int]:
    removed, m, _ = choice
    return round(removed, 6), -m.number
