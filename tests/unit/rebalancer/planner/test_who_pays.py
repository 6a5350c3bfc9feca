# SPDX-License-Identifier: Apache-2.0
"""Of pods whose move helps equally, those go that use more than they asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.api.migrations import Purpose
from common.cluster.records import PodRecord
from rebalancer.planner import planner
from rebalancer.refusals import Refusal
from tests.support.worlds.planner import PlannerWorld
from tests.support.worlds.planner_dice import random_world

HOT = {"enabledStrategies": ["ResourceOptimization"]}
LEVEL = {"enabledStrategies": ["LoadBalancing"], "fillLowNodes": "always"}
COST = "controller.kubernetes.io/pod-deletion-cost"
HERE = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}


def hot(*pods: dict[str, Any], rooted: float = 45.0) -> PlannerWorld:
    """Return a node of which some pods have to go, and two empty ones."""
    world = PlannerWorld(config=HOT)
    for name in ("n1", "n2", "n3"):
        world.node(name)
    world.pod("rooted", "n1", rooted, asks=rooted, spec=HERE)
    for number, given_ in enumerate(pods):
        world.pod(f"p{number}", "n1", **{"load": 20.0, "asks": 25.0, **given_})
    return world


def uneven(*pods: dict[str, Any]) -> PlannerWorld:
    """Return a node 40 points above the lowest of two others."""
    world = PlannerWorld(config=LEVEL)
    for name in ("n1", "n2", "n3"):
        world.node(name)
    for name, load in (("n2", 10.0), ("n3", 20.0)):
        world.pod(f"rooted-{name}", name, load, kind="none")
    world.pod("rooted", "n1", 50.0 - sum(p.get("load", 20.0) for p in pods), kind="none")
    for number, given_ in enumerate(pods):
        world.pod(f"p{number}", "n1", **{"load": 20.0, "asks": 25.0, **given_})
    return world


def rooted_pods_stay(pod: PodRecord, _: Purpose) -> tuple[Refusal, ...]:
    return (Refusal("Rooted", "it stays"),) if pod.name.startswith("rooted") else ()


def who_goes(world: PlannerWorld) -> list[str]:
    plan = world.plan(judged=rooted_pods_stay)
    assert plan.unmet == ()
    return sorted(move.pod.removeprefix("default/") for move in plan.moves)


ABOVE = {"asks": 5.0}
WITHIN = {"asks": 20.0}


@pytest.mark.parametrize("world", [hot, uneven])
def test_of_two_equal_pods_the_one_above_its_request_goes(world: Any) -> None:
    assert who_goes(world(WITHIN, ABOVE)) == ["p1"]
    assert who_goes(world(ABOVE, WITHIN)) == ["p0"]


@pytest.mark.parametrize("world", [hot, uneven])
@pytest.mark.parametrize("size", [18.0, 19.0, 21.0, 22.0])
def test_a_little_more_or_less_load_is_no_help(world: Any, size: float) -> None:
    above = {"load": size, "asks": 5.0}
    assert who_goes(world({**WITHIN, "load": 20.0}, above)) == ["p1"]


def test_who_asked_for_nothing_uses_more_than_that() -> None:
    assert who_goes(hot(WITHIN, {"asks": 0.0})) == ["p1"]


def test_what_the_node_is_short_of_decides() -> None:
    """Both ask for too little of one resource; the node is short of CPU only."""
    memory = {"load": (20.0, 5.0), "asks": (25.0, 1.0)}
    cpu = {"load": (20.0, 5.0), "asks": (5.0, 10.0)}
    assert who_goes(hot(memory, cpu)) == ["p1"]


@pytest.mark.parametrize(
    "costly",
    [{"annotations": {COST: "2147483647"}}, {"kind": "StatefulSet"}],
    ids=["deletion cost", "state"],
)
def test_no_annotation_or_kind_makes_others_pay(costly: dict[str, Any]) -> None:
    assert who_goes(hot({**ABOVE, **costly}, WITHIN)) == ["p0"]


def test_a_more_important_pod_stays_whatever_it_uses() -> None:
    important = {**ABOVE, "spec": {"priority": 10}}
    assert who_goes(hot(important, WITHIN)) == ["p1"]
    assert who_goes(uneven(important, WITHIN)) == ["p1"]


def test_never_more_evictions() -> None:
    """One pod within its request does what two above theirs would have to do together."""
    small = {"load": 6.0, "asks": 1.0}
    assert who_goes(hot({"load": 12.0, "asks": 12.0}, small, small, small, rooted=60.0)) == ["p0"]


def test_a_node_that_would_be_near_its_ceiling_again_is_not_helped_as_much() -> None:
    """Without the first pod 79.8 % are used, and the next sample may say 80.2."""
    near = {"load": 10.2, "asks": 1.0}
    far = {"load": 12.0, "asks": 12.0}
    assert who_goes(hot(near, far, rooted=67.8)) == ["p1"]


def test_of_several_that_have_to_go_as_many_as_possible_are_above_their_request() -> None:
    pods = ({"load": 8.0, "asks": 9.0}, {"load": 8.0, "asks": 2.0}) * 2
    assert who_goes(hot(*pods, rooted=64.0)) == ["p1", "p3"]


@given(st.integers(0, 10_000))
@settings(max_examples=25)
def test_fairness_costs_no_eviction_and_no_goal(seed: int) -> None:
    demand = random_world(seed).demand()
    fair = planner.make_plan(demand)
    plain = _Plain(demand).plan()
    assert len(fair.moves) == len(plain.moves)
    assert {unmet.goal for unmet in fair.unmet} <= {unmet.goal for unmet in plain.unmet}


class _Plain(planner._Planning):
    """Plans without the last look at who pays."""

    def _fair(self, chosen: Any) -> Any:
        return chosen
