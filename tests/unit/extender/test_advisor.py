# SPDX-License-Identifier: Apache-2.0
"""The advisor: waits, neutral answers, planned nodes, and what it says of itself."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from common.api.contract import CONSOLIDATION_SINCE
from common.config import ExtenderConfiguration
from extender.advisor import Advisor
from extender.protocol import FilterResult, RequestPod
from extender.rules import UNDER_MAINTENANCE
from tests.support.worlds.advisor import AdvisorWorld


@pytest.fixture
def maintained() -> AdvisorWorld:
    """Two nodes, both under maintenance."""
    world = AdvisorWorld()
    world.loads(a=10.0, b=20.0)
    for name in ("a", "b"):
        world.node(name, maintenance="true")
    return world


def asked(world: AdvisorWorld, pod: RequestPod) -> asyncio.Future[FilterResult]:
    return asyncio.ensure_future(world.advisor.filter(pod, ["a", "b"]))


def waits(world: AdvisorWorld) -> dict[str, float]:
    results = ("helped", "vain", "skipped")
    return {r: world.count("node_event_waits_total", result=r) for r in results}


async def test_a_label_removed_while_a_whole_list_is_judged_saves_the_pod(
    maintained: AdvisorWorld,
) -> None:
    answer = asked(maintained, maintained.pod("p"))
    await maintained.clock.advance(0.05)
    assert not answer.done()
    maintained.node("b")
    await maintained.clock.advance(0.0)
    found = await answer
    assert (list(found.keep), dict(found.failed)) == (["b"], {"a": UNDER_MAINTENANCE})
    assert waits(maintained) == {"helped": 1, "vain": 0, "skipped": 0}


async def test_other_node_events_do_not_end_the_wait(maintained: AdvisorWorld) -> None:
    answer = asked(maintained, maintained.pod("p"))
    for name in ("c", "d"):
        await maintained.clock.advance(0.03)
        maintained.node(name)
        await maintained.clock.advance(0.0)
    assert not answer.done()
    maintained.node("a")
    await maintained.clock.advance(0.0)
    assert list((await answer).keep) == ["a"]


async def test_after_100_ms_the_list_is_refused(maintained: AdvisorWorld) -> None:
    answer = asked(maintained, maintained.pod("p"))
    await maintained.clock.advance(0.099)
    assert not answer.done()
    await maintained.clock.advance(0.001)
    assert (await answer).keep == []
    assert waits(maintained) == {"helped": 0, "vain": 1, "skipped": 0}
    assert maintained.clock.sleeping == 0


async def test_waiting_in_vain_comes_to_half_of_the_time(maintained: AdvisorWorld) -> None:
    answers = [asked(maintained, maintained.pod(f"p{i}")) for i in range(21)]
    await maintained.clock.advance(0.0)
    assert [answer.done() for answer in answers] == [False] * 20 + [True]
    await maintained.clock.advance(0.19)
    refused = asked(maintained, maintained.pod("early"))
    await maintained.clock.advance(0.0)
    assert refused.done()
    await maintained.clock.advance(0.02)
    late = asked(maintained, maintained.pod("late"))
    await maintained.clock.advance(0.0)
    assert not late.done()
    await maintained.clock.advance(0.1)
    assert (await late).keep == []
    assert waits(maintained) == {"helped": 0, "vain": 21, "skipped": 2}


async def test_a_short_wait_that_helped_costs_little(maintained: AdvisorWorld) -> None:
    for number in range(50):
        answer = asked(maintained, maintained.pod(f"p{number}"))
        await maintained.clock.advance(0.01)
        assert not answer.done()
        maintained.node("b")
        await maintained.clock.advance(0.0)
        assert list((await answer).keep) == ["b"]
        maintained.node("b", maintenance="true")
    assert waits(maintained) == {"helped": 50, "vain": 0, "skipped": 0}


async def test_a_list_that_keeps_a_node_does_not_wait(maintained: AdvisorWorld) -> None:
    maintained.node("a")
    answer = asked(maintained, maintained.pod("p"))
    await maintained.clock.advance(0.0)
    assert list((await answer).keep) == ["a"]
    assert waits(maintained) == {"helped": 0, "vain": 0, "skipped": 0}


async def test_an_empty_list_does_not_wait(maintained: AdvisorWorld) -> None:
    answer = asyncio.ensure_future(maintained.advisor.filter(maintained.pod("p"), []))
    await maintained.clock.advance(0.0)
    assert answer.done()
    assert list(answer.result().keep) == []


async def test_maintenance_does_not_wait_for_a_board(maintained: AdvisorWorld) -> None:
    maintained.node("a")
    assert list((await maintained.advisor.filter(maintained.pod("p"), ["a", "b"])).keep) == ["a"]
    maintained.state.nodes.forget("b")
    assert list((await maintained.advisor.filter(maintained.pod("q"), ["a", "b"])).keep) == [
        "a",
        "b",
    ]


async def test_before_the_cluster_is_known_answers_are_neutral(maintained: AdvisorWorld) -> None:
    maintained.ready = False
    pod = maintained.pod("p")
    assert list((await maintained.advisor.filter(pod, ["a", "b"])).keep) == ["a", "b"]
    assert maintained.advisor.prioritize(pod, ["a", "b"]).values == [5, 5]
    assert maintained.count("neutral_answers_total", verb="filter", cause="cold") == 1
    assert maintained.count("neutral_answers_total", verb="prioritize", cause="cold") == 1


async def test_before_the_first_board_maintenance_counts_and_load_does_not() -> None:
    world = AdvisorWorld(overloaded="filter")
    world.node("a", maintenance="true")
    world.node("b")
    pod = world.pod("p")
    assert list((await world.advisor.filter(pod, ["a", "b"])).keep) == ["b"]
    assert world.advisor.prioritize(pod, ["b", "c"]).values == [5, 5]
    assert world.advisor.explain() == []


def test_nodes_that_were_there_before_the_advisor_are_known() -> None:
    world = AdvisorWorld()
    world.node("a", maintenance="true")
    advisor = Advisor(
        world.state,
        world.intents,
        config=ExtenderConfiguration(),
        clock=world.clock,
        metrics=world.metrics,
        ready=lambda: True,
    )
    found = asyncio.run(advisor.filter(world.pod("p"), ["a", "b"]))
    assert list(found.keep) == ["b"]


def test_without_fresh_metrics_scores_are_equal_and_that_is_counted() -> None:
    world = AdvisorWorld()
    world.loads(a=10.0, b=70.0)
    world.world.pass_time(181.0)
    world.refresh()
    assert world.advisor.prioritize(world.pod("p"), ["a", "b", "x"]).values == [5, 5, 5]
    assert world.count("neutral_answers_total", verb="prioritize", cause="resting") == 1


def test_without_fresh_metrics_a_planned_node_still_comes_first() -> None:
    world = AdvisorWorld()
    for name in ("a", "b", "c"):
        world.node(name)
    world.refresh()
    world.migration("m", owner="web", source="a", target="b")
    assert world.advisor.prioritize(world.pod("p", owner="web"), ["c", "b"]).values == [5, 10]


def test_a_planned_node_gets_10_and_no_other_does() -> None:
    world = AdvisorWorld()
    world.loads(a=0.0, b=70.0, c=0.0, d=40.0)
    world.migration("m", owner="web", source="a", target="b")
    pod = world.pod("p", owner="web", cpu=1, mem=1)
    assert world.advisor.prioritize(pod, ["c", "b", "d"]).values == [9, 10, 5]
    row = next(row for row in world.advisor.explain() if row.node == "b")
    assert row.assumed.pods == 1


def test_an_unfilled_intent_weighs_on_its_target() -> None:
    world = AdvisorWorld()
    world.loads(a=40.0, b=0.0)
    world.migration("m", owner="web", source="a", target="b", load=24.0, asked=30.0)
    assert world.advisor.prioritize(world.pod("p"), ["b"]).values == [7]
    world.state.migrations.forget("m")
    assert world.advisor.prioritize(world.pod("q"), ["b"]).values == [10]


def test_a_replacement_is_scored_by_what_its_predecessor_used() -> None:
    world = AdvisorWorld()
    world.loads(a=0.0, b=0.0, c=40.0)
    world.migration("m", owner="web", source="a", target="b", load=36.0)
    pod = world.pod("p", owner="web", cpu=1, mem=1)
    assert world.advisor.prioritize(pod, ["c"]).values == [1]


def test_an_empty_list_has_no_scores() -> None:
    world = AdvisorWorld()
    world.loads(a=0.0)
    assert list(world.advisor.prioritize(world.pod("p"), []).values) == []


def test_it_says_what_it_believes_and_why() -> None:
    world = AdvisorWorld()
    world.loads(a=10.0, b=90.0, c=0.0, d=0.0)
    world.node("u")
    world.node("m", maintenance="true")
    world.busy("m", 1.0)
    world.measure(only=["a", "b", "c", "d", "m"])
    world.world.pod("new", "a", scheduled_s=world.world.now_s)
    world.migration("move", owner="web", source="b", target="d", load=10.0, asked=20.0)
    world.refresh()
    world.advisor.prioritize(world.pod("p", cpu=1, mem=1), ["c"])
    rows = {row.node: row for row in world.advisor.explain()}
    assert list(rows) == ["a", "b", "c", "d", "u", "m"]
    assert rows["a"].why.endswith("1 pod not measured yet")
    assert (rows["b"].score, rows["b"].why.split(":")[0]) == (0, "overloaded")
    assert (rows["c"].assumed.pods, rows["c"].held.pods) == (1, 0)
    assert rows["d"].held.cpu_milli == 1000.0
    assert rows["d"].requested == pytest.approx(0.2)
    assert rows["u"].use is None
    assert "NoSample" in rows["u"].why
    assert (rows["m"].maintenance, rows["m"].why.split(":")[0]) == (True, "under maintenance")
    assert msgspec.json.decode(msgspec.json.encode(rows["a"]))["cpuPercent"] == pytest.approx(12.5)


def test_it_says_when_load_does_not_count() -> None:
    world = AdvisorWorld()
    world.node("a")
    world.refresh()
    (row,) = world.advisor.explain()
    assert (row.score, row.why) == (5, "too few nodes are measured: all scores are equal")


async def test_a_node_that_is_kept_empty_has_the_lowest_score_until_the_mark_goes() -> None:
    world = AdvisorWorld()
    world.loads(full=70.0, free=0.0)
    world.node("free", annotations={CONSOLIDATION_SINCE: "then"})
    first = world.advisor.prioritize(world.pod("p"), ["full", "free"]).values
    assert first[1] == 0 < first[0]
    assert list((await world.advisor.filter(world.pod("q"), ["full", "free"])).keep) == ["full"]
    assert "kept empty" in {row.node: row.why for row in world.advisor.explain()}["free"]
    world.node("free")
    last = world.advisor.prioritize(world.pod("r"), ["full", "free"]).values
    assert last[1] > last[0]
    assert len((await world.advisor.filter(world.pod("s"), ["full", "free"])).keep) == 2
