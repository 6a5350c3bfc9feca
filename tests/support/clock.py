# SPDX-License-Identifier: Apache-2.0
"""A clock that tests turn by hand."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class FakeClock:
    """Time stands still until `advance` is awaited; sleepers wake in the order of their alarms."""

    def __init__(self, now: float = 1_800_000_000.0, monotonic: float = 1_000.0) -> None:
        self._monotonic = monotonic
        self._wall_offset = now - monotonic
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self._monotonic + self._wall_offset

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        alarm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._order), alarm))
        await alarm

    def jump_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an operator or NTP does."""
        self._wall_offset += seconds

    @property
    def sleeping(self) -> int:
        """How many tasks wait for this clock."""
        return sum(not alarm.done() for _, _, alarm in self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass, waking all that are due on the way."""
        target = self._monotonic + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            due, _, alarm = heapq.heappop(self._sleepers)
            self._monotonic = max(self._monotonic, due)
            if not alarm.done():
                alarm.set_result(None)
                await self._settle()
        self._monotonic = target
        await self._settle()

    async def until_sleeping(self, count: int = 1) -> None:
        """Wait until at least `count` tasks wait for this clock (sockets may come first)."""
        while self.sleeping < count:  # noqa: ASYNC110 - a clock has no event for being waited for
            await asyncio.sleep(0.001)  # noqa: TID251 - lets real sockets make progress

    async def _settle(self) -> None:
        # Turns of the loop without time: enough for a chain of awaits that do no I/O.
        for _ in range(20):
            await asyncio.sleep(0)  # noqa: TID251 - yields, does not wait


class NoThreads(ThreadPoolExecutor):
    """Does the work of a thread at once, because time must not go on beside it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


def without_threads() -> None:
    """Let the running loop do everything itself: what happens is the same in every run."""
    asyncio.get_running_loop().set_default_executor(NoThreads())
