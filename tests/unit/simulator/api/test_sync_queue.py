# SPDX-License-Identifier: Apache-2.0
"""The work queue of a simulated controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from simulator.api import SyncQueue
from tests.support.clock import FakeClock


@asynccontextmanager
async def running(queue: SyncQueue[str], work: Callable[[str], None]) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.run(work))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_key_added_twice_is_synced_once() -> None:
    queue: SyncQueue[str] = SyncQueue("test", FakeClock())
    for key in ("a", "b", "a"):
        queue.add(key)
    seen: list[str] = []
    queue.work_off(seen.append)
    assert seen == ["a", "b"]
    assert len(queue) == 0


async def test_keys_added_while_working_are_synced_too() -> None:
    queue: SyncQueue[str] = SyncQueue("test", FakeClock())
    seen: list[str] = []

    def work(key: str) -> None:
        seen.append(key)
        if key == "a":
            queue.add("b")

    queue.add("a")
    queue.work_off(work)
    assert seen == ["a", "b"]


async def test_keys_are_synced_as_they_come() -> None:
    clock = FakeClock()
    queue: SyncQueue[str] = SyncQueue("test", clock)
    seen: list[str] = []
    async with running(queue, seen.append):
        queue.add("a")
        await clock.advance(0)
        queue.add("b")
        await clock.advance(0)
        assert seen == ["a", "b"]


async def test_a_delayed_key_is_synced_when_it_is_due() -> None:
    clock = FakeClock()
    queue: SyncQueue[str] = SyncQueue("test", clock)
    seen: list[str] = []
    async with running(queue, seen.append):
        queue.add_after("late", 10)
        await clock.advance(1)
        queue.add_after("soon", 2)
        await clock.advance(1)
        assert seen == []
        await clock.advance(1)
        assert seen == ["soon"]
        await clock.advance(7)
        assert seen == ["soon", "late"]


async def test_a_key_that_fails_comes_back_and_stops_no_other() -> None:
    clock = FakeClock()
    queue: SyncQueue[str] = SyncQueue("test", clock)
    seen: list[str] = []

    def work(key: str) -> None:
        seen.append(key)
        if seen.count("bad") == 1 and key == "bad":
            raise RuntimeError("once")

    async with running(queue, work):
        queue.add("bad")
        queue.add("good")
        await clock.advance(0)
        assert seen == ["bad", "good"]
        await clock.advance(1)
        assert seen == ["bad", "good", "bad"]
