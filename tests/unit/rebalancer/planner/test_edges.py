# SPDX-License-Identifier: Apache-2.0
"""Odd clusters: an empty plan that says why, or a plan, and never an error."""

from __future__ import annotations

import pytest

from tests.support.worlds.planner import PlannerWorld, everything_moves

BOTH = {"enabledStrategies": ["ResourceOptimization", "LoadBalancing", "NodeMaintenance"]}


def test_an_empty_cluster_has_an_empty_plan() -> None:
    plan = PlannerWorld(config=BOTH).plan()
    assert (plan.moves, plan.unmet, plan.goals, plan.nodes) == ((), (), (), ())
    assert plan.plan_id.startswith("plan-")


def test_one_hot_node_has_nowhere_to_send_its_pods() -> None:
    world = PlannerWorld(config=BOTH)
    world.node("n1")
    for number in range(9):
        world.pod(f"web-{number}", "n1", 10.0)
    plan = world.plan(judged=everything_moves)
    assert plan.moves == ()
    assert [(u.goal, u.why.name) for u in plan.unmet] == [
        ("n1 below 80 % CPU and 80 % memory", "NoTarget")
    ]


def test_where_all_nodes_are_hot_the_reason_is_room() -> None:
    world = PlannerWorld(config=BOTH)
    for node in ("n1", "n2", "n3"):
        world.node(node)
        for number in range(9):
            world.pod(f"{node}-{number}", node, 10.0)
    plan = world.plan(judged=everything_moves)
    assert plan.moves == ()
    assert {u.why.name for u in plan.unmet} == {"LargerThanAnyRoom"}


def test_without_any_metrics_nothing_is_planned() -> None:
    world = PlannerWorld(config=BOTH)
    for node in ("n1", "n2", "n3"):
        world.node(node, measured=False)
        world.pod(f"{node}-a", node, 95.0)
    plan = world.plan(judged=everything_moves)
    assert plan.moves == ()
    assert plan.notes
    assert {node.unknown for node in plan.nodes} == {"NoSample"}


def test_a_pod_larger_than_every_other_node_stays() -> None:
    world = PlannerWorld(config={"enabledStrategies": ["ResourceOptimization"]})
    world.node("large", size=2.0)
    world.node("small")
    world.pod("giant", "large", 190.0)
    plan = world.plan(judged=everything_moves)
    assert plan.moves == ()
    assert [u.why.name for u in plan.unmet] == ["LargerThanAnyRoom"]


def test_a_node_with_a_great_many_pods_is_planned_for() -> None:
    world = PlannerWorld(config={"enabledStrategies": ["ResourceOptimization"], "minGain": 0})
    world.node("n1", pods=3000)
    world.node("n2", pods=3000)
    for number in range(1000):
        world.pod(f"p-{number}", "n1", 0.09)
    plan = world.plan(judged=everything_moves)
    assert plan.unmet == ()
    assert len(plan.moves) <= 1.05 * plan.lower_bound.evictions


def test_ten_thousand_small_pods_level_no_pool() -> None:
    world = PlannerWorld(config={"enabledStrategies": ["LoadBalancing"]})
    world.node("n1", pods=30_000)
    world.node("n2", pods=30_000)
    for number in range(10_000):
        world.pod(f"p-{number}", "n1", 0.009)
    plan = world.plan(judged=everything_moves)
    assert plan.moves == ()
    assert {u.why.name for u in plan.unmet} <= {"NotWorthIt", "NoCombination"}
    assert plan.evaluations < 100


@pytest.mark.parametrize(
    ("high", "share", "evictions"),
    [
        (70.0, 0.625, 4),
        (67.3, 0.625, 0),  # within the margin, samples would send pods back and forth
        (70.0, 0.05, 0),
    ],
)
def test_small_pods_level_a_pool_that_is_clearly_uneven(
    high: float, share: float, evictions: int
) -> None:
    world = PlannerWorld(config={"enabledStrategies": ["LoadBalancing"]})
    world.node("n0", pods=200, overhead=high - 100 * share)
    for number in range(100):
        world.pod(f"p-{number}", "n0", share)
    for name in ("n1", "n2"):
        world.node(name, overhead=47.0 - share)
        world.pod(f"there-{name}", name, share)
    plan = world.plan(judged=everything_moves)
    assert (len(plan.moves), bool(plan.unmet)) == (evictions, not evictions)


def test_where_nothing_fits_little_is_asked() -> None:
    plans = []
    for cold in (20.0, 79.99):
        world = PlannerWorld(config={"enabledStrategies": ["ResourceOptimization"]})
        for number in range(12):
            world.node(f"n{number}", overhead=0.0 if number < 3 else cold)
        for number in range(30):
            world.pod(f"p{number}", f"n{number % 3}", 9.0)
        plans.append(world.plan(judged=everything_moves))
    fits, nothing = plans
    assert (fits.unmet, nothing.moves) == ((), ())
    assert nothing.evaluations <= fits.evaluations


def test_a_node_without_movable_pods_says_so() -> None:
    world = PlannerWorld(config={"enabledStrategies": ["ResourceOptimization"]})
    world.node("n1")
    world.node("n2")
    world.pod("bare", "n1", 95.0, kind="none")
    plan = world.plan()
    assert [u.why.name for u in plan.unmet] == ["NoMovablePod"]
    assert [r.name for r in plan.refused[0].reasons] == ["BarePod"]


def test_a_ceiling_that_is_met_is_worth_its_evictions_on_a_node_of_any_size() -> None:
    for pods, share in ((21, 4.3), (600, 0.15), (6000, 0.015)):
        world = PlannerWorld(config={"enabledStrategies": ["ResourceOptimization"]})
        world.node("n1", pods=30_000)
        world.node("n2", pods=30_000)
        for number in range(pods):
            world.pod(f"p-{number}", "n1", share)
        plan = world.plan(judged=everything_moves)
        assert plan.unmet == ()
        assert len(plan.moves) == plan.lower_bound.evictions > 0


def test_a_ceiling_out_of_reach_is_approached_while_each_eviction_gains_enough() -> None:
    world = PlannerWorld(config={"enabledStrategies": ["ResourceOptimization"], "minGain": 2.0})
    world.node("n1")
    world.node("n2", overhead=74.0)
    for number in range(9):
        world.pod(f"large-{number}", "n1", 9.5)
    for number in range(2):
        world.pod(f"medium-{number}", "n1", 2.5)
        world.pod(f"small-{number}", "n1", 1.5)
    plan = world.plan(judged=everything_moves)
    assert sorted(move.pod for move in plan.moves) == ["default/medium-0", "default/medium-1"]
    [unmet] = plan.unmet
    assert "88.5 % CPU" in unmet.why.message


def test_an_excess_within_the_margin_is_no_goal() -> None:
    world = PlannerWorld(config={"enabledStrategies": ["ResourceOptimization"]})
    world.node("n1", pods=30_000)
    world.node("n2")
    for number in range(401):
        world.pod(f"p-{number}", "n1", 0.2)
    plan = world.plan(judged=everything_moves)
    assert (plan.goals, plan.moves) == ((), ())


def test_a_low_threshold_of_a_pool_is_met_by_nodes_that_use_more_and_may() -> None:
    pools = [{"name": "calm", "nodeSelector": "pool=calm", "cpuThreshold": 40.0}]
    world = PlannerWorld(config={"enabledStrategies": ["ResourceOptimization"], "pools": pools})
    world.node("low", labels={"pool": "calm"})
    for number in range(9):
        world.pod(f"low-{number}", "low", 5.0)
    for node, load in (("n1", 60.0), ("n2", 62.0)):
        world.node(node)
        world.pod(f"{node}-a", node, load)
    plan = world.plan(judged=everything_moves)
    assert [(m.source, m.target) for m in plan.moves] == [("low", "n1")]
    assert plan.unmet == ()
