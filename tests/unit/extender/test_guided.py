"""Who asks is noted on the way, and every answer is passed on as it is."""

from __future__ import annotations

from typing import Any

import pytest

from common.cluster.records import PodUid
from common.cluster.resources import Resources
from extender.asking import Victims
from extender.guided import Guided, could_take
from extender.guides import Guides
from extender.scoring import Board
from simulator import build
from tests.support.advisor_world import AdvisorWorld
from tests.support.wire import wire_node

TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
SOFT = {"key": "dedicated", "value": "x", "effect": "PreferNoSchedule"}


class Stand:
    """A cluster that is asked through `Guided`."""

    def __init__(self, nodes: int = 0) -> None:
        self.world = AdvisorWorld()
        self.names = [f"n{number:03d}" for number in range(nodes)]
        self.world.loads(**dict.fromkeys(self.names, 10.0))
        self.guides = Guides(self.world.clock)
        self.verdicts = Guided(self.world.advisor, self.guides, lambda: self.world.advisor.board)

    async def filter(self, shown: int, **pod: Any) -> list[str]:
        asked = self.world.pod("web", **pod)
        return list((await self.verdicts.filter(asked, self.names[:shown])).keep)

    @property
    def share(self) -> Any:
        return self.guides.report()["default-scheduler"].get("share")


async def test_filter_calls_are_noted_with_the_share_that_was_shown() -> None:
    stand = Stand(200)
    assert len(await stand.filter(50)) == 50
    assert stand.share == 0.25


async def test_below_a_hundred_nodes_everything_that_fits_is_shown() -> None:
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


async def test_before_there_is_a_board_only_the_call_is_noted() -> None:
    stand = Stand(200)
    verdicts = Guided(stand.world.advisor, stand.guides, lambda: None)
    await verdicts.filter(stand.world.pod("web"), stand.names)
    assert stand.share is None


async def test_other_verbs_are_passed_on_and_not_noted() -> None:
    stand = Stand(3)
    pod = stand.world.pod("web")
    assert stand.verdicts.prioritize(pod, stand.names) == [9, 9, 9]
    candidates = {"n000": Victims(pods=[PodUid("u")], violations=0)}
    assert set(stand.verdicts.preempt(pod, candidates)) == {"n000"}
    assert stand.guides.report() == {}


def board_with(**node: Any) -> Board:
    """Return a board with a node of ten cores that is open, and another like this."""
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
def test_nodes_that_could_be_shown_are_open_and_have_room(
    node: dict[str, Any], milli: int, count: int
) -> None:
    asked = Resources(cpu_milli=milli, mem_bytes=2 << 20)
    assert could_take(board_with(**node), asked) == count


def test_a_node_that_closes_or_joins_counts_from_the_next_board_on() -> None:
    world = AdvisorWorld()
    for name, closed, count in (("b", False, 1), ("a", False, 2), ("b", True, 1), ("c", True, 1)):
        made = build.node(name, cpu="10", memory="10Gi", unschedulable=closed)
        world.state.nodes.upsert(wire_node(made))
        assert could_take(world.refresh(), Resources(cpu_milli=100)) == count


def test_what_pods_ask_for_already_is_not_room() -> None:
    world = AdvisorWorld()
    world.node("n1")
    world.busy("n1", 10, asked=95)
    world.measure()
    assert world.advisor.board is not None
    assert could_take(world.advisor.board, Resources(cpu_milli=500)) == 1
    assert could_take(world.advisor.board, Resources(cpu_milli=501)) == 0
