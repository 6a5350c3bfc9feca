# SPDX-License-Identifier: Apache-2.0
"""Assumed placements: charged from the answer until a board contains the pod, without a gap."""

from __future__ import annotations

import pytest

from common.cluster.records import NodeName, PodUid
from common.metrics import Metrics
from extender.assumed import AssumedPlacements
from extender.protocol import RequestPod
from extender.scoring import Demand
from tests.support.worlds.advisor import AdvisorWorld

HEAVY = 40.0
"""Percents that a pod asks for; it is believed to use 0.85 of that."""


@pytest.fixture
def world() -> AdvisorWorld:
    made = AdvisorWorld()
    made.loads(a=0.0, b=8.0)
    return made


def load_of(world: AdvisorWorld, node: str) -> float:
    """Return what a node is believed to use, everything on top, in percents."""
    row = next(row for row in world.advisor.explain() if row.node == node)
    assert row.use is not None
    return round(row.use * 80.0, 3)


def place(world: AdvisorWorld, name: str, names: tuple[str, ...] = ("a", "b")) -> RequestPod:
    pod = world.pod(name, cpu=HEAVY, mem=1)
    world.advisor.prioritize(pod, names)
    return pod


def outcomes(world: AdvisorWorld) -> dict[str, float]:
    results = ("right", "wrong", "expired")
    return {r: world.count("assumed_placements_total", result=r) for r in results}


def test_the_best_scored_node_is_charged_until_the_pod_is_seen(world: AdvisorWorld) -> None:
    place(world, "p")
    assert (load_of(world, "a"), load_of(world, "b")) == (34.0, 8.0)


def test_the_next_pod_sees_the_charge(world: AdvisorWorld) -> None:
    place(world, "p")
    second = world.pod("q", cpu=1, mem=1)
    before, after = world.advisor.prioritize(second, ["a", "b"]).values
    assert before < after


async def test_a_filter_answer_of_one_node_is_charged_there(world: AdvisorWorld) -> None:
    world.node("a", maintenance="true")
    await world.advisor.filter(world.pod("p", cpu=HEAVY, mem=1), ["a", "b"])
    assert load_of(world, "b") == 42.0


async def test_a_filter_answer_of_several_nodes_charges_no_node(world: AdvisorWorld) -> None:
    await world.advisor.filter(world.pod("p", cpu=HEAVY, mem=1), ["a", "b"])
    assert (load_of(world, "a"), load_of(world, "b")) == (0.0, 8.0)


async def test_a_replacement_whose_target_was_kept_is_charged_there(world: AdvisorWorld) -> None:
    world.migration("m", owner="web", source="a", target="b", load=20.0, asked=40.0)
    world.refresh()
    assert load_of(world, "b") == 28.0
    pod = world.pod("p", cpu=HEAVY, mem=1, owner="web")
    await world.advisor.filter(pod, ["a", "b"])
    assert load_of(world, "b") == 28.0  # the predecessor's load, and once only
    world.bind("p", "b")
    assert load_of(world, "b") == 28.0  # nothing is held any more, the charge stays
    world.refresh()
    assert load_of(world, "b") == 28.0
    assert outcomes(world)["right"] == 1


async def test_what_is_held_on_the_target_ends_when_the_pod_is_sent_elsewhere(
    world: AdvisorWorld,
) -> None:
    world.node("c")
    world.busy("c", 1.0)
    world.measure()
    world.migration("m", owner="web", source="a", target="b", alternatives=("c",), load=20.0)
    pod = world.pod("p", owner="web")
    assert load_of(world, "b") == 28.0
    found = await world.advisor.filter(pod, ["a", "c"])
    assert list(found.keep) == ["c"]
    assert (load_of(world, "b"), load_of(world, "c")) == (8.0, 21.0)


def test_asking_again_replaces_the_guess_and_never_counts_it_against_the_pod(
    world: AdvisorWorld,
) -> None:
    pod = place(world, "p")
    again = world.advisor.prioritize(pod, ["a", "b"]).values
    assert again[0] > again[1]
    world.advisor.prioritize(pod, ["b"])
    assert (load_of(world, "a"), load_of(world, "b")) == (0.0, 42.0)


def test_there_is_no_gap_between_binding_and_the_next_board(world: AdvisorWorld) -> None:
    place(world, "p")
    too_old = world.next_board()
    world.bind("p", "a")
    assert load_of(world, "a") == 34.0
    world.advisor.use(too_old)
    assert load_of(world, "a") == 34.0
    world.refresh()
    assert load_of(world, "a") == 34.0
    assert outcomes(world) == {"right": 1, "wrong": 0, "expired": 0}


def test_after_the_board_has_the_pod_nothing_is_charged_twice(world: AdvisorWorld) -> None:
    place(world, "p")
    world.bind("p", "a")
    world.refresh()
    row = next(row for row in world.advisor.explain() if row.node == "a")
    assert row.assumed.pods == 0
    assert row.newcomers.pods == 1


def test_a_pod_that_went_elsewhere_is_charged_there(world: AdvisorWorld) -> None:
    place(world, "p")
    world.bind("p", "b")
    assert (load_of(world, "a"), load_of(world, "b")) == (0.0, 42.0)
    world.refresh()
    assert (load_of(world, "a"), load_of(world, "b")) == (0.0, 42.0)
    assert outcomes(world) == {"right": 0, "wrong": 1, "expired": 0}


async def test_a_guess_expires_after_ten_seconds(world: AdvisorWorld) -> None:
    place(world, "p")
    await world.clock.advance(9.9)
    assert load_of(world, "a") == 34.0
    await world.clock.advance(0.1)
    assert load_of(world, "a") == 0.0
    assert outcomes(world) == {"right": 0, "wrong": 0, "expired": 1}


async def test_a_guess_that_was_renewed_expires_later(world: AdvisorWorld) -> None:
    pod = place(world, "p")
    place(world, "q")
    await world.clock.advance(6.0)
    world.advisor.prioritize(pod, ["a"])
    await world.clock.advance(6.0)
    assert load_of(world, "a") == 34.0
    assert outcomes(world)["expired"] == 1


async def test_a_binding_that_was_seen_does_not_expire_before_the_board(
    world: AdvisorWorld,
) -> None:
    place(world, "p")
    world.bind("p", "a")
    await world.clock.advance(60.0)
    assert load_of(world, "a") == 34.0


@pytest.mark.parametrize("bound", [False, True])
def test_a_deleted_pod_is_charged_to_no_node(world: AdvisorWorld, bound: bool) -> None:
    place(world, "p")
    if bound:
        world.bind("p", "a")
    world.delete("p")
    assert load_of(world, "a") == 0.0


def test_a_pod_that_is_bound_already_is_not_charged_again(world: AdvisorWorld) -> None:
    pod = place(world, "p")
    world.bind("p", "a")
    world.refresh()
    world.advisor.prioritize(pod, ["b"])
    assert load_of(world, "b") == 8.0


def test_a_pod_that_the_watch_has_not_shown_yet_is_charged(world: AdvisorWorld) -> None:
    pod = world.pod("p", cpu=HEAVY, mem=1, watched=False)
    world.advisor.prioritize(pod, ["a", "b"])
    assert load_of(world, "a") == 34.0


def test_a_later_guess_takes_the_place_of_an_earlier_one() -> None:
    changes: list[tuple[str, str]] = []
    assumed = AssumedPlacements(Metrics("extender"), lambda node, uid: changes.append((node, uid)))
    uid, demand = PodUid("p"), Demand(cpu_milli=1.0)
    assumed.assume(uid, NodeName("a"), demand, 0.0)
    assumed.assume(uid, NodeName("b"), demand, 5.0)
    assert (list(assumed.nodes()), list(assumed.on(NodeName("b")))) == (["b"], [demand])
    assert changes == [("a", "p"), ("a", "p"), ("b", "p")]
    assumed.expire(14.9)
    assert len(assumed) == 1
    assumed.expire(15.0)
    assert len(assumed) == 0


def test_charges_survive_a_change_of_nodes(world: AdvisorWorld) -> None:
    place(world, "p")
    world.state.nodes.forget("b")
    world.node("c")
    world.refresh()
    assert load_of(world, "a") == 34.0
    world.state.nodes.forget("a")
    world.refresh()
    assert [row.node for row in world.advisor.explain()] == ["c"]
