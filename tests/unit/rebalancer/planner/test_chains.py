# SPDX-License-Identifier: Apache-2.0
"""Chains, gain and spread: what several moves are together."""

from __future__ import annotations

import numpy as np
import pytest

from rebalancer.planner import make_plan
from rebalancer.planner.constraints import gained, not_worth_it
from rebalancer.planner.pod_sets import covering, sizes
from simulator import build
from tests.support.oracles.plan_checker import faults
from tests.support.worlds.planner import PlannerWorld, everything_moves
from tests.support.worlds.wire import wire_pod

HOT_ONLY = {"enabledStrategies": ["ResourceOptimization"]}
LEVEL_ONLY = {"enabledStrategies": ["LoadBalancing"], "fillLowNodes": "always"}


def full_house() -> PlannerWorld:
    """Return a cluster where the only fitting target must be left by another pod first."""
    world = PlannerWorld(config=HOT_ONLY)
    for name in ("n1", "n2", "n3"):
        world.node(name)
    world.node("special", labels={"disk": "ssd"})
    only = {"nodeSelector": {"disk": "ssd"}}
    world.pod("picky", "n1", 30.0, spec=only)
    world.pod("rooted", "n1", 60.0, spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    world.pod("lodger", "special", 20.0)
    world.pod("resident", "special", 45.0, spec=only)
    return world


def test_a_pod_that_needs_room_waits_for_the_one_that_leaves_it() -> None:
    demand = full_house().demand(judged=everything_moves)
    plan = make_plan(demand)
    assert faults(demand, plan) == []
    first, second = plan.moves
    assert (first.pod, first.source, first.reason) == ("default/lodger", "special", "MakesRoom")
    assert (second.pod, second.target) == ("default/picky", "special")
    assert second.needs == (first.uid,)
    assert first.chain == second.chain
    assert plan.unmet == ()


def rooted(node: str) -> dict[str, object]:
    """Return what keeps a pod on a node."""
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


def test_who_makes_room_for_maintenance_need_not_gain_by_it() -> None:
    world = PlannerWorld(config={"enabledStrategies": ["NodeMaintenance"]})
    world.node("busy", overhead=79.0)
    world.node("n1", maintenance=True)
    world.node("n2", labels={"disk": "ssd"})
    world.node("n3")
    world.pod("picky", "n1", 30.0, spec={"nodeSelector": {"disk": "ssd"}})
    world.pod("stays", "n2", 45.0, spec=rooted("n2"))
    world.pod("lodger", "n2", 20.0)
    world.pod("there", "n3", 55.0, spec=rooted("n3"))
    demand = world.demand(judged=everything_moves)
    plan = make_plan(demand)
    assert faults(demand, plan) == []
    assert plan.unmet == ()
    assert [(m.pod, m.target, m.reason) for m in plan.moves] == [
        ("default/lodger", "n3", "MakesRoom"),
        ("default/picky", "n2", "Maintenance"),
    ]


def test_room_is_made_for_who_makes_room() -> None:
    world = PlannerWorld(config={"enabledStrategies": ["NodeMaintenance"]})
    world.node("busy", overhead=79.0)
    world.node("n1", maintenance=True)
    for name, disk in (("n2", "a"), ("n3", "b"), ("n4", "c")):
        world.node(name, labels={"disk": disk})
    world.pod("first", "n1", 40.0, spec={"nodeSelector": {"disk": "a"}})
    world.pod("second", "n2", 30.0, spec=among("a", "b"))
    world.pod("third", "n3", 20.0, spec=among("b", "c"))
    for node, load in (("n2", 30.0), ("n3", 35.0), ("n4", 50.0)):
        world.pod(f"rooted-{node}", node, load, spec=rooted(node))
    demand = world.demand(judged=everything_moves)
    plan = make_plan(demand)
    assert faults(demand, plan) == []
    assert plan.unmet == ()
    assert [(m.pod, m.target) for m in plan.moves] == [
        ("default/third", "n4"),
        ("default/second", "n3"),
        ("default/first", "n2"),
    ]
    assert len({m.chain for m in plan.moves}) == 1


def among(*disks: str) -> dict[str, object]:
    """Return that a pod may run on nodes with these disks."""
    wanted = {"key": "disk", "operator": "In", "values": list(disks)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    node = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    return {"affinity": {"nodeAffinity": node}}


def test_moves_that_do_not_wait_for_each_other_are_chains_of_their_own() -> None:
    world = PlannerWorld(config=HOT_ONLY)
    for name in ("n1", "n2", "n3"):
        world.node(name)
    for number in range(5):
        world.pod(f"web-{number}", "n1", 23.0)
    plan = world.plan(judged=everything_moves)
    assert [move.chain for move in plan.moves] == [0, 1]
    assert all(move.needs == () for move in plan.moves)


@pytest.mark.parametrize(
    ("before", "after", "gain"),
    [
        ([90, 40], [80, 50], 10),
        ([90, 40], [40, 90], 0),
        ([70, 40], [30, 80], -10),
        ([70, 70, 20], [70, 60, 30], 10),
    ],
)
def test_the_first_difference_from_the_top_is_what_is_gained(
    before: list[float], after: list[float], gain: float
) -> None:
    assert gained(np.array(before, dtype=float), np.array(after, dtype=float)) == gain


def test_each_eviction_of_a_chain_has_to_gain_its_share() -> None:
    before, after = np.array([[70.0, 0.0], [40.0, 0.0]]), np.array([[68.5, 0.0], [41.5, 0.0]])
    assert not_worth_it(before, after, axes=[0], evictions=1, min_gain=1.0) is None
    refusal = not_worth_it(before, after, axes=[0], evictions=2, min_gain=1.0)
    assert refusal is not None
    assert refusal.name == "NotWorthIt"
    assert "1.5 points" in refusal.message
    assert "2.0 are required" in refusal.message


def test_the_fewest_pods_cover_both_resources_at_once() -> None:
    loads = np.array([[10.0, 1.0], [1.0, 10.0], [6.0, 6.0], [1.0, 1.0]])
    excess = np.array([6.0, 6.0])
    assert next(sizes(loads, excess)) == 1
    assert covering(loads, excess, 1).tolist() == [[2]]
    assert list(sizes(loads, np.array([100.0, 1.0]))) == []


def test_an_uneven_pool_is_brought_together_with_few_moves() -> None:
    world = PlannerWorld(config=LEVEL_ONLY)
    for name in ("n1", "n2", "n3"):
        world.node(name)
    for number in range(6):
        world.pod(f"a-{number}", "n1", 10.0)
    for number in range(2):
        world.pod(f"b-{number}", "n2", 10.0)
        world.pod(f"c-{number}", "n3", 10.0)
    demand = world.demand(judged=everything_moves)
    plan = make_plan(demand)
    assert faults(demand, plan) == []
    assert plan.unmet == ()
    assert len(plan.moves) == 2
    assert {move.reason for move in plan.moves} == {"Spread"}


def test_a_large_pool_is_brought_together_too() -> None:
    world = PlannerWorld(config=LEVEL_ONLY)
    names = [f"n{number:03}" for number in range(510)]
    for number, name in enumerate(names):
        world.node(name)
        for pod in range(5 if number < 10 else 2):
            world.pod(f"{name}-{pod}", name, 12.0)
    plan = world.plan(judged=everything_moves)
    assert plan.unmet == ()
    assert len(plan.moves) == 20
    assert plan.lower_bound.evictions == 20


def test_large_pods_swap_places_where_none_can_move_alone() -> None:
    world = PlannerWorld(config={**LEVEL_ONLY, "imbalanceThreshold": 10.0})
    for name in ("n1", "n2"):
        world.node(name)
    world.pod("large", "n1", 40.0)
    world.pod("rooted", "n1", 10.0, spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    world.pod("small", "n2", 28.0)
    plan = world.plan(judged=everything_moves)
    assert plan.unmet == ()
    assert {(m.pod, m.target) for m in plan.moves} == {
        ("default/large", "n2"),
        ("default/small", "n1"),
    }


def test_where_low_nodes_are_not_filled_only_the_high_end_comes_down() -> None:
    world = PlannerWorld(config={**LEVEL_ONLY, "fillLowNodes": "never"})
    for name in ("n1", "n2", "n3", "idle"):
        world.node(name)
    for node in ("n1", "n2", "n3"):
        for number in range(5):
            world.pod(f"{node}-{number}", node, 9.0)
    assert world.plan(judged=everything_moves).moves == ()


def test_low_priority_goes_first_and_deletion_cost_counts() -> None:
    world = PlannerWorld(config=HOT_ONLY)
    world.node("n1")
    world.node("n2")
    world.pod("important", "n1", 20.0, spec={"priority": 1000})
    cost = {"controller.kubernetes.io/pod-deletion-cost": "50"}
    world.pod("costly", "n1", 20.0, annotations=cost)
    world.pod("cheap", "n1", 20.0)
    world.pod("urgent", "n1", 25.0, spec={"priority": 2000})
    plan = world.plan(judged=everything_moves)
    assert [move.pod for move in plan.moves] == ["default/cheap"]


@pytest.mark.parametrize("others", [True, False])
def test_a_drain_uses_a_node_that_starts_no_pods_only_as_the_last_resort(others: bool) -> None:
    world = PlannerWorld(config={"enabledStrategies": ["NodeMaintenance"]})
    world.node("n1", maintenance=True)
    world.node("n2")
    if others:
        world.node("n3")
        world.pod("busy", "n3", 40.0)
    world.pod("web", "n1", 10.0)
    waiting = {"name": "app", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    status = {"conditions": [], "containerStatuses": [waiting]}
    world.state.pods.upsert(wire_pod(build.pod("stuck", node="n2"), status=status))
    [move] = world.plan(judged=everything_moves).moves
    assert move.target == ("n3" if others else "n2")
    assert ("last resort" in move.message) is not others


def test_maintenance_piles_replicas_up_only_as_the_last_resort() -> None:
    world = PlannerWorld(config={"enabledStrategies": ["NodeMaintenance"]})
    world.node("n1", maintenance=True)
    world.node("n2")
    for number in range(2):
        world.pod(f"web-{number}", "n1" if not number else "n2", 10.0, owner="web")
    plan = world.plan(judged=everything_moves)
    assert [(m.pod, m.target) for m in plan.moves] == [("default/web-0", "n2")]
    assert "last resort" in plan.moves[0].message


def test_a_pod_leaves_a_node_that_has_load_to_spare_and_no_place_for_another_pod() -> None:
    """The node with room for the large pod runs as many pods as it may; one of them moves on."""
    world = PlannerWorld(config={"enabledStrategies": ["ResourceOptimization"]})
    world.node("full", pods=2)
    world.node("hot")
    world.node("other")
    world.pod("small", "full", 10.0, asks=1.0)
    world.pod("there", "full", 30.0, asks=1.0)
    for name in "abc":
        world.pod(name, "hot", 30.0, asks=1.0)
    world.pod("rest", "other", 68.0, asks=1.0)
    demand = world.demand(judged=everything_moves)
    plan = make_plan(demand)
    assert plan.unmet == ()
    assert [(move.source, move.target) for move in plan.moves] == [
        ("full", "other"),
        ("hot", "full"),
    ]
    assert plan.lower_bound.evictions <= 2
    assert faults(demand, plan) == []
