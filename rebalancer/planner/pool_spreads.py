# SPDX-License-Identifier: Apache-2.0
"""How level pools have to be, whether or not a goal says so now."""

from __future__ import annotations

import numpy as np

from common.config import Strategy
from rebalancer.goals import BALANCED, MARGIN, PRECISION, Spread
from rebalancer.planner.instance import Flags, Floats
from rebalancer.planner.movable import Movable
from rebalancer.planner.problem import TOLERANCE, Problem, width
from rebalancer.strategies.pools import fills_low


def pool_spreads(problem: Problem) -> tuple[Spread, ...]:
    """Return what LoadBalancing would ask for in every pool that has it."""
    cluster, parts = problem.demand.cluster, problem.demand.assessment.participation
    found = []
    for pool in sorted(parts.pools):
        rules = parts.pool_rules[pool]
        if Strategy.LOAD_BALANCING not in rules.enabled_strategies:
            continue
        nodes = tuple(n for n in parts.pools[pool] if n not in parts.spread_refused)
        fill_low = fills_low(cluster.config.fill_low_nodes, parts.autoscalers[pool])
        found += [
            Spread(
                strategy=Strategy.LOAD_BALANCING,
                pool=pool,
                dimension=dimension,
                points=rules.imbalance_threshold,
                nodes=nodes,
                fill_low=fill_low,
                message="its pool would no longer be level",
            )
            for dimension in BALANCED
            if nodes
        ]
    return tuple(found)


def whole_pools(problem: Problem) -> tuple[Spread, ...]:
    """Return the spreads of goals that leave nodes out, with all nodes."""
    if not problem.spreads:
        return ()
    stated = {(goal.pool, goal.dimension): goal.nodes for goal in problem.spreads}
    pools = ((stated.get((pool.pool, pool.dimension)), pool) for pool in pool_spreads(problem))
    return tuple(pool for nodes, pool in pools if nodes is not None and nodes != pool.nodes)


def unleveled(problem: Problem, load: Floats) -> bool:
    """Tell whether nodes that no goal compares come to stand out because of what moves.

    Goals leave out nodes that are stuck at an end now; a pod that leaves such a node, or makes
    room there, can change that, and the next cycle would state another goal.
    """
    stated = {(goal.pool, goal.dimension): goal for goal in problem.spreads}
    for pool in whole_pools(problem):
        goal = stated[pool.pool, pool.dimension]
        left_out = problem.inside(pool) & ~problem.inside(goal)
        changed = load[left_out] != problem.load[left_out]
        if changed.any() and problem.gap(pool, load) > pool.points + PRECISION:
            return True
    return False


def clearly_wide(problem: Problem, goal: Spread) -> bool:
    """Tell whether a pool is so wide that pods which gain little may move to level it.

    Within the margin they would go back and forth with the samples.
    """
    return problem.gap(goal, problem.load) > goal.points + MARGIN


def evened(problem: Problem, load: Floats) -> Flags:
    """[N] return the nodes of pools that are clearly wide and meet all their goals with loads."""
    found = np.zeros(len(problem.nodes), dtype=np.bool_)
    missed = {g.pool for g in problem.spreads if problem.gap(g, load) > g.points + PRECISION}
    for goal in problem.spreads:
        if goal.pool not in missed and clearly_wide(problem, goal):
            found |= problem.inside(goal)
    return found


class PoolGuard:
    """Answers where a pod can go without making a pool uneven that is not, or more uneven."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._spreads = pool_spreads(problem)

    def keeping(self, m: Movable, load: Floats) -> Flags | None:
        """[N] return where no pool is wider than it may be, or than it is with these loads."""
        found: Flags | None = None
        for goal in self._spreads:
            fine = self._of_pool(goal, m, load)
            found = fine if found is None else found & fine
        return found

    def _of_pool(self, goal: Spread, m: Movable, load: Floats) -> Flags:
        problem, axis = self._problem, goal.dimension.axis
        rows, capacity = problem.rows(goal), problem.capacity[:, axis]
        before = 100.0 * load[:, axis] / capacity
        most = max(goal.points + PRECISION, width(before[rows], fill_low=goal.fill_low)) + TOLERANCE
        left = before.copy()
        left[m.row] -= 100.0 * m.load[axis] / capacity[m.row]
        levels = left[rows]
        found = np.full(len(problem.nodes), width(levels, fill_low=goal.fill_low) <= most)
        if rows.size < 2:
            return np.ones(len(problem.nodes), dtype=np.bool_)
        joined = levels + 100.0 * m.load[axis] / capacity[rows]
        highest = np.maximum(levels.max(), joined)
        if goal.fill_low:
            first, second = np.partition(levels, 1)[:2]
            # Only the lowest node, if it is the only one, lifts the low end.
            lowest = np.where(levels > first, first, np.minimum(joined, second))
            gaps = highest - lowest
        else:
            others = levels.sum() + (joined - levels) - highest
            gaps = highest - others / (rows.size - 1)
        found[rows] = gaps <= most
        return found
