# SPDX-License-Identifier: Apache-2.0
"""Plans keep some distance to thresholds, and what they promised is not asked for twice."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.problems import CEILING, draw
from rebalancer.goals import MARGIN, Goal, title
from rebalancer.planner import Plan, make_plan, placing, problem, spread
from tests.support.oracles.planner_optimum import STRATEGIES, shape_of
from tests.support.worlds.planner import PlannerWorld, assess, everything_moves
from tests.support.worlds.planner_dice import random_world
from tests.unit.rebalancer.planner.noise import carried_out, shift

HOT_ONLY = {"enabledStrategies": ["ResourceOptimization"]}
LEVEL_ONLY = {"enabledStrategies": ["LoadBalancing"], "fillLowNodes": "always"}
NOISE = 0.3


def hot(*pods: float, extra: float = 0.0) -> PlannerWorld:
    """Return a node at 90 % with pods of these sizes and one that stays, and an empty one."""
    world = PlannerWorld(config=HOT_ONLY)
    world.node("hot")
    world.node("free")
    for number, size in enumerate(pods):
        world.pod(f"p{number}", "hot", (size, 1.0))
    world.pod("stays", "hot", (90.0 + extra - sum(pods), 1.0), kind="none")
    return world


def level(plan: Plan, name: str) -> float:
    return next(round(node.after.cpu, 2) for node in plan.nodes if node.name == name)


def goals(world: PlannerWorld) -> list[Goal]:
    """Return what is wanted now, whatever was moved lately."""
    return list(assess(world.cluster(), everything_moves).goals)


def test_of_equally_many_pods_those_go_that_leave_some_distance() -> None:
    plan = hot(10.0, 10.6, 12.0).plan()
    assert [move.pod for move in plan.moves] == ["default/p1"]
    assert level(plan, "hot") == 79.4


def test_distance_is_not_worth_another_eviction() -> None:
    plan = hot(10.0, 10.0, 10.2).plan()
    assert (len(plan.moves), plan.lower_bound.evictions) == (1, 1)
    assert plan.unmet == ()


def test_distance_is_not_worth_a_more_important_pod() -> None:
    world = hot(10.0, extra=-12.0)
    world.pod("important", "hot", (12.0, 1.0), spec={"priority": 100})
    assert [move.pod for move in world.plan().moves] == ["default/p0"]


def test_what_nobody_could_measure_costs_no_eviction() -> None:
    plan = hot(10.0, 10.0, extra=0.04).plan()
    assert (len(plan.moves), plan.lower_bound.evictions, plan.unmet) == (1, 1, ())
    plan = hot(10.0, 10.0, extra=0.06).plan()
    assert (len(plan.moves), plan.lower_bound.evictions, plan.unmet) == (2, 2, ())


def test_a_pool_keeps_some_distance_to_its_spread() -> None:
    world = PlannerWorld(config={**LEVEL_ONLY, "imbalanceThreshold": 20.0})
    pods = {"n1": (15.0, 5.0, 10.0, 12.0), "n2": (15.0, 5.0, 12.0, 5.0), "n3": (12.0,)}
    for name, sizes in pods.items():
        world.node(name)
        for number, size in enumerate(sizes):
            world.pod(f"{name}-p{number}", name, (size, 1.0))
    plan = world.plan()
    levels = [node.after.cpu for node in plan.nodes]
    # Another pod in its place would leave them exactly 20 apart.
    assert len(plan.moves) == 1
    assert max(levels) - min(levels) < 20.0 - 2 * MARGIN


@pytest.mark.parametrize("points", [-NOISE, NOISE])
def test_a_node_at_exactly_its_ceiling_stays_there(points: float) -> None:
    world = hot(10.0, 10.0)
    plan = world.plan()
    assert level(plan, "hot") == 80.0
    later = carried_out(world, plan)
    shift(later, "hot", points)
    assert goals(later) == []


def test_a_node_that_has_really_risen_is_relieved_again() -> None:
    world = hot(10.0, 10.0)
    later = carried_out(world, world.plan())
    shift(later, "hot", 2 * MARGIN)
    assert [title(goal) for goal in goals(later)] == ["hot below 80 % CPU"]


def at_its_spread() -> PlannerWorld:
    """Return a pool of three that one move brings to exactly its spread."""
    world = PlannerWorld(config={**LEVEL_ONLY, "imbalanceThreshold": 20.0})
    for name in ("high", "low", "middle"):
        world.node(name)
    world.pod("goes", "high", (10.0, 1.0))
    world.pod("stays", "high", (40.0, 1.0), kind="none")
    world.pod("there", "low", (10.0, 1.0), kind="none")
    world.pod("here", "middle", (40.0, 1.0), kind="none")
    return world


@pytest.mark.parametrize("points", [-NOISE, NOISE])
@pytest.mark.parametrize("node", ["high", "low", "middle"])
def test_a_pool_at_exactly_its_spread_stays_there(node: str, points: float) -> None:
    world = at_its_spread()
    plan = world.plan()
    assert level(plan, "high") - level(plan, "low") == 20.0
    later = carried_out(world, plan)
    shift(later, node, points)
    assert goals(later) == []


@given(st.integers(0, 10**6))
@settings(max_examples=30)
def test_a_sample_that_is_nearly_as_predicted_calls_for_nothing(seed: int) -> None:
    dice = random.Random(seed)
    world = random_world(seed)
    plan = world.plan()
    later = carried_out(world, plan)
    asked_before = {title(goal) for goal in goals(later)}
    for node in plan.nodes:
        if node.role:
            shift(later, node.name, dice.uniform(-NOISE, NOISE))
    again = {title(goal) for goal in goals(later)} - asked_before
    assert again.isdisjoint(set(plan.goals) - {unmet.goal for unmet in plan.unmet})


def test_keeping_a_distance_costs_no_evictions(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = [seed for seed in range(12) if seed % 4 != 3]
    demands = [draw(seed, shape_of(seed)).demand(STRATEGIES) for seed in seeds]
    plans = [make_plan(demand) for demand in demands]
    for module in (spread, placing, problem):
        monkeypatch.setattr(module, "MARGIN", 0.0)
    without = [make_plan(demand) for demand in demands]
    assert [len(plan.moves) for plan in plans] == [len(plan.moves) for plan in without]
    assert sum(map(near, plans)) < sum(map(near, without)) / 2


def near(plan: Plan) -> int:
    """Return how many nodes a plan relieves only to within the margin."""
    sources = [node.after for node in plan.nodes if node.role == "source"]
    cpu, memory = CEILING.cpu_percent - MARGIN, CEILING.mem_percent - MARGIN
    return sum(after.cpu > cpu or after.memory > memory for after in sources)
