# SPDX-License-Identifier: Apache-2.0
"""Every pod is accounted for: it moves, or it is counted and listed with its reason."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.planner import Demand, Plan, make_plan
from tests.support.worlds.planner import PlannerWorld
from tests.support.worlds.planner_dice import random_world

HOT = {"enabledStrategies": ["ResourceOptimization"], "surge": "Never"}


def running(demand: Demand) -> list[str]:
    nodes = demand.cluster.snapshot.nodes.values()
    return sorted(pod.key for view in nodes for pod in view.pods.values())


def reasons(plan: Plan) -> dict[str, str]:
    return {each.pod.removeprefix("default/"): each.reasons[0].name for each in plan.refused}


@given(st.integers(0, 10**6))
@settings(max_examples=25)
def test_every_pod_moves_or_is_listed_with_a_reason(seed: int) -> None:
    demand = replace(random_world(seed).demand(), all_pods=True)
    plan = make_plan(demand)
    listed = [each.pod for each in plan.refused]
    assert sorted([*listed, *(move.pod for move in plan.moves)]) == running(demand)
    assert all(each.reasons for each in plan.refused)


@given(st.integers(0, 10**6))
@settings(max_examples=25)
def test_every_pod_that_stays_is_counted_once(seed: int) -> None:
    demand = random_world(seed).demand()
    short, long = make_plan(demand), make_plan(replace(demand, all_pods=True))
    assert short.staying == long.staying
    assert short.moves == long.moves
    assert sum(each.pods for each in short.staying) == len(running(demand)) - len(short.moves)


def hot_world() -> PlannerWorld:
    world = PlannerWorld(config=HOT)
    for name in ("n1", "n2"):
        world.node(name)
    world.pod("fixed", "n1", 50.0, kind="none")
    world.pod("low", "n1", 25.0)
    world.pod("high", "n1", 25.0, spec={"priority": 100})
    world.pod("elsewhere", "n2", 10.0)
    return world


def test_pods_of_other_nodes_are_counted_and_listed_on_demand() -> None:
    world = hot_world()
    world.pod("single", "n2", 1.0, replicas=1)
    plan = make_plan(replace(world.demand(), all_pods=True))
    assert reasons(plan)["elsewhere"] == reasons(plan)["single"] == "NodeNotAsked"
    single = next(each for each in plan.refused if each.pod == "default/single")
    assert [why.name for why in single.reasons] == ["NodeNotAsked", "SingleReplica"]
    assert "default/elsewhere" not in {each.pod for each in world.plan().refused}
    assert ("NodeNotAsked", 2) in {(s.reason, s.pods) for s in world.plan().staying}


def test_a_more_important_pod_says_that_others_are_enough() -> None:
    world = hot_world()
    world.pod("low2", "n1", 10.0)
    found = reasons(world.plan())
    assert found["high"] == "HigherPriority"


def test_no_pod_claims_to_be_unneeded_on_a_node_whose_goal_is_unmet() -> None:
    world = PlannerWorld(config=HOT)
    for name in ("n1", "n2"):
        world.node(name)
    for number in range(6):
        world.pod(f"p{number}", "n1", 16.0)
    world.pod("rest", "n2", 70.0)
    plan = world.plan()
    assert [unmet.why.name for unmet in plan.unmet] == ["LargerThanAnyRoom"]
    assert set(reasons(plan).values()) == {"AboveCeiling"}
