# SPDX-License-Identifier: Apache-2.0
"""Filter and preemption: tables of cases, and what holds for every list."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.api.contract import CONSOLIDATION_SINCE
from common.cluster.records import PodUid
from common.cluster.resources import Resources
from common.load import Load
from extender.protocol import FilterResult, Victims
from extender.rules import UNDER_MAINTENANCE, avoid, keep_only, reject, takes_reserved_room
from tests.support.tables import read_table
from tests.support.worlds.advisor import AdvisorWorld

HERE = Path(__file__).parent
CASES = read_table(HERE / "rules.yaml")
PREEMPTIONS = read_table(HERE / "preemption.yaml")
ONE_VICTIM = Victims([PodUid("victim")], 0)
NO_VICTIMS = Victims([], 0)
NAMES = ("a", "b", "c", "d", "e")


def world_of(case: dict[str, Any]) -> AdvisorWorld:
    world = AdvisorWorld(**case.get("config", {}))
    for name, load in case["nodes"].items():
        figures = dict(load) if isinstance(load, dict) else {"cpu": load}
        marks = {CONSOLIDATION_SINCE: "then"} if figures.pop("kept", False) else {}
        world.node(name, maintenance=figures.pop("maintenance", ""), annotations=marks)
        if figures["cpu"] is not None:
            world.busy(name, **figures)
    world.measure(only=[name for name, load in case["nodes"].items() if load is not None])
    for number, move in enumerate(case.get("moves", ())):
        world.migration(
            f"m{number}", **{**move, "alternatives": tuple(move.get("alternatives", ()))}
        )
    return world


async def ask(world: AdvisorWorld, pod: Any, names: list[str]) -> FilterResult:
    """Ask, and let the time pass that a refusal of everything takes."""
    answer = asyncio.ensure_future(world.advisor.filter(pod, names))
    await world.clock.advance(0.2)
    return await answer


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
async def test_the_table_of_refusals(case: dict[str, Any]) -> None:
    world = world_of(case)
    names = case.get("list", list(case["nodes"]))
    found = await ask(world, world.pod("new", **case.get("pod", {})), names)
    assert dict(found.failed) == case["failed"]
    assert list(found.keep) == [name for name in names if name not in case["failed"]]


async def test_a_repeated_question_gets_the_same_answer() -> None:
    world = world_of({"nodes": {"a": 10, "b": 10, "c": 10}})
    world.migration("m1", owner="web", source="a", target="b")
    world.migration("m2", owner="web", source="a", target="c")
    pod = world.pod("new", owner="web")
    answers = [await ask(world, pod, ["a", "b", "c"]) for _ in range(3)]
    assert [found.keep for found in answers] == [["b"]] * 3


async def test_a_pod_that_waits_too_long_for_its_node_may_go_elsewhere() -> None:
    world = world_of({"nodes": {"a": 10, "b": 10, "c": 10}})
    world.migration("m", owner="web", source="a", target="b")
    pod = world.pod("new", owner="web")
    await ask(world, pod, ["a", "b", "c"])
    await world.clock.advance(5.0)
    found = await ask(world, pod, ["a", "b", "c"])
    assert (list(found.keep), dict(found.failed)) == (
        ["b", "c"],
        {"a": "pod moved away from this node"},
    )
    assert world.advisor.prioritize(pod, ["c", "b"]).values == [9, 10]


async def test_room_taken_by_answers_that_are_not_bound_yet_is_not_free() -> None:
    world = world_of({"nodes": {"a": 10, "b": {"cpu": 10, "asked": 50}}})
    world.migration("m", owner="web", source="a", target="b", asked=20)
    assert (await ask(world, world.pod("first", cpu=20, mem=1), ["b"])).keep == ["b"]
    found = await ask(world, world.pod("second", cpu=20, mem=1), ["a", "b"])
    assert dict(found.failed) == {"b": "room reserved for a moved pod"}


async def test_room_is_not_held_for_a_pod_that_has_been_sent_there() -> None:
    world = world_of({"nodes": {"a": 10, "b": {"cpu": 10, "asked": 50}}})
    world.migration("m", owner="web", source="a", target="b", asked=20)
    await ask(world, world.pod("moved", cpu=20, mem=20, owner="web"), ["a", "b"])
    found = await ask(world, world.pod("other", cpu=25, mem=1), ["a", "b"])
    assert dict(found.failed) == {}


async def test_room_is_still_held_for_the_others() -> None:
    world = world_of({"nodes": {"a": 10, "b": {"cpu": 10, "asked": 30}}})
    for owner in ("web", "api"):
        world.migration(owner, owner=owner, source="a", target="b", asked=20)
    await ask(world, world.pod("moved", cpu=20, mem=20, owner="web"), ["a", "b"])
    fits = await ask(world, world.pod("fits", cpu=25, mem=1), ["a", "b"])
    assert dict(fits.failed) == {}
    large = await ask(world, world.pod("large", cpu=35, mem=1), ["a", "b"])
    assert dict(large.failed) == {"b": "room reserved for a moved pod"}


@pytest.mark.parametrize(
    ("asked", "free", "held", "taken"),
    [
        ((100, 100), (300, 300), (200, 200), False),
        ((101, 100), (300, 300), (200, 200), True),
        ((100, 101), (300, 300), (200, 200), True),
        ((100, 0), (300, 100), (200, 200), False),
        ((0, 100), (100, 300), (200, 200), False),
        ((0, 0), (0, 0), (200, 200), False),
        ((100, 100), (0, 0), (0, 0), False),
    ],
)
def test_held_room_is_taken_only_by_what_a_pod_asks_for(
    asked: tuple[int, int], free: tuple[float, float], held: tuple[float, float], taken: bool
) -> None:
    assert takes_reserved_room(Resources(*asked), Load(*free), lambda: Load(*held)) is taken


lists = st.lists(st.sampled_from((*NAMES, "stranger")), min_size=1, max_size=8)
loads = st.one_of(st.none(), st.integers(0, 120))
moves = st.lists(
    st.tuples(st.sampled_from(("web", "api")), st.permutations(NAMES), st.integers(0, 90)),
    max_size=4,
)


@settings(max_examples=80)
@given(
    names=lists,
    nodes=st.fixed_dictionaries(dict.fromkeys(NAMES, loads)),
    maintained=st.sets(st.sampled_from(NAMES), max_size=4),
    planned=moves,
    pods=st.lists(
        st.tuples(st.sampled_from(("web", "api", "other")), st.integers(0, 40)), max_size=4
    ),
    overloaded=st.sampled_from(("score", "filter")),
)
def test_load_and_intents_never_empty_a_list(
    names: list[str],
    nodes: dict[str, int | None],
    maintained: set[str],
    planned: list[tuple[str, list[str], int]],
    pods: list[tuple[str, int]],
    overloaded: str,
) -> None:
    world = world_of({"nodes": nodes, "config": {"overloaded": overloaded}})
    for name in maintained:
        world.node(name, maintenance="true")
    for number, (owner, order, asked) in enumerate(planned):
        world.migration(
            f"m{number}",
            owner=owner,
            source=order[0],
            target=order[1],
            alternatives=tuple(order[2:4]),
            asked=asked,
        )

    async def look() -> None:
        for number, (owner, size) in enumerate(pods):
            pod = world.pod(f"p{number}", owner=owner, cpu=size, mem=size)
            found = await ask(world, pod, names)
            _is_sound(names, maintained, found)
            scores = world.advisor.prioritize(pod, found.keep).values
            assert len(scores) == len(found.keep)
            assert all(type(score) is int and 0 <= score <= 10 for score in scores)

    asyncio.run(look())


def _is_sound(names: list[str], maintained: set[str], found: FilterResult) -> None:
    """Check the partition, the order, and that only maintenance may leave nothing."""
    assert list(found.keep) == [name for name in names if name not in found.failed]
    assert set(found.failed) <= set(names)
    for name in set(names) & maintained:
        assert found.failed[name] == UNDER_MAINTENANCE
    assert bool(found.keep) is not (set(names) <= maintained)


@given(names=lists, unwanted=st.sets(st.sampled_from(NAMES)), wanted=st.sampled_from(NAMES))
def test_rules_keep_the_partition_and_the_order(
    names: list[str], unwanted: set[str], wanted: str
) -> None:
    everything = FilterResult(names, {})
    for found in (
        reject(everything, unwanted, "x"),
        avoid(everything, unwanted, "x"),
        keep_only(everything, wanted, "x"),
    ):
        assert list(found.keep) == [name for name in names if name not in found.failed]
        assert set(found.keep) | set(found.failed) == set(names)
    assert avoid(everything, unwanted, "x").keep
    assert keep_only(everything, wanted, "x").keep


def preemption_world(case: dict[str, Any]) -> AdvisorWorld:
    world = AdvisorWorld()
    for name, maintenance in case["nodes"].items():
        world.node(name, maintenance=maintenance)
    if "move" in case:
        world.migration("m", **case["move"])
    return world


@pytest.mark.parametrize("victims", [ONE_VICTIM, NO_VICTIMS], ids=["victims", "no victims"])
@pytest.mark.parametrize("case", PREEMPTIONS, ids=lambda case: case["name"])
def test_the_table_of_preemption_candidates(case: dict[str, Any], victims: Victims) -> None:
    world = preemption_world(case)
    pod = world.pod("new", **case.get("pod", {}))
    kept = world.advisor.preempt(pod, dict.fromkeys(case["candidates"], victims))
    assert list(kept) == case["kept"]


def test_a_preemption_request_takes_no_slot() -> None:
    world = preemption_world({"nodes": {"a": "", "b": "", "c": ""}})
    world.migration("m", owner="web", source="a", target="b")
    world.advisor.preempt(world.pod("one", owner="web"), {"a": ONE_VICTIM, "c": ONE_VICTIM})
    found = world.intents.assign_slot(world.pod("two", owner="web").record, ["a", "b"])
    assert found is not None
    assert found.target == "b"


def test_before_the_cluster_is_known_all_candidates_are_kept() -> None:
    world = preemption_world({"nodes": {"a": "true"}})
    world.ready = False
    assert list(world.advisor.preempt(world.pod("new"), {"a": ONE_VICTIM})) == ["a"]
    assert world.count("neutral_answers_total", verb="preempt", cause="cold") == 1
