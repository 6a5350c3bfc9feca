# SPDX-License-Identifier: Apache-2.0
"""When a wait ends: in time, or early for what cannot wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from common.api.contract import MAINTENANCE_LABEL
from common.cluster.interning import Interner
from common.cluster.records import NodeRecord, node_record
from rebalancer.triggers import SETTLED_S, Trigger, Triggers, until_of_age
from simulator import build
from tests.support.clock import FakeClock
from tests.support.worlds.wire import wire_node


def node(name: str = "n1", **labels: str) -> NodeRecord:
    return node_record(wire_node(build.node(name, labels=labels)), Interner())


PLAIN, LABELLED = node(), node(**{MAINTENANCE_LABEL: "true"})


@asynccontextmanager
async def waiting(
    triggers: Triggers, clock: FakeClock, **given: Any
) -> AsyncIterator[asyncio.Task[Trigger]]:
    task = asyncio.create_task(triggers.wait(30.0, **given))
    await clock.until_sleeping()
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_wait_ends_after_its_time() -> None:
    clock = FakeClock()
    async with waiting(Triggers(clock), clock) as wait:
        await clock.advance(29.9)
        assert not wait.done()
        await clock.advance(0.1)
        assert wait.result() is Trigger.INTERVAL


@pytest.mark.parametrize(
    ("old", "new", "ends"),
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
    old: NodeRecord | None, new: NodeRecord | None, ends: bool
) -> None:
    clock = FakeClock()
    triggers = Triggers(clock)
    async with waiting(triggers, clock) as wait:
        triggers.on_node(old, new)
        await clock.advance(0)
        assert wait.done() is ends


async def test_a_trigger_that_no_wait_watched_for_ends_the_next_one() -> None:
    clock = FakeClock()
    triggers = Triggers(clock)
    triggers.fire(Trigger.CONFIG)
    async with waiting(triggers, clock, until=(Trigger.MAINTENANCE,)) as wait:
        await clock.advance(30)
        assert wait.result() is Trigger.INTERVAL
    assert await triggers.wait(30.0) is Trigger.CONFIG
    triggers.clear(*Trigger)
    async with waiting(triggers, clock) as wait:
        assert not wait.done()


async def test_a_wait_ends_when_a_node_comes_of_age_even_if_it_is_new() -> None:
    clock = FakeClock()
    triggers, due_s = Triggers(clock), [None, 5.0]
    began_s = clock.monotonic()

    def of_age() -> float | None:
        left = due_s[0]
        return None if left is None else left - (clock.monotonic() - began_s)

    async with waiting(triggers, clock, of_age=of_age) as wait:
        due_s[0] = 5.0
        triggers.on_node(None, PLAIN)
        await clock.advance(4.9)
        assert not wait.done()
        await clock.advance(0.1)
        assert wait.result() is Trigger.NODE_OF_AGE


@pytest.mark.parametrize(
    ("planned_s", "now_s", "expected"),
    [(50, 60, 40), (99, 100, 0), (99, 130, -30), (100, 130, None), (0, 10, 90)],
)
def test_only_nodes_that_were_too_young_at_the_last_plan_are_waited_for(
    planned_s: float, now_s: float, expected: float | None
) -> None:
    created_s = PLAIN.created_s
    found = until_of_age(
        [PLAIN], min_age_s=100, planned_s=created_s + planned_s, now_s=created_s + now_s
    )
    assert found == expected


async def test_labels_that_come_one_after_the_other_are_waited_for() -> None:
    clock = FakeClock()
    triggers = Triggers(clock)
    task = asyncio.create_task(triggers.settled())
    await clock.until_sleeping()
    for _ in range(2):
        await clock.advance(0.9 * SETTLED_S)
        triggers.on_node(PLAIN, LABELLED)
    await clock.advance(0.9 * SETTLED_S)
    assert not task.done()
    await clock.advance(0.2 * SETTLED_S)
    assert task.done()


async def test_labels_that_never_stop_coming_are_not_waited_for_forever() -> None:
    clock = FakeClock()
    triggers = Triggers(clock)
    task = asyncio.create_task(triggers.settled())
    await clock.until_sleeping()
    for _ in range(11):
        await clock.advance(0.5)
        triggers.on_node(PLAIN, LABELLED)
    await clock.advance(0.1)
    assert task.done()
