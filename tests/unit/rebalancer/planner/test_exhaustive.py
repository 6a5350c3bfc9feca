# SPDX-License-Identifier: Apache-2.0
"""Small problems against every plan there is."""

from __future__ import annotations

import random
from dataclasses import replace

from bench.problems import Problem, Shape, draw
from common.config import RebalancerConfiguration
from rebalancer.goals import Goal
from rebalancer.planner import Plan, make_plan
from tests.support.worlds.planner import demand_of, everything_moves, view_of
from tests.support.worlds.planner_instances import goals_of
from tests.unit.rebalancer.planner.orders import fewest_orderly_evictions

CONFIG = {
    "cpuThreshold": 80.0,
    "memoryThreshold": 85.0,
    "minGain": 0.0,
    "enabledStrategies": ["ResourceOptimization", "NodeMaintenance"],
}
CASES = 100


def plan_of(problem: Problem, goals: list[Goal]) -> Plan:
    """Return the planner's plan for a problem in which only load decides."""
    snapshot = problem.snapshot()
    config = RebalancerConfiguration.model_validate(CONFIG)
    cluster = view_of(snapshot, problem.load(snapshot), config)
    return make_plan(demand_of(cluster, judged=everything_moves, goals=goals))


def test_hardly_any_small_problem_has_a_plan_with_fewer_evictions() -> None:
    worse = []
    for seed in range(CASES):
        dice = random.Random(seed)
        shape = Shape(
            nodes=dice.randint(2, 4),
            pods=dice.randint(3, 6),
            hot=1,
            empty=dice.choice((0, 0, 1)),
            cold_percent=dice.choice((20.0, 40.0, 60.0)),
        )
        problem = draw(seed, shape)
        goals = goals_of(problem.instance())
        best = fewest_orderly_evictions(problem.instance(), goals)
        plan = plan_of(problem, goals)
        assert plan.lower_bound.evictions <= len(plan.moves)
        if best is not None:
            assert plan.lower_bound.evictions <= best
            if plan.unmet or len(plan.moves) > best:
                worse.append(seed)
    assert len(worse) <= 0.02 * CASES, worse


def test_the_bound_of_most_larger_problems_is_reached() -> None:
    """Twenty nodes and two hundred pods: where the plan reaches the bound, it is the optimum."""
    evictions = bounds = 0
    for seed in range(12):
        problem = draw(seed, replace(Shape(), hot=4, empty=seed % 2, cold_percent=55.0))
        plan = plan_of(problem, goals_of(problem.instance()))
        assert plan.unmet == ()
        evictions += len(plan.moves)
        bounds += plan.lower_bound.evictions
    assert evictions <= 1.05 * bounds
