"""A queue of keys for controllers: what changed twice is looked at once.

Subscribers add keys while a write is under way; `run` works them off between writes. A key
that fails is logged and comes back after a pause, so one bad object stops nothing.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final, Generic, TypeVar

import structlog

from common.clock import Clock, within

log: structlog.stdlib.BoundLogger = structlog.get_logger()

K = TypeVar("K", bound=Hashable)

_BATCH: Final = 50
_RETRY_S: Final = 1.0


class WorkQueue(Generic[K]):
    """Keys to look at, in the order in which they were first added."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._waiting: dict[K, None] = {}
        self._later: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._added = asyncio.Event()
        self._postponed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: K) -> None:
        """Have a key looked at soon."""
        self._waiting[key] = None
        self._added.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Have a key looked at when so much time has passed."""
        due = self._clock.monotonic() + seconds
        heapq.heappush(self._later, (due, next(self._order), key))
        self._postponed.set()

    def work_off(self, work: Callable[[K], None]) -> None:
        """Look at all keys now, including those that are added meanwhile."""
        while self._waiting:
            self._look_at(next(iter(self._waiting)), work)

    async def run(self, work: Callable[[K], None]) -> None:
        """Look at keys as they come, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._recall())
            while True:
                await self._added.wait()
                for _ in range(min(_BATCH, len(self._waiting))):
                    self._look_at(next(iter(self._waiting)), work)
                if not self._waiting:
                    self._added.clear()
                await _turn()

    def _look_at(self, key: K, work: Callable[[K], None]) -> None:
        del self._waiting[key]
        try:
            work(key)
        except Exception as error:
            log.exception("controller failed", controller=self._name, key=key, error=str(error))
            self.add_after(key, _RETRY_S)

    async def _recall(self) -> None:
        """Bring postponed keys back when they are due."""
        while True:
            self._postponed.clear()
            now = self._clock.monotonic()
            while self._later and self._later[0][0] <= now:
                self.add(heapq.heappop(self._later)[2])
            if not self._later:
                await self._postponed.wait()
                continue
            with suppress(TimeoutError):
                await within(self._clock, self._later[0][0] - now, self._postponed.wait())


async def _turn() -> None:
    """Let everybody else run once."""
    loop = asyncio.get_running_loop()
    turn: asyncio.Future[None] = loop.create_future()
    loop.call_soon(_end_turn, turn)
    await turn


def _end_turn(turn: asyncio.Future[None]) -> None:
    if not turn.done():  # who waits for it may have been cancelled
        turn.set_result(None)
