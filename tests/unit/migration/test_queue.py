"""The queue that workers share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rebalancer.migration.queue import KeyQueue
from tests.support.clock import FakeClock


@asynccontextmanager
async def ringing(queue: KeyQueue) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.run_alarms())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def drained(queue: KeyQueue) -> list[str]:
    """Take and give back all keys that wait."""
    found = []
    while queue.waiting:
        key = await queue.take()
        found.append(key)
        queue.done(key)
    return found


async def test_a_key_added_twice_is_looked_at_once() -> None:
    queue = KeyQueue(FakeClock())
    for key in ("a", "b", "a"):
        queue.add(key)
    assert await drained(queue) == ["a", "b"]


async def test_a_key_is_never_with_two_workers() -> None:
    queue = KeyQueue(FakeClock())
    queue.add("a")
    assert await queue.take() == "a"
    queue.add("a")
    assert queue.waiting == 0
    queue.done("a")
    assert await drained(queue) == ["a"]


async def test_a_worker_that_waits_gets_what_is_added() -> None:
    queue = KeyQueue(FakeClock())
    waiting = asyncio.create_task(queue.take())
    await asyncio.sleep(0)  # noqa: TID251 - yields, does not wait
    queue.add("a")
    assert await waiting == "a"


async def test_of_several_alarms_the_earliest_counts() -> None:
    clock = FakeClock()
    queue = KeyQueue(clock)
    async with ringing(queue):
        for seconds in (30, 10, 20):
            queue.add_after("a", seconds)
        await clock.advance(9)
        assert queue.waiting == 0
        await clock.advance(1)
        assert await drained(queue) == ["a"]
        await clock.advance(60)
        assert queue.waiting == 0


async def test_a_look_makes_its_alarm_needless() -> None:
    clock = FakeClock()
    queue = KeyQueue(clock)
    async with ringing(queue):
        queue.add_after("a", 10)
        queue.add("a")
        assert await drained(queue) == ["a"]
        await clock.advance(20)
        assert queue.waiting == 0


async def test_an_alarm_set_during_a_look_rings_after_it() -> None:
    clock = FakeClock()
    queue = KeyQueue(clock)
    async with ringing(queue):
        queue.add("a")
        key = await queue.take()
        queue.add_after(key, 5)
        queue.done(key)
        await clock.advance(5)
        assert await drained(queue) == ["a"]
