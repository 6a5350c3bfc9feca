# SPDX-License-Identifier: Apache-2.0
"""Nodes are emptied whole, below the target, and never against an autoscaler or its signs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from common.api.contract import CONSOLIDATION_SINCE
from common.api.migrations import Purpose
from common.cluster.records import NodeName
from common.config import Strategy
from simulator import build
from tests.support.worlds.planner import LONG_AGO, NOW_S, PlannerWorld, demand_of
from tests.support.worlds.wire import wire_pod

SINCE = "2027-01-15T07:55:00Z"


def cluster(*, nodes: int = 3, config: dict[str, Any] | None = None, **given: Any) -> PlannerWorld:
    """Return nodes with two pods of 10 % each; what is given holds for the last node."""
    settings = {"enabledStrategies": ["Consolidation"], **(config or {})}
    world = PlannerWorld(config=settings)
    for number in range(nodes):
        world.node(f"n{number}", **(given if number == nodes - 1 else {}))
        for pod in range(2):
            world.pod(f"p{number}-{pod}", f"n{number}", 10.0, asks=10.0)
    return world


def sources(world: PlannerWorld) -> set[str]:
    return {move.source for move in world.plan().moves}


def test_as_many_nodes_as_possible_are_emptied_and_the_others_stay_below_the_target() -> None:
    plan = cluster(nodes=5).plan()
    assert len(plan.kept_empty) == 3  # 100 points of load, 65 for each of two nodes
    assert len(plan.moves) == plan.lower_bound.evictions == 6
    assert {move.strategy for move in plan.moves} == {Strategy.CONSOLIDATION}
    assert {move.purpose for move in plan.moves} == {Purpose.LOAD}
    assert max(node.after.cpu for node in plan.nodes) <= 65.0
    assert {node.name for node in plan.nodes if node.after.cpu == 0.0} == set(plan.kept_empty)
    assert plan.unmet == ()


def test_nothing_is_emptied_unless_it_is_enabled() -> None:
    plan = cluster(config={"enabledStrategies": ["LoadBalancing"]}).plan()
    assert plan.moves == ()
    assert plan.kept_empty == ()


def test_requests_count_as_well_as_load() -> None:
    world = PlannerWorld(config={"enabledStrategies": ["Consolidation"]})
    for number in range(3):
        world.node(f"n{number}")
        world.pod(f"p{number}", f"n{number}", 5.0, asks=60.0)
    assert world.plan().moves == ()


def test_a_lower_target_frees_fewer_nodes() -> None:
    plan = cluster(nodes=5, config={"consolidation": {"target": 35.0}}).plan()
    assert len(plan.kept_empty) == 1
    assert max(node.after.cpu for node in plan.nodes) <= 35.0


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"labels": {"node-role.kubernetes.io/control-plane": ""}}, id="control plane"),
        pytest.param(
            {"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}},
            id="scale-down disabled",
        ),
        pytest.param({"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, id="do not disrupt"),
        pytest.param(
            {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
            id="being deleted",
        ),
        pytest.param(
            {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}, id="disrupted"
        ),
        pytest.param({"unschedulable": True}, id="cordoned"),
        pytest.param({"maintenance": True}, id="under maintenance"),
        pytest.param({"measured": False}, id="not measured"),
    ],
)
def test_a_node_that_is_not_ours_to_empty_is_left_alone(given: dict[str, Any]) -> None:
    # Of these n3 is the best one to empty: it has one pod, and the others two.
    assert tempting().plan().kept_empty == ("n3",)
    plan = tempting(**given).plan()
    assert "n3" not in plan.kept_empty
    assert all(move.source != "n3" or move.strategy != "Consolidation" for move in plan.moves)


def tempting(**given: Any) -> PlannerWorld:
    """Return two nodes of which only one can be emptied, and what is given holds for that one."""
    world = cluster(nodes=3, config={"consolidation": {"target": 35.0}})
    world.node("n3", **given)
    world.pod("single", "n3", 10.0, asks=10.0)
    return world


def test_a_node_that_no_plan_could_empty_is_not_tried_again_at_once() -> None:
    seen = tempting().cluster()
    again = replace(seen, not_emptied=frozenset({NodeName("n3")}))
    assert "n3" in demand_of(seen).assessment.kept_empty
    assert "n3" not in demand_of(again).assessment.kept_empty


@pytest.mark.parametrize(("minutes", "kept"), [(20, ("n1",)), (40, ())])
def test_pods_of_a_marked_node_may_wait_for_a_while(minutes: int, kept: tuple[str, ...]) -> None:
    since = datetime.fromtimestamp(NOW_S - 60 * minutes, UTC).isoformat()
    world = cluster(nodes=2, config={"minPodAge": "3h"}, annotations={CONSOLIDATION_SINCE: since})
    plan = world.plan()
    assert plan.kept_empty == kept
    assert plan.moves == ()


def test_a_new_node_is_left_alone() -> None:
    world = cluster(nodes=2, config={"consolidation": {"minNodeAge": "8000h"}})
    assert world.plan().moves == ()


@pytest.mark.parametrize(
    "annotations",
    [
        {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
        {"karpenter.sh/do-not-disrupt": "true"},
    ],
)
def test_a_pod_that_may_not_go_keeps_its_whole_node(annotations: dict[str, str]) -> None:
    world = cluster(nodes=2)
    world.pod("firm", "n0", 1.0, annotations=annotations)
    plan = world.plan()
    assert plan.kept_empty == ("n1",)
    assert {move.source for move in plan.moves} == {"n1"}
    assert any("n0 is not emptied: default/firm stays" in note for note in plan.notes)


@pytest.mark.parametrize("kind", ["DaemonSet", "Node"])
def test_pods_that_go_with_their_node_do_not_keep_it(kind: str) -> None:
    world = cluster(nodes=2)
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "agent", "uid": "1", "controller": True}
    for number in range(2):
        made = build.pod(f"agent-{number}", node=f"n{number}", cpu="10m", memory="10Mi")
        made["metadata"]["ownerReferences"] = [owner]
        world.state.pods.upsert(wire_pod(made, scheduled=LONG_AGO, creationTimestamp=LONG_AGO))
    plan = world.plan()
    assert len(plan.kept_empty) == 1
    assert len(plan.moves) == 2


def test_a_budget_without_room_keeps_the_node() -> None:
    world = cluster(nodes=2)
    world.pdb("guard", {"app": "p0-0"}, allowed=0)
    assert sources(world) == {"n1"}


def test_the_expensive_node_goes() -> None:
    prices = {"large": 4.0, "small": 1.0}
    world = PlannerWorld(
        config={
            "enabledStrategies": ["Consolidation"],
            "consolidation": {"cost": {"instanceTypes": prices}},
        }
    )
    for name, kind in (("a", "small"), ("b", "large")):
        world.node(name, labels={"node.kubernetes.io/instance-type": kind})
        for pod in range(3 if kind == "large" else 1):
            world.pod(f"{name}{pod}", name, 10.0)
    assert world.plan().kept_empty == ("b",)


@pytest.mark.parametrize("where", ["label", "annotation"])
def test_costs_come_from_the_nodes(where: str) -> None:
    key = "evenkeel.io/cost"
    world = PlannerWorld(
        config={
            "enabledStrategies": ["Consolidation"],
            "consolidation": {"cost": {where: key}},
        }
    )
    for name, price in (("a", "1"), ("b", "2.5"), ("c", "nonsense")):
        given: dict[str, Any] = {f"{where}s": {key: price}}
        world.node(name, **given)
        world.pod(f"p-{name}", name, 30.0)
    plan = world.plan()
    assert plan.kept_empty == ("b",)
    assert any("The cost of c is not known" in note for note in plan.notes)


def test_a_marked_node_is_emptied_further_although_another_were_better() -> None:
    world = cluster(nodes=2, annotations={CONSOLIDATION_SINCE: SINCE})
    world.pod("more", "n1", 10.0)
    plan = world.plan()
    assert plan.kept_empty == ("n1",)
    assert len(plan.moves) == 3


def test_no_further_node_is_chosen_before_the_last_moves_have_ended() -> None:
    world = cluster(nodes=5, annotations={CONSOLIDATION_SINCE: SINCE})
    assert len(world.plan().kept_empty) == 3
    world.moving("p4-0", "n0", strategy="Consolidation")
    plan = world.plan()
    assert plan.kept_empty == ("n4",)
    assert {move.source for move in plan.moves} == {"n4"}
    assert "Consolidation empties no further node: its last moves have not ended yet." in plan.notes


def test_a_node_to_which_a_pod_is_on_its_way_is_not_emptied() -> None:
    world = cluster(nodes=5)
    chosen = world.plan().kept_empty
    world.moving(f"p{chosen[0][1:]}-0", chosen[1], strategy="LoadBalancing")
    kept = world.plan().kept_empty
    assert chosen[1] not in kept
    assert len(kept) > 0


def test_an_empty_marked_node_stays_marked_and_takes_nothing() -> None:
    config = {"enabledStrategies": ["Consolidation", "LoadBalancing"], "fillLowNodes": "always"}
    world = PlannerWorld(config=config)
    world.node("full")
    world.node("half")
    world.node("free", annotations={CONSOLIDATION_SINCE: SINCE})
    for number in range(6):
        world.pod(f"a{number}", "full", 10.0)
    for number in range(5):
        world.pod(f"b{number}", "half", 10.0)
    plan = world.plan()
    assert plan.kept_empty == ("free",)
    assert plan.moves == ()
    assert any("LoadBalancing wants pods spread over all nodes" in note for note in plan.notes)


def test_a_marked_node_whose_pods_cannot_go_is_released() -> None:
    world = cluster(nodes=2, annotations={CONSOLIDATION_SINCE: SINCE})
    world.pod("large", "n0", 40.0)
    plan = world.plan()
    assert plan.kept_empty == ()
    assert plan.moves == ()
    assert any("n1 is no longer kept empty" in note for note in plan.notes)


def test_a_node_that_was_emptied_is_given_back_when_others_are_too_hot() -> None:
    world = PlannerWorld(config={"enabledStrategies": ["Consolidation", "ResourceOptimization"]})
    world.node("hot")
    world.node("warm")
    world.node("free", annotations={CONSOLIDATION_SINCE: SINCE})
    for number in range(9):
        world.pod(f"a{number}", "hot", 10.0)
    for number in range(8):
        world.pod(f"b{number}", "warm", 10.0)
    plan = world.plan()
    assert plan.kept_empty == ()
    assert any("free is no longer kept empty: other nodes are above" in n for n in plan.notes)


def test_a_plan_that_cannot_place_one_pod_leaves_the_whole_node_alone() -> None:
    """Two pods with the same host port go to different nodes, and there is only one other."""
    world = PlannerWorld(config={"enabledStrategies": ["Consolidation"]})
    world.node("a")
    world.node("b")
    port = {
        "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1, "hostPort": 1}]}]
    }
    world.pod("one", "a", 10.0, spec=port)
    world.pod("two", "b", 10.0, spec=port)
    plan = world.plan()
    assert plan.moves == ()
    assert plan.kept_empty == ()
