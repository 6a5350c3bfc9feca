# SPDX-License-Identifier: Apache-2.0
"""The queue of keys that workers share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from common.kube.workqueue import WorkQueue
from tests.support.clock import FakeClock


@asynccontextmanager
async def running(queue: WorkQueue[str]) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.run_delayed())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def drained(queue: WorkQueue[str]) -> list[str]:
    """Get and finish all keys that wait."""
    found = []
    while len(queue):
        key = await queue.get()
        found.append(key)
        queue.done(key)
    return found


async def test_a_key_added_twice_is_handled_once() -> None:
    queue: WorkQueue[str] = WorkQueue(FakeClock())
    for key in ("a", "b", "a"):
        queue.add(key)
    assert await drained(queue) == ["a", "b"]


async def test_a_key_is_never_with_two_workers() -> None:
    queue: WorkQueue[str] = WorkQueue(FakeClock())
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await drained(queue) == ["a"]


async def test_a_worker_that_waits_gets_what_is_added() -> None:
    queue: WorkQueue[str] = WorkQueue(FakeClock())
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)  # noqa: TID251 - yields, does not wait
    queue.add("a")
    assert await waiting == "a"


async def test_of_several_delays_the_earliest_counts() -> None:
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    async with running(queue):
        for seconds in (30, 10, 20):
            queue.add_after("a", seconds)
        await clock.advance(9)
        assert len(queue) == 0
        await clock.advance(1)
        assert await drained(queue) == ["a"]
        await clock.advance(60)
        assert len(queue) == 0


async def test_adding_a_key_ends_its_delay() -> None:
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    async with running(queue):
        queue.add_after("a", 10)
        queue.add("a")
        assert await drained(queue) == ["a"]
        await clock.advance(20)
        assert len(queue) == 0


async def test_a_delayed_key_comes_back_after_its_worker_is_done() -> None:
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    async with running(queue):
        queue.add("a")
        key = await queue.get()
        queue.add_after(key, 5)
        queue.done(key)
        await clock.advance(5)
        assert await drained(queue) == ["a"]


async def test_keys_that_cannot_be_compared_may_be_due_at_once() -> None:
    clock = FakeClock()
    queue: WorkQueue[object] = WorkQueue(clock)
    keys = [object(), object()]
    delays = asyncio.create_task(queue.run_delayed())
    for key in keys:
        queue.add_after(key, 1)
    await clock.advance(1)
    assert [await queue.get(), await queue.get()] == keys
    delays.cancel()
    await asyncio.gather(delays, return_exceptions=True)
