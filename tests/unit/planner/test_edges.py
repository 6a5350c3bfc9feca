"""Odd clusters: an empty plan that says why, or a plan, and never an error."""

from __future__ import annotations

from tests.support.planner_world import PlannerWorld, everything_moves

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
        ("AtMost n1 cpu 80 %, memory 80 %", "NoTarget")
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


def test_ten_thousand_small_pods_are_not_worth_their_evictions() -> None:
    world = PlannerWorld(config={"enabledStrategies": ["ResourceOptimization", "LoadBalancing"]})
    world.node("n1", pods=30_000)
    world.node("n2", pods=30_000)
    for number in range(10_000):
        world.pod(f"p-{number}", "n1", 0.009)
    plan = world.plan(judged=everything_moves)
    assert plan.moves == ()
    assert {u.why.name for u in plan.unmet} <= {"NotWorthIt", "NoCombination"}
    assert plan.evaluations < 100


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


def test_what_does_not_gain_enough_is_refused_with_the_numbers() -> None:
    world = PlannerWorld(config={"enabledStrategies": ["ResourceOptimization"], "minGain": 5.0})
    world.node("n1")
    world.node("n2")
    for number in range(21):
        world.pod(f"p-{number}", "n1", 3.9)
    plan = world.plan(judged=everything_moves)
    assert plan.moves == ()
    why = plan.unmet[0].why
    assert why.name == "NotWorthIt"
    assert "3.9" in why.words
    assert "5.0" in why.words
