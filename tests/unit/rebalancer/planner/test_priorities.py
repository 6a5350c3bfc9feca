# SPDX-License-Identifier: Apache-2.0
"""Low priority first: no pod leaves while pods of lower priority on its node could do."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.planner import Plan
from tests.support.worlds.planner import PlannerWorld

HOT = {"enabledStrategies": ["ResourceOptimization"]}
LEVEL = {"enabledStrategies": ["LoadBalancing"], "fillLowNodes": "always"}
FEWEST: dict[str, Any] = {"priorityPolicy": "FewestEvictions"}


def priority(value: int) -> dict[str, Any]:
    return {"spec": {"priority": value}}


def hot(*pods: tuple[float, int], fixed: float = 60.0, **config: Any) -> PlannerWorld:
    """Return a node of which pods of some sizes and priorities may go, and an empty one."""
    world = PlannerWorld(config={**HOT, **config})
    world.node("n1")
    world.node("n2")
    world.pod("fixed", "n1", fixed, kind="none")
    for number, (load, value) in enumerate(pods):
        world.pod(f"p{number}", "n1", load, **priority(value))
    return world


def moved(plan: Plan) -> list[str]:
    assert plan.unmet == ()
    return sorted(move.pod.removeprefix("default/") for move in plan.moves)


SMALL_AND_LARGE = ((8.0, 0), (8.0, 0), (8.0, 0), (20.0, 1000))


def test_three_unimportant_pods_go_instead_of_an_important_one() -> None:
    plan = hot(*SMALL_AND_LARGE, fixed=58.0).plan()
    assert moved(plan) == ["p0", "p1", "p2"]
    assert plan.lower_bound.evictions == 3
    assert plan.fewest_evictions == 2


def test_the_other_policy_takes_the_fewest() -> None:
    plan = hot(*SMALL_AND_LARGE, fixed=58.0, **FEWEST).plan()
    assert len(moved(plan)) == plan.lower_bound.evictions == plan.fewest_evictions == 2
    assert "p3" in moved(plan)


def test_the_lowest_priority_that_is_enough_decides() -> None:
    plan = hot((4.0, 0), (9.0, 10), (9.0, 10), (20.0, 100), fixed=56.0).plan()
    assert moved(plan) == ["p1", "p2"]
    assert plan.fewest_evictions == 1


def test_of_the_pods_that_may_go_the_fewest_do() -> None:
    """Once priority 10 is needed, one pod of it may replace many of a lower one."""
    assert moved(hot((2.0, 0), (2.0, 0), (12.0, 10), (20.0, 99), fixed=54.0).plan()) == ["p2"]


def test_pods_that_can_go_nowhere_do_not_count() -> None:
    world = hot((20.0, 1000), fixed=54.0)
    rooted = {"nodeSelector": {"kubernetes.io/hostname": "n1"}, "priority": 0}
    for number in range(3):
        world.pod(f"rooted{number}", "n1", 8.0, spec=rooted)
    plan = world.plan()
    assert moved(plan) == ["p0"]
    assert plan.lower_bound_all.evictions == plan.lower_bound.evictions == 1


def crowded(helper: int, **config: Any) -> PlannerWorld:
    """Return a hot node whose only pod fits where another one has to make room first."""
    world = PlannerWorld(config={**HOT, **config})
    for name in ("n1", "n2", "n3"):
        world.node(name)
    world.pod("fixed1", "n1", 70.0, kind="none")
    world.pod("goes", "n1", 20.0, **priority(0))
    world.pod("fixed2", "n2", 50.0, kind="none")
    world.pod("helper", "n2", 15.0, **priority(helper))
    world.pod("fixed3", "n3", 63.0, kind="none")
    return world


def test_a_helper_is_no_more_important_where_it_can_be_avoided() -> None:
    assert moved(crowded(helper=0).plan()) == ["goes", "helper"]
    plan = crowded(helper=0).plan()
    assert plan.fewest_evictions == 2


def test_a_more_important_helper_moves_only_if_nothing_else_meets_the_goal() -> None:
    world = crowded(helper=100)
    assert moved(world.plan()) == ["goes", "helper"]
    world = crowded(helper=100)
    world.node("n4")
    world.pod("fixed4", "n4", 50.0, kind="none")
    world.pod("other", "n4", 14.0, **priority(0))
    assert moved(world.plan()) == ["goes", "other"]


@pytest.mark.parametrize(("config", "expected"), [({}, ["p0", "p1"]), (FEWEST, ["p2"])])
def test_a_pool_is_leveled_by_its_unimportant_pods(
    config: dict[str, Any], expected: list[str]
) -> None:
    world = PlannerWorld(config={**LEVEL, **config})
    for name in ("n1", "n2", "n3"):
        world.node(name)
    for name, load in (("n1", 30.0), ("n2", 25.0), ("n3", 25.0)):
        world.pod(f"fixed-{name}", name, load, kind="none")
    for number, (load, value) in enumerate([(7.0, 0), (7.0, 0), (14.0, 100)]):
        world.pod(f"p{number}", "n1", load, **priority(value))
    assert moved(world.plan()) == expected


def test_a_goal_out_of_reach_is_approached_whatever_the_priorities() -> None:
    world = hot((5.0, 0), (5.0, 100), fixed=90.0)
    plan = world.plan()
    assert [unmet.why.name for unmet in plan.unmet] == ["MovablePodsTooFew"]
    assert len(plan.moves) == 2


def test_a_drained_node_is_emptied_of_all_its_pods() -> None:
    world = PlannerWorld(config={"enabledStrategies": ["NodeMaintenance"]})
    world.node("n1", maintenance=True)
    world.node("n2")
    world.pod("low", "n1", 10.0, **priority(0))
    world.pod("high", "n1", 10.0, **priority(1000))
    assert moved(world.plan()) == ["high", "low"]


def test_with_one_priority_both_policies_make_the_same_plan() -> None:
    pods = ((10.0, 7), (11.0, 7), (12.0, 7))
    low, fewest = hot(*pods).plan(), hot(*pods, **FEWEST).plan()
    assert low.moves == fewest.moves
    assert low.fewest_evictions == fewest.fewest_evictions == len(low.moves)
