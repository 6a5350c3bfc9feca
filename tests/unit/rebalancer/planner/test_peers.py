# SPDX-License-Identifier: Apache-2.0
"""What users of other deschedulers suffer, row by row of the list of peers."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.planner import Plan
from tests.support.worlds.planner import PlannerWorld, everything_moves

HOT_ONLY = {"enabledStrategies": ["ResourceOptimization"]}


def hot_world(nodes: int = 3, **config: Any) -> PlannerWorld:
    """Return nodes n1, n2 … of which the tests make n1 hot."""
    world = PlannerWorld(config={**HOT_ONLY, **config})
    for number in range(1, nodes + 1):
        world.node(f"n{number}")
    return world


def moves(plan: Plan) -> list[tuple[str, str, str]]:
    return [(m.pod.removeprefix("default/"), m.source, m.target) for m in plan.moves]


def test_2_a_pod_too_large_for_any_node_does_not_wander() -> None:
    world = PlannerWorld(config={"enabledStrategies": ["LoadBalancing"], "fillLowNodes": "always"})
    world.node("n1")
    world.node("n2")
    world.pod("giant", "n1", 70.0)
    plan = world.plan(judged=everything_moves)
    assert plan.moves == ()
    assert [unmet.goal for unmet in plan.unmet] == [
        "all nodes within 20 points of CPU",
        "all nodes within 20 points of memory",
    ]


def test_3_one_pod_goes_where_one_suffices_and_twenty_idle_ones_stay() -> None:
    world = hot_world()
    for number in range(20):
        world.pod(f"idle-{number}", "n1", 0.1)
    world.pod("busy", "n1", 30.0)
    world.pod("base", "n1", 55.0, spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    plan = world.plan(judged=everything_moves)
    assert moves(plan) == [("busy", "n1", "n2")]
    assert plan.lower_bound.evictions == 1


def test_4_no_more_pods_leave_than_there_is_room_for() -> None:
    world = hot_world(nodes=2)
    for number in range(15):
        world.pod(f"web-{number}", "n1", 8.0)
    world.pod("full", "n2", 63.0)
    plan = world.plan(judged=everything_moves)
    assert len(plan.moves) == 2
    assert [unmet.goal for unmet in plan.unmet] == ["n1 below 80 % CPU and 80 % memory"]


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"disk": "ssd"}},
        {"containers": [{"name": "app", "ports": [{"containerPort": 80, "hostPort": 80}]}]},
    ],
    ids=["selector", "host port"],
)
def test_5_a_pod_goes_only_where_the_scheduler_would_let_it(spec: dict[str, Any]) -> None:
    world = hot_world(nodes=2)
    world.node("n3", labels={"disk": "ssd"})
    world.pod("a", "n1", 30.0, spec=spec)
    world.pod("b", "n1", 60.0, spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    world.pod("c", "n2", 1.0, spec=spec)
    plan = world.plan(judged=everything_moves)
    assert moves(plan) == [("a", "n1", "n3")]


def test_6_a_node_takes_pods_as_long_as_it_stays_under_its_ceiling() -> None:
    world = hot_world(nodes=2)
    for number in range(9):
        world.pod(f"a-{number}", "n1", 10.0)
    for number in range(7):
        world.pod(f"b-{number}", "n2", 9.0)
    plan = world.plan(judged=everything_moves)
    assert [(m.source, m.target) for m in plan.moves] == [("n1", "n2")]
    assert plan.unmet == ()


def test_7_the_dominant_resource_ranks_targets() -> None:
    world = hot_world()
    world.pod("a", "n1", (30.0, 1.0))
    world.pod("b", "n1", (60.0, 1.0), spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    world.pod("c", "n2", (1.0, 70.0))
    world.pod("d", "n3", (30.0, 30.0))
    plan = world.plan(judged=everything_moves)
    assert moves(plan) == [("a", "n1", "n3")]


def test_10_not_all_replicas_of_a_workload_move_at_once() -> None:
    world = hot_world(nodes=5)
    for number in range(3):
        world.pod(f"web-{number}", "n1", 32.0, owner="web", replicas=3)
    plan = world.plan(judged=everything_moves)
    assert sum(move.this_cycle for move in plan.moves) <= 1


def test_11_a_spent_budget_puts_moves_off_and_says_so() -> None:
    world = hot_world(nodes=5)
    for number in range(8):
        world.pod(f"web-{number}", "n1", 15.0, owner="web", replicas=8)
    world.pdb("web", {"app": "web"}, allowed=1, healthy=8)
    plan = world.plan()
    assert [m.deferred_by for m in plan.moves] == ["", *["PodDisruptionBudget"] * 2]


def test_11_several_budgets_on_one_pod_are_a_reason_not_a_wedge() -> None:
    world = hot_world()
    world.pod("a", "n1", 45.0, owner="web")
    world.pod("b", "n1", 45.0, owner="other")
    for name in ("one", "two"):
        world.pdb(name, {"app": "web"}, allowed=1)
    plan = world.plan()
    assert [m.pod for m in plan.moves] == ["default/b"]
    assert [r.name for p in plan.refused if p.pod == "default/a" for r in p.reasons] == [
        "SeveralPdbs"
    ]


def test_12_the_same_hole_is_not_promised_twice() -> None:
    world = hot_world(nodes=1)
    world.node("m1")
    world.node("n2")
    for source in ("n1", "m1"):
        world.pod(f"{source}-a", source, 20.0)
        world.pod(
            f"{source}-b", source, 70.0, spec={"nodeSelector": {"kubernetes.io/hostname": source}}
        )
    world.pod("there", "n2", 50.0)
    plan = world.plan(judged=everything_moves)
    assert len(plan.moves) == 1
    assert len(plan.unmet) == 1


def test_16_where_nothing_fits_hardly_anything_is_asked() -> None:
    world = hot_world(nodes=20)
    for number in range(1, 21):
        for pod in range(10):
            world.pod(f"p-{number}-{pod}", f"n{number}", 8.5)
    plan = world.plan(judged=everything_moves)
    assert plan.moves == ()
    assert len(plan.unmet) == 20
    assert plan.evaluations < 1000


def test_21_load_decides_where_requests_mislead() -> None:
    world = hot_world()
    world.pod("hungry", "n1", 45.0, asks=0.1)
    world.pod("busy", "n1", 45.0, asks=0.1)
    world.pod("idle-asker", "n2", 1.0, asks=70.0)
    world.pod("worker", "n3", 70.0, asks=0.1)
    plan = world.plan(judged=everything_moves)
    assert [(m.source, m.target) for m in plan.moves] == [("n1", "n2")]
