# SPDX-License-Identifier: Apache-2.0
"""Spread: brings the nodes of a pool within so many points of each other.

A level is chosen, and with it the window that every node of the pool has to be in. Of the
moves from nodes above the window, or to nodes below it, the one that removes most of what is
outside is made, until nothing is. A node whose pods can go nowhere is passed over: the next
ones give instead. Where pods are too large for that, two nodes swap. A few levels are tried;
the one that meets the goal with the fewest moves stays, and of those one that keeps some
distance to the threshold. Where the low end does not count, only nodes too far above the
mean of the others give.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from rebalancer.goals import MARGIN, PRECISION, Spread
from rebalancer.planner.constraints import FINE, worthwhile
from rebalancer.planner.draft import Draft
from rebalancer.planner.instance import Floats
from rebalancer.planner.joint_spread import JointSpread
from rebalancer.planner.movable import Movable
from rebalancer.planner.pool_levels import EPSILON, Guard, Levels, Window, guards, smallest
from rebalancer.planner.pool_spreads import clearly_wide
from rebalancer.planner.resources import some

PODS: Final = 8
"""Pods of a node that are compared for one move, the most suitable first."""
ASKED: Final = 32
"""Pods of a node that are asked about until so many can go."""
FEW: Final = 4
"""The same in large pools, where the first that can go is taken."""
ENDS: Final = 4
"""Nodes at either end that are considered for one move."""
PASSED_OVER: Final = 64
"""Nodes whose pods can go nowhere that are passed over on the way to one level."""
PARTNERS: Final = 16
"""Low nodes with which a high one may swap pods."""
LARGE: Final = 500
"""In pools with more nodes only the most promising level is tried."""
LEVELS: Final = 5

Choice = tuple[float, Movable, int]
"""What a move removes, and the move."""


@dataclass(frozen=True, slots=True)
class _Try:
    """What one level takes, and how far it gets."""

    left: float
    """Points that the pool is still too wide."""
    near: bool
    """Whether it is so nearly too wide that a sample could make it so."""
    moves: dict[Movable, int]
    window: Window

    @property
    def met(self) -> bool:
        return self.left <= EPSILON


class Leveling:
    """Levels the pools of one draft."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.problem = draft.problem
        self.levels = Levels(draft)
        self._guard = Guard(self.levels, guards(self.problem))
        self._min_gain = draft.problem.demand.cluster.config.min_gain
        self._moved: set[Movable] = set()
        self._stuck: set[int] = set()
        """Rows whose pods can go nowhere: moves take room, so they will not later either."""
        self.swaps: list[tuple[Movable, Movable]] = []
        """Moves that make sense only together."""

    def run(self) -> set[Movable]:
        """Level every pool that has a goal; return the pods that move for it."""
        stated = sorted(self.problem.spreads, key=lambda goal: (goal.pool, goal.dimension))
        guarded = self._guard.spreads
        before, wide = dict(self.draft.moves), self._excess(stated)
        self._level_all((*stated, *guarded))
        self._level_jointly(stated, before)
        if not self._met(stated) and self.draft.evaluations.plenty:
            self._regardless(stated, guarded)
        self._level_finely(stated, guarded, before)
        self._undo_in_vain(stated, before, wide)
        return {m for m in self._moved if m in self.draft.moves}

    def _undo_in_vain(
        self, stated: Sequence[Spread], before: dict[Movable, int], wide: dict[str, float]
    ) -> None:
        """Take back moves in a pool that stays too wide, if all its goals together gain nothing.

        What brings one resource together and drives another apart would be undone by the next
        plan, which starts with the other one.
        """
        for pool, excess in self._excess(stated).items():
            goals = [goal for goal in stated if goal.pool == pool]
            inside = self.problem.inside(goals[0])
            made = [m for m in self.draft.moves if m not in before and inside[m.row]]
            if len(goals) > 1 and excess > 0.0 and excess > wide[pool] - EPSILON:
                for m in reversed(made):
                    self.levels.take_out(m)

    def _excess(self, goals: Sequence[Spread]) -> dict[str, float]:
        """Return the points that each pool is too wide, in all resources with a goal."""
        found = dict.fromkeys((goal.pool for goal in goals), 0.0)
        for goal in goals:
            found[goal.pool] += max(0.0, self.levels.gap(goal) - goal.points - PRECISION)
        return found

    def _level_all(self, goals: Sequence[Spread]) -> None:
        for goal in goals:
            while self._level(goal):
                continue

    def _level_jointly(self, stated: Sequence[Spread], before: dict[Movable, int]) -> None:
        """Level pools with goals in several resources at once, where that takes fewer moves."""
        pools = {goal.pool for goal in stated if goal.fill_low}
        for pool in sorted(pools):
            goals = [goal for goal in stated if goal.pool == pool]
            if len(goals) > 1 and self.draft.evaluations.plenty:
                self._replace(goals, before)

    def _replace(self, goals: Sequence[Spread], before: dict[Movable, int]) -> None:
        inside = self.problem.inside(goals[0])
        made = {m: row for m, row in self.draft.moves.items() if m not in before and inside[m.row]}
        most = len(made) if self._met(goals) else None
        for m in reversed(made):
            self.levels.take_out(m)
        joint = JointSpread(self.levels, self._guard, goals, self._min_gain)
        found = joint.fewest(most) if joint.feasible else None
        for m, row in (made if found is None else found).items():
            self.levels.put(m, row)
        self._moved |= set(found or ())

    def _regardless(self, stated: Sequence[Spread], guarded: tuple[Spread, ...]) -> None:
        """Put goals first and restore what was level afterwards; all of that, or nothing."""
        before = dict(self.draft.moves)
        self._guard.spreads = ()
        self._level_all((*stated, *guarded))
        if not self._met((*stated, *guarded)):
            self.levels.back_to(before)

    def _level_finely(
        self, stated: Sequence[Spread], guarded: tuple[Spread, ...], before: dict[Movable, int]
    ) -> None:
        """Move pods that gain less than `minGain` too, in pools that this brings within a spread.

        On large nodes, or with many tiny pods, there are no others.
        """
        missed = {goal.pool for goal in stated if not self._near(goal)}
        pools = sorted({g.pool for g in stated if clearly_wide(self.problem, g)} & missed)
        least, self._min_gain = self._min_gain, self._min_gain * FINE
        for pool in pools if least > 0.0 else ():
            goals = [goal for goal in stated if goal.pool == pool]
            coarse = dict(self.draft.moves)
            self._level_all((*goals, *guarded))
            if len(goals) > 1 and self.draft.evaluations.plenty:
                self._replace(goals, before)
            if not self._met((*goals, *guarded)):
                self.levels.back_to(coarse)
        self._min_gain = least

    def _met(self, goals: Sequence[Spread]) -> bool:
        return all(self._near(goal) for goal in goals)

    def _near(self, goal: Spread) -> bool:
        return self.levels.gap(goal) <= goal.points + PRECISION

    def _level(self, goal: Spread) -> bool:
        """Bring a pool closer together; tell whether another round may bring it further."""
        self._guard.forget(goal)
        if self._near(goal):
            return False
        best = min((self._tried(goal, window) for window in self._windows(goal)), key=_rank)
        for m, row in best.moves.items():
            self.levels.put(m, row)
        self._moved |= best.moves.keys()
        self._guard.keep(goal, best.window)
        return bool(best.moves) and not best.met

    def _tried(self, goal: Spread, window: Window) -> _Try:
        """Bring a pool into a window, note what that takes, and undo it."""
        made = self._reach(goal, window)
        gap = self.levels.gap(goal)
        found = _Try(
            left=round(max(0.0, gap - goal.points - PRECISION), 6),
            near=gap > goal.points - 2 * MARGIN,
            moves={m: self.draft.moves[m] for m in made},
            window=window,
        )
        for m in reversed(made):
            self.levels.take_out(m)
        return found

    def _windows(self, goal: Spread) -> Iterator[Window]:
        """Return the levels to try, those that seem to need the fewest moves first."""
        rows, inside, axis = (
            self.problem.rows(goal),
            self.problem.inside(goal),
            goal.dimension.axis,
        )
        levels = self.levels.percent[:, axis][rows]
        if not goal.fill_low:
            # Moving within the pool hardly changes the mean.
            mean = float(levels.mean())
            size = rows.size
            high = mean + goal.points * (size - 1) / size
            yield Window(rows, inside, axis, -np.inf, high)
            return
        lowest, highest = float(levels.min()), float(levels.max()) - goal.points
        choices = sorted(
            np.linspace(lowest, highest, 17), key=lambda low: _effort(levels, low, goal.points)
        )
        tried = 1 if rows.size > LARGE else LEVELS
        for low in choices[:tried]:
            yield Window(rows, inside, axis, float(low), float(low) + goal.points)

    def _reach(self, goal: Spread, window: Window) -> list[Movable]:
        """Make moves until the pool is inside the window, or nothing helps any more."""
        made: list[Movable] = []
        self._stuck.clear()
        while not self._near(goal) and self.draft.evaluations.left > 0:
            choice = self._best_move(window)
            moves = [choice[1:]] if choice is not None else self._swap(window)
            if not moves:
                break
            for m, row in moves:
                self.levels.put(m, row)
                made.append(m)
            if len(moves) == 2:
                self._stuck.clear()
                self.swaps.append((moves[0][0], moves[1][0]))
        return self._pruned(goal, made)

    def _pruned(self, goal: Spread, made: list[Movable]) -> list[Movable]:
        """Take out moves that later ones made unnecessary."""
        if not self._near(goal):
            return made
        kept = []
        for m in made:
            row = self.levels.take_out(m)
            if not self._near(goal):
                self.levels.put(m, row)
                kept.append(m)
        return kept

    def _best_move(self, window: Window) -> Choice | None:
        """Return the best move of the highest nodes that have one."""
        while len(self._stuck) <= PASSED_OVER:
            sources = self._highest(window)
            if not sources:
                break
            found = self._of_sources(window, sources)
            if found is not None or self._stuck.isdisjoint(sources):
                return found
        return None

    def _highest(self, window: Window) -> list[int]:
        """Return the highest nodes, but those that were passed over."""
        levels = self.levels.percent[:, window.axis][window.rows]
        rows = window.rows[smallest(-levels, levels, ENDS + len(self._stuck))].tolist()
        return [row for row in rows if row not in self._stuck][:ENDS]

    def _of_sources(self, window: Window, sources: Sequence[int]) -> Choice | None:
        levels = self.levels.percent[:, window.axis]
        above = [row for row in sources if levels[row] > window.high + EPSILON]
        for row in above:
            found = self._from(window, row)
            if found is not None:
                return found
        if above or not some(levels[window.rows] < window.low - EPSILON):
            return None
        return self._best_of(window, (self._from(window, row) for row in sources))

    def _from(self, window: Window, source: int) -> Choice | None:
        """Return the move away from a node that removes most of what is outside."""
        found = (self._to(window, m) for m in self._suitable(window, source))
        best = self._best_of(window, islice((c for c in found if c is not None), PODS))
        if best is None:
            self._stuck.add(source)
        return best

    @staticmethod
    def _best_of(window: Window, choices: Iterator[Choice | None]) -> Choice | None:
        found = (choice for choice in choices if choice is not None)
        return (
            next(found, None) if window.rows.size > LARGE else max(found, key=_worth, default=None)
        )

    def _suitable(self, window: Window, source: int) -> list[Movable]:
        """Return the pods of a node whose leaving brings it closest to the window."""
        movables, moved = self.problem.movables(source), self.draft.moves
        loads = self.problem.loads(source)[:, window.axis]
        gains = (
            100.0 * loads / self.problem.capacity[source, window.axis] >= self._min_gain - EPSILON
        )
        found = [i for i in gains.nonzero()[0].tolist() if movables[i] not in moved]
        after = self.levels.without(source, loads[found], window.axis)
        keys = zip(
            window.outside(after).tolist(),
            [movables[i].cost for i in found],
            after.tolist(),
            found,
            strict=True,
        )
        # Of those that overshoot nothing, the largest moves most.
        wanted = ASKED if window.rows.size <= LARGE else FEW
        return [movables[i] for *_, i in sorted(keys)[:wanted]]

    def _to(self, window: Window, m: Movable) -> Choice | None:
        """Return the best target for a pod and what the move removes."""
        axis = window.axis
        mask = window.inside & worthwhile(self.draft, m, (axis,), self._min_gain)
        rows = (mask & self.draft.targets(m) if some(mask) else mask).nonzero()[0]
        rows = rows[self._guard.keeping(m, rows)] if rows.size else rows
        if not rows.size:
            return None
        before, after = self.levels.percent[:, axis], self.levels.joined(m, rows, axis)
        here = window.amount(float(before[m.row])) - window.amount(self.levels.left(m, axis))
        total = window.outside(before[rows]) - window.outside(after) + here
        for best in smallest(-total, after, ENDS):
            if total[best] <= EPSILON:
                return None
            if self._guard.harmless([(m, int(rows[best]))]):
                return float(total[best]), m, int(rows[best])
        return None

    def _swap(self, window: Window) -> list[tuple[Movable, int]]:
        """Return two moves that exchange a large pod of a high node for one of a low node."""
        levels = self.levels.percent[:, window.axis][window.rows]
        highs = window.rows[smallest(-levels, levels, ENDS)]
        lows = window.rows[smallest(levels, levels, PARTNERS)]
        for high in highs:
            for low in lows:
                found = self._exchange(window, int(high), int(low)) if high != low else None
                if found is not None:
                    return found
        return []

    def _exchange(self, window: Window, high: int, low: int) -> list[tuple[Movable, int]] | None:
        for p, q in self._pairs(window, high, low):
            if not self._allowed(p, low):
                continue
            self.levels.put(p, low)
            fine = self._allowed(q, high)
            self.levels.take_out(p)
            if fine and self._guard.harmless([(p, low), (q, high)]):
                return [(p, low), (q, high)]
        return None

    def _allowed(self, m: Movable, row: int) -> bool:
        return bool(self.draft.targets(m, under_way=True)[row])

    def _pairs(self, window: Window, high: int, low: int) -> Sequence[tuple[Movable, Movable]]:
        """Return a few pods to exchange, the pair that removes most first."""
        axis, capacity, percent = window.axis, self.problem.capacity, self.levels.percent
        ps, given = self._unmoved(high, axis)
        qs, taken = self._unmoved(low, axis)
        if not ps or not qs:
            return ()
        top, bottom = float(percent[high, axis]), float(percent[low, axis])
        shifted = 100.0 * (given[:, None] - taken[None, :])
        tops = top - shifted / capacity[high, axis]
        bottoms = bottom + shifted / capacity[low, axis]
        fall = top - np.maximum(tops, bottoms)
        fine = (fall >= 2 * self._min_gain) & (fall > EPSILON)
        if not some(fine):  # most often: the rest need not be computed
            return ()
        before = window.amount(top) + window.amount(bottom)
        removed = before - window.outside(tops) - window.outside(bottoms)
        first, second = np.nonzero(fine & (removed > EPSILON))
        order = np.lexsort((second, first, -removed[first, second].round(6)))[:PODS]
        return [(ps[i], qs[j]) for i, j in zip(first[order], second[order], strict=True)]

    def _unmoved(self, row: int, axis: int) -> tuple[list[Movable], Floats]:
        """Return the pods of a node that no move has taken yet, and what they use."""
        pods, moved = self.problem.movables(row), self.draft.moves
        places = [i for i, m in enumerate(pods) if m not in moved]
        loads = self.problem.loads(row)[:, axis]
        return [pods[i] for i in places], loads if len(places) == len(pods) else loads[places]


def _effort(levels: Floats, low: float, points: float) -> tuple[float, float]:
    above = float(np.maximum(levels - low - points, 0.0).sum())
    below = float(np.maximum(low - levels, 0.0).sum())
    return max(above, below), above + below


def _rank(found: _Try) -> tuple[bool, float, int, bool]:
    """Sort what meets the goal first, then the fewest moves, then what keeps some distance."""
    return not found.met, found.left, len(found.moves), found.near


def _worth(choice: Choice) -> tuple[float, list[float], int]:
    removed, m, _ = choice
    return round(removed, 6), [-part for part in m.cost], -m.number
