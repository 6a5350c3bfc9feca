"""When a pause ends: in time, or early for what cannot wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from common.cluster.interning import Interner
from common.cluster.records import NodeRecord, node_record
from common.contract import MAINTENANCE_LABEL
from rebalancer.waking import Bell, Due, until_of_age
from simulator import build
from tests.support.clock import FakeClock
from tests.support.wire import wire_node


def node(name: str = "n1", **labels: str) -> NodeRecord:
    return node_record(wire_node(build.node(name, labels=labels)), Interner())


PLAIN, LABELLED = node(), node(**{MAINTENANCE_LABEL: "true"})


@asynccontextmanager
async def pausing(bell: Bell, clock: FakeClock, **given: Any) -> AsyncIterator[asyncio.Task[Due]]:
    task = asyncio.create_task(bell.pause(30.0, **given))
    await clock.until_sleeping()
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_pause_ends_after_its_time() -> None:
    clock = FakeClock()
    async with pausing(Bell(clock), clock) as pause:
        await clock.advance(29.9)
        assert not pause.done()
        await clock.advance(0.1)
        assert pause.result() is Due.INTERVAL


@pytest.mark.parametrize(
    ("old", "new", "rings"),
    [
        (PLAIN, LABELLED, True),
        (LABELLED, PLAIN, True),
        (None, LABELLED, True),
        (LABELLED, None, True),
        (PLAIN, node(**{MAINTENANCE_LABEL: "soon"}), False),
        (None, PLAIN, False),
        (PLAIN, None, False),
        (LABELLED, node(zone="b", **{MAINTENANCE_LABEL: "true"}), False),
    ],
)
async def test_the_maintenance_label_ends_it_at_once(
    old: NodeRecord | None, new: NodeRecord | None, rings: bool
) -> None:
    clock = FakeClock()
    bell = Bell(clock)
    async with pausing(bell, clock) as pause:
        bell.on_node(old, new)
        await clock.advance(0)
        assert pause.done() is rings


async def test_a_ring_that_nobody_heeded_ends_the_next_pause() -> None:
    clock = FakeClock()
    bell = Bell(clock)
    bell.ring(Due.CHANGED)
    async with pausing(bell, clock, heeding=(Due.MAINTENANCE,)) as pause:
        await clock.advance(30)
        assert pause.result() is Due.INTERVAL
    assert await bell.pause(30.0) is Due.CHANGED
    bell.answered(*Due)
    async with pausing(bell, clock) as pause:
        assert not pause.done()


async def test_a_pause_ends_when_a_node_comes_of_age_even_if_it_is_new() -> None:
    clock = FakeClock()
    bell, due_s = Bell(clock), [None, 5.0]
    began_s = clock.monotonic()

    def of_age() -> float | None:
        left = due_s[0]
        return None if left is None else left - (clock.monotonic() - began_s)

    async with pausing(bell, clock, of_age=of_age) as pause:
        due_s[0] = 5.0
        bell.on_node(None, PLAIN)
        await clock.advance(4.9)
        assert not pause.done()
        await clock.advance(0.1)
        assert pause.result() is Due.NODE_OF_AGE


@pytest.mark.parametrize(
    ("looked_s", "now_s", "expected"),
    [(50, 60, 40), (99, 100, 0), (99, 130, -30), (100, 130, None), (0, 10, 90)],
)
def test_only_nodes_that_were_too_young_at_the_last_look_are_waited_for(
    looked_s: float, now_s: float, expected: float | None
) -> None:
    created_s = PLAIN.created_s
    found = until_of_age(
        [PLAIN], min_age_s=100, looked_s=created_s + looked_s, now_s=created_s + now_s
    )
    assert found == expected
