# SPDX-License-Identifier: Apache-2.0
"""The solver makes plans better, never worse, and keeps to every rule."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.highs.solve import solve
from rebalancer.planner import Plan, make_plan
from rebalancer.planner.program import Answer, LinearProblem
from tests.support.oracles.plan_checker import faults
from tests.support.worlds.planner import PlannerWorld, everything_moves
from tests.support.worlds.planner_dice import random_world

CEILINGS = {"enabledStrategies": ["ResourceOptimization"]}


def solved(world: PlannerWorld) -> Plan:
    demand = replace(world.demand(judged=everything_moves), solve=solve)
    plan = make_plan(demand)
    assert faults(demand, plan) == []
    return plan


def three_full_nodes() -> PlannerWorld:
    """Return nodes of which no two can exchange their pods, and all three can."""
    world = PlannerWorld(config=CEILINGS)
    for node, fixed, size in (("n1", 68.5, 15.0), ("n2", 65.0, 12.0), ("n3", 66.5, 11.0)):
        world.node(node, overhead=fixed)
        world.pod(f"{node}-0", node, (size, 1.0))
    return world


def test_three_full_nodes_pass_pods_round() -> None:
    """The second goes first: only the third node may be so full for a moment."""
    plan = solved(three_full_nodes())
    assert plan.unmet == ()
    assert [(move.source, move.target) for move in plan.moves] == [
        ("n2", "n3"),
        ("n1", "n2"),
        ("n3", "n1"),
    ]
    assert len({move.chain for move in plan.moves}) == 1
    first, second, third = plan.moves
    assert (first.needs, second.needs, third.needs) == ((), (first.uid,), (second.uid,))


def test_a_plan_without_an_answer_is_the_plan_without_a_solver() -> None:
    def dead(_: LinearProblem) -> Answer | None:
        return None

    for seed in range(20):
        world = random_world(seed)
        without, dying = make_plan(world.demand()), make_plan(replace(world.demand(), solve=dead))
        assert dying.moves == without.moves


@pytest.mark.parametrize("junk", [b"", b"\x00" * 8])
def test_an_answer_without_a_meaning_changes_nothing(junk: bytes) -> None:
    def babbling(problem: LinearProblem) -> Answer:
        return Answer(values=junk and b"\x00" * len(problem.cost))

    for seed in range(20):
        world = random_world(seed)
        found = make_plan(replace(world.demand(), solve=babbling))
        assert found.moves == make_plan(world.demand()).moves


@given(st.integers(0, 10**6))
@settings(max_examples=25)
def test_no_plan_of_the_solver_breaks_a_rule_or_is_worse(seed: int) -> None:
    world = random_world(seed)
    first, second = world.demand(), replace(world.demand(), solve=solve)
    without, plan = make_plan(first), make_plan(second)
    assert not (faults(second, plan) and not faults(first, without))
    assert len(plan.unmet) <= len(without.unmet)
    if not plan.unmet and not without.unmet:
        assert len(plan.moves) <= len(without.moves)


def test_a_spread_that_a_greedy_search_misses_is_met() -> None:
    world = random_world(15)
    assert make_plan(world.demand()).unmet
    assert make_plan(replace(world.demand(), solve=solve)).unmet == ()


def test_a_ceiling_out_of_reach_is_approached_all_the_same() -> None:
    """The solver pays for goals that it misses, not for coming closer."""
    world = random_world(2)
    without = make_plan(world.demand())
    assert without.unmet
    assert without.moves
    assert make_plan(replace(world.demand(), solve=solve)).moves == without.moves


def test_the_same_problem_has_the_same_plan() -> None:
    plans = [make_plan(replace(random_world(15).demand(), solve=solve)) for _ in range(2)]
    assert plans[0] == plans[1]
