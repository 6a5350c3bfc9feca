# SPDX-License-Identifier: Apache-2.0
"""Pods that keep a goal from being met by having opted out are named, with the namespace."""

from __future__ import annotations

from typing import Any

import pytest

from common.api.contract import (
    DO_NOT_DISRUPT,
    PREFER_NO_EVICTION,
    PRODUCT,
    PRODUCT_LABEL,
    RESCHEDULING_LABEL,
    SAFE_TO_EVICT,
)
from common.terminal import as_text
from rebalancer.evictability import OPT_OUTS
from rebalancer.planner import Plan
from rebalancer.report import document, render
from tests.support.worlds.planner import PlannerWorld

HOT = {"enabledStrategies": ["ResourceOptimization"], "excludedPodSelector": "tier=db"}
LEVEL = {"enabledStrategies": ["LoadBalancing"], "fillLowNodes": "always"}
EMPTY = {"enabledStrategies": ["NodeMaintenance"]}
WAYS: dict[str, dict[str, Any]] = {
    "ExcludedPod": {"labels": {"tier": "db"}},
    "ReschedulingDisabled": {"labels": {RESCHEDULING_LABEL: "disabled"}},
    "NotSafeToEvict": {"annotations": {SAFE_TO_EVICT: "false"}},
    "DoNotDisrupt": {"annotations": {DO_NOT_DISRUPT: "true"}},
    "PreferNoEviction": {"annotations": {PREFER_NO_EVICTION: ""}},
    "OwnPod": {"labels": {PRODUCT_LABEL: PRODUCT}},
}


def world(config: dict[str, Any], *pods: dict[str, Any], maintenance: bool = False) -> Plan:
    made = PlannerWorld(config=config)
    made.node("n1", maintenance=maintenance)
    made.node("n2")
    for number, given in enumerate(pods):
        made.pod(f"p{number}", "n1", **{"load": 45.0, **given})
    return made.plan()


def named(plan: Plan) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(each.namespace, each.reason, each.pods) for each in plan.opt_outs]


def test_every_way_to_opt_out_is_known() -> None:
    assert set(WAYS) == OPT_OUTS


@pytest.mark.parametrize("reason", WAYS)
def test_an_opt_out_that_keeps_a_node_hot_is_named(reason: str) -> None:
    plan = world(HOT, WAYS[reason], WAYS[reason])
    [unmet] = plan.unmet
    assert named(plan) == [("default", reason, ("default/p0", "default/p1"))]
    assert f"pods there have opted out of moves: default (2 × {reason})" in unmet.why.message
    assert plan.opt_outs[0].goal == unmet.goal


def test_an_opt_out_that_keeps_a_pool_apart_is_named() -> None:
    moves = {"load": 5.0}
    plan = world(LEVEL, {**WAYS["DoNotDisrupt"], "load": 70.0}, moves)
    assert [unmet.goal for unmet in plan.unmet] == [each.goal for each in plan.opt_outs]
    assert ("default", "DoNotDisrupt", ("default/p0",)) in named(plan)


@pytest.mark.parametrize("fill", ["always", "never"])
def test_opt_outs_of_all_pods_of_a_node_that_is_far_above_its_pool_are_named(fill: str) -> None:
    """There is no goal to level it then: none of its pods may be moved."""
    config = {**LEVEL, "fillLowNodes": fill}
    plan = world(config, WAYS["DoNotDisrupt"], {**WAYS["DoNotDisrupt"], "kind": "none"})
    assert plan.moves == ()
    assert named(plan) == [("default", "DoNotDisrupt", ("default/p0",))] * 2
    assert [each.goal for each in plan.opt_outs] == [
        "all nodes within 20 points of CPU",
        "all nodes within 20 points of memory",
    ]


def test_opt_outs_of_a_node_that_is_near_its_pool_are_not_named() -> None:
    assert world(LEVEL, {**WAYS["DoNotDisrupt"], "load": 10.0}).opt_outs == ()


def test_an_opt_out_that_stays_on_a_node_to_be_emptied_is_named() -> None:
    plan = world(EMPTY, {**WAYS["NotSafeToEvict"], "load": 10.0}, {"load": 10.0}, maintenance=True)
    assert [move.pod for move in plan.moves] == ["default/p1"]
    assert named(plan) == [("default", "NotSafeToEvict", ("default/p0",))]
    assert plan.opt_outs[0].goal == "n1 empty"


def test_nobody_is_named_where_the_goal_is_met() -> None:
    plan = world(HOT, WAYS["DoNotDisrupt"], {})
    assert plan.unmet == ()
    assert plan.opt_outs == ()


def test_who_could_not_be_moved_anyway_is_not_named() -> None:
    plan = world(HOT, {**WAYS["DoNotDisrupt"], "kind": "none"}, WAYS["DoNotDisrupt"])
    assert named(plan) == [("default", "DoNotDisrupt", ("default/p1",))]


def test_people_and_machines_read_it() -> None:
    plan = world(HOT, WAYS["DoNotDisrupt"], WAYS["NotSafeToEvict"])
    text = as_text(render(plan))
    assert "opted out, but needed for a goal" in text
    assert "namespace default, DoNotDisrupt (default/p0)" in text
    assert [(each.namespace, each.reason) for each in document(plan).opt_outs] == [
        ("default", "DoNotDisrupt"),
        ("default", "NotSafeToEvict"),
    ]
