# SPDX-License-Identifier: Apache-2.0
"""Which chains of a plan are worth their evictions, judged in their order.

A chain is judged as a whole, by what its goal is about: one that brings a node under its
ceiling is worth its evictions however large the node is; one that levels a pool which the whole
plan brings within its spread, and which is clearly wider now, has to gain little. No chain may
make any node worse than the worst is now.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rebalancer.goals import AtMost
from rebalancer.planner.constraints import (
    FINE,
    compared_levels,
    left_above_ceiling,
    not_worth_it,
    touched_levels,
)
from rebalancer.planner.cycle import startable
from rebalancer.planner.instance import Flags, Floats
from rebalancer.planner.movable import Movable
from rebalancer.planner.ordering import Step
from rebalancer.planner.pool_spreads import evened
from rebalancer.planner.problem import Problem
from rebalancer.refusals import Reason, Refusal


class Worth:
    """Judges the chains of one plan."""

    def __init__(
        self,
        problem: Problem,
        leveled: Collection[Movable],
        evening: Collection[Movable] = (),
    ) -> None:
        """`leveled` move to level a pool, without the `evening` pods would be spread worse."""
        self._problem = problem
        self._leveled = leveled
        self._evening = evening
        self._min_gain = problem.demand.cluster.config.min_gain

    def lacking(self, found: Sequence[Sequence[Step]]) -> dict[Movable, Refusal]:
        """Return the pods of chains that cannot be started or are not worth it, with the reason."""
        load, end = self._problem.load.copy(order="K"), self._end(found)
        relieved, level = self._relieved(end), evened(self._problem, end)
        bad: dict[Movable, Refusal] = {}
        for chain in found:
            refusal = self._judge(load, chain, relieved, level)
            if refusal is not None:
                bad.update({step.m: refusal for step in chain})
                continue
            for step in chain:
                load[step.m.row] -= step.m.load
                load[step.row] += step.m.load
        return bad

    def _end(self, found: Sequence[Sequence[Step]]) -> Floats:
        end: Floats = self._problem.load.copy(order="K")
        for step in (step for chain in found for step in chain):
            end[step.m.row] -= step.m.load
            end[step.row] += step.m.load
        return end

    def _relieved(self, end: Floats) -> set[int]:
        """Return the rows that all chains together bring under their ceiling."""
        problem = self._problem
        rows = (problem.row_of[goal.node] for goal in problem.hot)
        return {row for row in rows if (end[row] <= problem.enough[row]).all()}

    def _judge(
        self, load: Floats, chain: Sequence[Step], relieved: Collection[int], level: Flags
    ) -> Refusal | None:
        refusal = startable(self._problem, chain)
        if refusal is not None or any(step.m.has_to_leave for step in chain):
            return refusal
        moves = [(step.m, step.row) for step in chain]
        before, after = touched_levels(self._problem, load, moves)
        repairs = any(self._problem.repairs(step.m) for step in chain) or all(
            self._problem.has_own_goal(step.m) for step in chain
        )
        worst = max(self._problem.worst, float(before.max()))
        if not repairs and float(after.max()) > worst + 1e-6:
            return Reason.WORST_NODE_WORSE.refusal("chain")
        refusal = left_above_ceiling(self._problem, load, moves)
        if refusal is not None:
            return refusal
        own = self._problem.relocations
        if any(step.m.row in relieved or step.m.pod.uid in own for step in chain):
            return None
        if any(step.m in self._evening for step in chain):
            return None
        fine = any(step.m in self._leveled and level[step.m.row] for step in chain)
        return not_worth_it(
            *compared_levels(self._problem, load, moves),
            axes=self._axes(chain),
            evictions=len(chain),
            min_gain=self._min_gain * (FINE if fine else 1.0),
        )

    def _axes(self, chain: Sequence[Step]) -> Sequence[int]:
        """Return the resources that the goals of the chain's sources are about."""
        goals = [self._problem.goal_of(step.m.row) for step in chain]
        found = {d.axis for goal in goals if isinstance(goal, AtMost) for d in goal.broken}
        if any(step.m in self._leveled for step in chain):
            found |= {goal.dimension.axis for goal in self._problem.spreads}
        return sorted(found) or self._problem.axes
