# SPDX-License-Identifier: Apache-2.0
"""Pods return to nodes that they prefer, once, and no move for load takes them away again."""

from __future__ import annotations

import random
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.config import Strategy
from tests.support.worlds.planner import PlannerWorld

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SOFT = {"key": "dear", "effect": "PreferNoSchedule"}
STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
SPOT = {"pool": "spot"}


def prefers(**weights: int) -> dict[str, Any]:
    """Return a pod's affinity for pools."""
    terms = [
        {
            "weight": weight,
            "preference": {
                "matchExpressions": [{"key": "pool", "operator": "In", "values": [pool]}]
            },
        }
        for pool, weight in weights.items()
    ]
    return {"affinity": {"nodeAffinity": {PREFERRED: terms}}}


def cluster(*others: str, **config: Any) -> PlannerWorld:
    enabled = ["PreferredNodes", *others]
    return PlannerWorld(config={"enabledStrategies": enabled, "fillLowNodes": "always", **config})


def test_a_pod_goes_to_the_nodes_that_it_prefers() -> None:
    world = cluster()
    world.node("dear")
    world.node("spot", labels=SPOT)
    world.pod("web-0", "dear", 5.0, owner="web", spec=prefers(spot=100))
    world.pod("db-0", "dear", 5.0, owner="db")
    plan = world.plan()
    [move] = plan.moves
    assert (move.pod, move.target) == ("default/web-0", "spot")
    assert (move.strategy, move.reason) == (Strategy.PREFERRED_NODES, "Preference")
    assert move.message == (
        "default/web-0 prefers other nodes to dear: its node affinity prefers others with 100 to 0"
    )
    assert plan.unmet == ()
    assert world.after(plan).plan().goals == ()


def test_weights_add_up_and_the_best_nodes_come_first() -> None:
    world = cluster()
    world.node("now")
    for name in ("good", "better"):
        world.node(name, labels={"pool": name})
    world.pod("web-0", "now", 5.0, owner="web", spec=prefers(good=10, better=11))
    assert [move.target for move in world.plan().moves] == ["better"]


def test_the_second_best_is_taken_where_the_best_has_no_room() -> None:
    world = cluster()
    world.node("now")
    for name in ("good", "better"):
        world.node(name, labels={"pool": name})
    world.pod("full", "better", 79.0, owner="full")
    world.pod("web-0", "now", 5.0, owner="web", spec=prefers(good=10, better=11))
    assert [move.target for move in world.plan().moves] == ["good"]


def test_without_room_there_is_no_goal() -> None:
    world = cluster()
    world.node("now")
    world.node("spot", labels=SPOT)
    world.pod("full", "spot", 79.0, owner="full")
    world.pod("web-0", "now", 5.0, owner="web", spec=prefers(spot=10))
    assert world.plan().goals == ()


def test_pods_leave_nodes_with_a_soft_taint_that_they_do_not_tolerate() -> None:
    world = cluster()
    world.node("dear", taints=[SOFT])
    world.node("free")
    tolerant = {"tolerations": [{"key": "dear", "operator": "Exists"}]}
    world.pod("web-0", "dear", 5.0, owner="web")
    world.pod("own-0", "dear", 5.0, owner="own", spec=tolerant)
    [move] = world.plan().moves
    assert (move.pod, move.target) == ("default/web-0", "free")
    assert move.message.endswith("it does not tolerate the taint dear:PreferNoSchedule")


def test_a_soft_taint_weighs_more_than_affinity() -> None:
    world = cluster()
    world.node("spot", labels=SPOT, taints=[SOFT])
    world.node("free")
    world.pod("web-0", "spot", 5.0, owner="web", spec=prefers(spot=100))
    plan = world.plan()
    assert [move.target for move in plan.moves] == ["free"]
    assert world.after(plan).plan().goals == ()


@pytest.mark.parametrize(
    "key", ["DeletionCandidateOfClusterAutoscaler", "node.kubernetes.io/out-of-disk"]
)
def test_a_taint_for_a_while_is_no_reason(key: str) -> None:
    world = cluster()
    world.node("now", taints=[{"key": key, "effect": "PreferNoSchedule"}])
    world.node("free")
    world.pod("web-0", "now", 5.0, owner="web")
    assert world.plan().goals == ()


def test_a_preferred_node_that_is_cordoned_takes_no_pods() -> None:
    world = cluster()
    world.node("now")
    world.node("spot", labels=SPOT, unschedulable=True)
    world.pod("web-0", "now", 5.0, owner="web", spec=prefers(spot=10))
    assert world.plan().goals == ()


def test_the_preferred_nodes_are_filled_only_up_to_their_ceilings() -> None:
    world = cluster(cpuThreshold=50.0)
    world.node("now")
    world.node("spot", labels=SPOT)
    for number in range(6):
        world.pod(f"web-{number}", "now", 12.0, owner=f"web-{number}", spec=prefers(spot=1))
    plan = world.plan()
    assert len(plan.moves) == 4
    assert {unmet.why.name for unmet in plan.unmet} == {"AboveCeiling"}
    assert world.after(plan).plan().goals == ()


def test_a_node_above_its_ceiling_gives_no_pods_to_nodes_that_suit_them_less() -> None:
    def hot(*enabled: str) -> PlannerWorld:
        world = PlannerWorld(config={"enabledStrategies": ["ResourceOptimization", *enabled]})
        world.node("spot", labels=SPOT)
        world.node("dear")
        world.pod("big", "spot", 70.0, owner="big", annotations=STAYS)
        world.pod("web-0", "spot", 15.0, owner="web", spec=prefers(spot=10))
        return world

    assert [move.target for move in hot().plan().moves] == ["dear"]
    plan = hot("PreferredNodes").plan()
    assert plan.moves == ()
    [unmet] = plan.unmet
    assert unmet.why.name == "LessPreferred"
    words = "dear suits its preferred node affinity less than its node (PreferredNodes)"
    assert words in unmet.why.message


def test_a_level_pool_is_not_made_uneven() -> None:
    world = cluster("LoadBalancing")
    world.node("now")
    world.node("spot", labels=SPOT)
    world.pod("one", "now", 40.0, owner="one")
    world.pod("two", "spot", 50.0, owner="two")
    world.pod("web-0", "now", 15.0, owner="web", spec=prefers(spot=10))
    plan = world.plan()
    assert plan.moves == ()
    assert [unmet.why.name for unmet in plan.unmet] == ["LevelsLost"]


def test_a_pod_that_violates_a_rule_may_go_to_a_node_that_suits_it_less() -> None:
    world = cluster("Violations")
    world.node("spot", labels=SPOT, taints=[{"key": "team", "effect": "NoSchedule"}])
    world.node("dear")
    world.pod("web-0", "spot", 5.0, owner="web", spec=prefers(spot=10))
    [move] = world.plan().moves
    assert (move.target, move.strategy) == ("dear", Strategy.VIOLATIONS)


def test_a_drain_may_go_there_as_the_last_resort() -> None:
    world = cluster("NodeMaintenance")
    world.node("spot", labels=SPOT, maintenance=True)
    world.node("dear")
    world.pod("web-0", "spot", 5.0, owner="web", spec=prefers(spot=10))
    [move] = world.plan().moves
    assert (move.target, move.strategy) == ("dear", Strategy.NODE_MAINTENANCE)


def test_nothing_is_planned_unless_it_is_enabled() -> None:
    world = PlannerWorld(config={"enabledStrategies": ["ResourceOptimization"]})
    world.node("now")
    world.node("spot", labels=SPOT)
    world.pod("web-0", "now", 5.0, owner="web", spec=prefers(spot=10))
    assert world.plan().goals == ()


def drawn(seed: int, *enabled: str) -> PlannerWorld:
    dice = random.Random(seed)
    world = cluster(*enabled, imbalanceThreshold=dice.choice([10.0, 20.0, 40.0]))
    pools = ("spot", "cheap", "dear")
    for number in range(dice.randint(2, 4)):
        soft = [SOFT] if dice.random() < 0.2 else []
        world.node(f"n{number}", labels={"pool": dice.choice(pools)}, taints=soft)
    nodes = list(world.made_nodes)
    for number in range(dice.randint(1, 7)):
        wishes = {pool: dice.randint(1, 3) for pool in pools if dice.random() < 0.5}
        load = float(dice.choice([5, 12, 25, 40]))
        spec = prefers(**wishes) if wishes else None
        world.pod(f"p{number}", dice.choice(nodes), load, owner=f"o{number}", spec=spec)
    return world


def suits(world: PlannerWorld, pod: dict[str, Any], node: str) -> tuple[int, int]:
    """Judge by the manifests: soft taints, then weights."""
    given = world.made_nodes[node]
    spec = pod["spec"] or prefers()
    terms = spec["affinity"]["nodeAffinity"][PREFERRED]
    pool = given["labels"]["pool"]
    values = [(t["weight"], t["preference"]["matchExpressions"][0]["values"]) for t in terms]
    return -len(given["taints"]), sum(weight for weight, found in values if pool in found)


def settled(world: PlannerWorld) -> tuple[PlannerWorld, dict[str, list[str]]]:
    """Return the world after as many cycles as it takes, without cool-downs, and where pods were.

    Room that one plan frees is used by the next one.
    """
    been = {name: [pod["node"]] for name, pod in world.made_pods.items()}
    for _ in range(8):
        plan = world.plan()
        if not plan.moves:
            return world, been
        world = world.after(plan)
        for move in plan.moves:
            been[move.pod.removeprefix("default/")].append(move.target)
    raise AssertionError("it never ends")


@given(st.integers(0, 10**6))
@settings(max_examples=50)
def test_every_move_suits_its_pod_better_and_none_is_left_that_could(seed: int) -> None:
    before = drawn(seed)
    world, been = settled(before)
    levels = dict.fromkeys(world.made_nodes, 0.0)
    for name, pod in world.made_pods.items():
        levels[pod["node"]] += pod["load"]
        ranks = [suits(world, pod, node) for node in been[name]]
        assert all(one < other for one, other in pairwise(ranks))
    entered = {nodes[-1] for nodes in been.values() if len(nodes) > 1}
    assert all(levels[node] <= 80.0 for node in entered)
    for pod, node in product(world.made_pods.values(), world.made_nodes):
        better = suits(world, pod, node) > suits(world, pod, pod["node"])
        tainted = bool(world.made_nodes[node]["taints"])
        assert not better or tainted or levels[node] + pod["load"] > 80.0


@given(st.integers(0, 10**6))
@settings(max_examples=50)
def test_moves_for_load_and_for_preferences_never_undo_each_other(seed: int) -> None:
    world, been = settled(drawn(seed, "LoadBalancing", "ResourceOptimization"))
    for name, nodes in been.items():
        ranks = [suits(world, world.made_pods[name], node) for node in nodes]
        assert ranks == sorted(ranks)
