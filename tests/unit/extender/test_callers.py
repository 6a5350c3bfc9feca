# SPDX-License-Identifier: Apache-2.0
"""Which schedulers call the extender, and how much of the cluster they offer."""

from __future__ import annotations

from typing import Any

import pytest

from common.cluster.records import PodUid
from common.cluster.resources import Resources
from extender.callers import CallerRecorder, Callers, count_suitable
from extender.protocol import Victims
from extender.scoring import Board
from simulator import build
from tests.support.clock import FakeClock
from tests.support.worlds.advisor import AdvisorWorld
from tests.support.worlds.wire import wire_node

TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
SOFT = {"key": "dedicated", "value": "x", "effect": "PreferNoSchedule"}


def callers() -> tuple[Callers, FakeClock]:
    clock = FakeClock(now=1_794_000_000.0)
    return Callers(clock), clock


def share(found: Callers, name: str = "default-scheduler") -> float:
    reported = found.report()[name]["share"]
    assert isinstance(reported, float)
    return reported


def test_at_first_there_are_no_callers() -> None:
    assert callers()[0].report() == {}


async def test_the_last_call_is_reported_per_scheduler() -> None:
    found, clock = callers()
    found.called("one", 10, 10)
    await clock.advance(1.5)
    found.called("two", 10, 10)
    assert found.report() == {
        "one": {"last": "2026-11-06T21:20:00.000000Z", "share": 1.0},
        "two": {"last": "2026-11-06T21:20:01.500000Z", "share": 1.0},
    }


@pytest.mark.parametrize(
    ("offered", "suitable", "reported"),
    [
        (100, 400, 0.25),
        (400, 400, 1.0),
        (401, 400, 1.0),
        (99, 100, 0.99),
        # Of fewer than a hundred, all that fit are offered; the others were rejected before.
        (5, 99, 1.0),
        (0, 500, 0.0),
        (1, 3, 1.0),
    ],
)
def test_the_share_is_of_the_suitable_nodes(offered: int, suitable: int, reported: float) -> None:
    found, _ = callers()
    found.called("default-scheduler", offered, suitable)
    assert share(found) == reported


async def test_the_best_of_the_last_ten_minutes_counts() -> None:
    found, clock = callers()
    found.called("default-scheduler", 400, 400)
    await clock.advance(300)
    found.called("default-scheduler", 100, 400)
    assert share(found) == 1.0
    await clock.advance(301)
    assert share(found) == 0.25


async def test_the_best_of_the_last_hundred_calls_counts() -> None:
    found, _ = callers()
    found.called("default-scheduler", 400, 400)
    for _ in range(99):
        found.called("default-scheduler", 100, 400)
    assert share(found) == 1.0
    found.called("default-scheduler", 100, 400)
    assert share(found) == 0.25


async def test_a_scheduler_that_stops_calling_keeps_its_last_share() -> None:
    found, clock = callers()
    found.called("default-scheduler", 100, 400)
    await clock.advance(3600)
    assert share(found) == 0.25


async def test_the_share_is_wanted_once_a_second() -> None:
    found, clock = callers()
    assert found.wants_share("default-scheduler")
    found.called("default-scheduler", 5)
    assert found.wants_share("default-scheduler")
    assert "share" not in found.report()["default-scheduler"]
    found.called("default-scheduler", 5, 5)
    assert not found.wants_share("default-scheduler")
    await clock.advance(1)
    assert found.wants_share("default-scheduler")


async def test_any_number_of_names_takes_bounded_room() -> None:
    found, clock = callers()
    for number in range(100):
        found.called(f"scheduler-{number}", 1, 1)
        found.called("default-scheduler", 1, 1)
        await clock.advance(1)
    assert len(found.report()) == 32
    assert "default-scheduler" in found.report()


class Stand:
    """A cluster whose requests go through a `CallerRecorder`."""

    def __init__(self, nodes: int = 0) -> None:
        self.world = AdvisorWorld()
        self.names = [f"n{number:03d}" for number in range(nodes)]
        self.world.loads(**dict.fromkeys(self.names, 10.0))
        self.callers = Callers(self.world.clock)
        advisor = self.world.advisor
        self.policy = CallerRecorder(advisor, self.callers, lambda: advisor.board)

    async def filter(self, offered: int, **pod: Any) -> list[str]:
        asked = self.world.pod("web", **pod)
        return list((await self.policy.filter(asked, self.names[:offered])).keep)

    @property
    def share(self) -> Any:
        return self.callers.report()["default-scheduler"].get("share")


async def test_filter_calls_are_recorded_with_the_share_that_was_offered() -> None:
    stand = Stand(200)
    assert len(await stand.filter(50)) == 50
    assert stand.share == 0.25


async def test_below_a_hundred_nodes_everything_that_fits_is_offered() -> None:
    stand = Stand(99)
    await stand.filter(10)
    assert stand.share == 1.0


async def test_a_single_node_proves_nothing() -> None:
    stand = Stand(200)
    await stand.filter(1)
    assert stand.share is None
    await stand.filter(100)
    await stand.world.clock.advance(2)
    await stand.filter(1)
    assert stand.share == 0.5


async def test_nodes_are_counted_once_a_second_at_most() -> None:
    stand = Stand(200)
    await stand.filter(50)
    await stand.filter(200)
    assert stand.share == 0.25
    await stand.world.clock.advance(1)
    await stand.filter(200)
    assert stand.share == 1.0


async def test_before_there_is_a_board_only_the_call_is_recorded() -> None:
    stand = Stand(200)
    policy = CallerRecorder(stand.world.advisor, stand.callers, lambda: None)
    await policy.filter(stand.world.pod("web"), stand.names)
    assert stand.share is None


async def test_other_verbs_are_passed_on_and_not_recorded() -> None:
    stand = Stand(3)
    pod = stand.world.pod("web")
    assert stand.policy.prioritize(pod, stand.names).values == [9, 9, 9]
    candidates = {"n000": Victims(pods=[PodUid("u")], violations=0)}
    assert set(stand.policy.preempt(pod, candidates)) == {"n000"}
    assert stand.callers.report() == {}


def board_with(**node: Any) -> Board:
    """Return a board with a schedulable node of ten cores, and another like this."""
    world = AdvisorWorld()
    world.node("open")
    made = build.node("other", **{"cpu": "10", "memory": "10Gi", **node})
    world.state.nodes.upsert(wire_node(made))
    return world.refresh()


@pytest.mark.parametrize(
    ("node", "milli", "count"),
    [
        ({}, 100, 2),
        ({"cpu": "1"}, 2_000, 1),
        ({"cpu": "2"}, 2_000, 2),
        ({"cpu": "1"}, 20_000, 0),
        ({"memory": "1Mi"}, 100, 1),
        ({"unschedulable": True}, 100, 1),
        ({"taints": [TAINT]}, 100, 1),
        ({"taints": [{**TAINT, "effect": "NoExecute"}]}, 100, 1),
        ({"taints": [SOFT]}, 100, 2),
    ],
)
def test_suitable_nodes_accept_pods_and_have_room(
    node: dict[str, Any], milli: int, count: int
) -> None:
    asked = Resources(cpu_milli=milli, mem_bytes=2 << 20)
    assert count_suitable(board_with(**node), asked) == count


def test_a_node_that_closes_or_joins_counts_from_the_next_board_on() -> None:
    world = AdvisorWorld()
    for name, closed, count in (("b", False, 1), ("a", False, 2), ("b", True, 1), ("c", True, 1)):
        made = build.node(name, cpu="10", memory="10Gi", unschedulable=closed)
        world.state.nodes.upsert(wire_node(made))
        assert count_suitable(world.refresh(), Resources(cpu_milli=100)) == count


def test_what_pods_ask_for_already_is_not_room() -> None:
    world = AdvisorWorld()
    world.node("n1")
    world.busy("n1", 10, asked=95)
    world.measure()
    assert world.advisor.board is not None
    assert count_suitable(world.advisor.board, Resources(cpu_milli=500)) == 1
    assert count_suitable(world.advisor.board, Resources(cpu_milli=501)) == 0
