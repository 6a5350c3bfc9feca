# SPDX-License-Identifier: Apache-2.0
"""Plans of the real planner next to the proven optimum of the same problem."""

from __future__ import annotations

from dataclasses import dataclass

from bench.exact import ExactResult, Status, exact
from bench.problems import Shape, draw
from common.config import Strategy
from rebalancer.planner import Plan, make_plan
from tests.support.worlds.planner_instances import goals_of

STRATEGIES = (Strategy.NODE_MAINTENANCE, Strategy.RESOURCE_OPTIMIZATION)
SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """One problem, planned and solved."""

    seed: int
    plan: Plan
    optimum: ExactResult

    @property
    def solved(self) -> bool:
        return self.optimum.status is Status.OPTIMAL

    @property
    def evictions(self) -> int:
        return len(self.plan.moves)

    @property
    def fewest(self) -> int:
        return self.optimum.evictions or 0

    def __str__(self) -> str:
        unmet = f", unmet {[found.goal for found in self.plan.unmet]}" if self.plan.unmet else ""
        bound = self.plan.lower_bound.evictions
        return f"seed {self.seed}: {self.evictions} of {self.fewest}, bound {bound}{unmet}"


def shape_of(seed: int) -> Shape:
    """Return the kind of problem that a seed stands for: three in four have plenty of room."""
    return Shape(
        hot=1 + seed % 5,
        empty=seed % 3,
        cold_percent=64.0 if seed % 4 == 3 else 45.0 + 5.0 * (seed % 4),
        kinds=("a", "b") if seed % 2 else ("",),
    )


def compare(seed: int) -> Comparison:
    """Plan and solve twenty nodes with two hundred pods, some too hot, some to be emptied."""
    problem = draw(seed, shape_of(seed))
    instance = problem.instance()
    plan = make_plan(problem.demand(STRATEGIES))
    return Comparison(seed, plan, exact(instance, goals_of(instance), seconds=SECONDS))
