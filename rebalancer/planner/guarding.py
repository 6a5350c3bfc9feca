"""What levelling must not spoil: pools that are level already, windows that were reached."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.config import Strategy
from rebalancer.goals import PRECISION, Dimension, Spread
from rebalancer.planner.explain import gap
from rebalancer.planner.instance import Flags, Ints
from rebalancer.planner.levels import AXES, EPSILON, Levels, Window
from rebalancer.planner.movable import Movable
from rebalancer.planner.problem import Problem
from rebalancer.strategies.pools import fills_low


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
        after = levels.percent.copy(order="K")
        for m, row in moves:
            after[m.row] -= 100.0 * m.load / problem.capacity[m.row]
            after[row] += 100.0 * m.load / problem.capacity[row]
        worst = float(after[[row for _, row in moves]].max())
        return worst <= problem.worst + EPSILON and all(
            levels.gap(goal, after) <= max(levels.gap(goal), goal.points) + EPSILON
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
        axis, compared = AXES[goal.dimension], self._problem.inside(goal)
        levels = self._levels.percent[:, axis][self._problem.rows(goal)]
        lowest, span = float(levels.min(initial=np.inf)), float(np.ptp(levels))
        if compared[m.row]:
            lowest = min(lowest, self._levels.left(m, axis))
        highest = lowest + max(goal.points, span) + EPSILON
        found: Flags = ~compared[rows] | (self._levels.joined(m, rows, axis) <= highest)
        return found


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
            if nodes and gap(goal, problem, problem.load) <= goal.points + PRECISION:
                found.append(goal)
    return tuple(found)
