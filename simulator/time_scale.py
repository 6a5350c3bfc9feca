# SPDX-License-Identifier: Apache-2.0
"""Simulated durations on a real clock: `speed` shortens them, timestamps stay real.

The clients of the simulated cluster run in real time, so objects have real timestamps. Only what
the simulator waits for passes faster: pod starts, grace periods, backoff, load curves, metric
windows.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Final

import structlog

from common.clock import Clock, within

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_BATCH: Final = 50


class TimeScale:
    """How fast simulated time passes."""

    def __init__(self, clock: Clock, *, speed: float = 1.0) -> None:
        if speed <= 0:
            raise ValueError(f"speed must be above 0, not {speed:g}")
        self.clock = clock
        self.speed = speed
        self._began = clock.monotonic()

    def elapsed_s(self) -> float:
        """Return the simulated seconds since the start."""
        return (self.clock.monotonic() - self._began) * self.speed

    def real_s(self, simulated_s: float) -> float:
        """Return how long a simulated duration really takes."""
        return simulated_s / self.speed

    async def sleep(self, simulated_s: float) -> None:
        """Wait for a simulated duration."""
        await self.clock.sleep(self.real_s(simulated_s))


class Timer:
    """A pending action that can be canceled."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Cancel the action."""
        self.action = None


class Timers:
    """Pending actions; one task runs any number of them, in order."""

    def __init__(self, time_scale: TimeScale) -> None:
        self.time_scale = time_scale
        self._entries: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._sooner = asyncio.Event()

    def after(self, simulated_s: float, action: Callable[[], None]) -> Timer:
        """Run an action after a simulated duration."""
        due = self.time_scale.elapsed_s() + simulated_s
        timer = Timer(action)
        if not self._entries or due < self._entries[0][0]:
            self._sooner.set()
        heapq.heappush(self._entries, (due, next(self._order), timer))
        return timer

    async def run(self) -> None:
        """Run the actions forever."""
        while True:
            self._sooner.clear()
            for _ in range(_BATCH):
                if not self._run_next():
                    break
            else:
                await yield_once()
                continue
            if not self._entries:
                await self._sooner.wait()
                continue
            left_s = self.time_scale.real_s(self._entries[0][0] - self.time_scale.elapsed_s())
            with suppress(TimeoutError):
                await within(self.time_scale.clock, max(left_s, 0.0), self._sooner.wait())

    def _run_next(self) -> bool:
        """Run the first action if it is due; return whether it was."""
        # A millisecond early counts as due: fewer wake-ups under load.
        early = 0.001 * self.time_scale.speed
        if not self._entries or self._entries[0][0] > self.time_scale.elapsed_s() + early:
            return False
        action = heapq.heappop(self._entries)[2].action
        if action is not None:
            try:
                action()
            except Exception as error:
                log.exception("timer failed", error=str(error))
        return True


class _Yield:
    """Awaited, it returns after all other tasks have run once."""

    def __await__(self) -> Generator[None, None, None]:
        yield


async def yield_once() -> None:
    """Let all other tasks run once."""
    await _Yield()
