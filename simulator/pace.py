"""Simulated durations on a real clock: `speed` makes them shorter, stamps stay true.

Whoever talks to the simulated cluster lives in real time, so objects carry real times. Only
what the simulator waits for passes faster: pod starts, grace, backoff, load curves, metric
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


class Pace:
    """How fast simulated time passes."""

    def __init__(self, clock: Clock, *, speed: float = 1.0) -> None:
        if speed <= 0:
            raise ValueError(f"speed must be above 0, not {speed:g}")
        self.clock = clock
        self.speed = speed
        self._began = clock.monotonic()

    def elapsed_s(self) -> float:
        """Return the simulated seconds since the beginning."""
        return (self.clock.monotonic() - self._began) * self.speed

    def real_s(self, simulated_s: float) -> float:
        """Return how long a simulated duration really takes."""
        return simulated_s / self.speed

    async def sleep(self, simulated_s: float) -> None:
        """Wait for a simulated duration."""
        await self.clock.sleep(self.real_s(simulated_s))


class Appointment:
    """Something that will happen, unless it is called off."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Call it off."""
        self.action = None


class Agenda:
    """What is to happen later; one task serves any number of appointments, in their order."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self._entries: list[tuple[float, int, Appointment]] = []
        self._order = itertools.count()
        self._sooner = asyncio.Event()

    def after(self, simulated_s: float, action: Callable[[], None]) -> Appointment:
        """Have something done when a simulated duration has passed."""
        due = self.pace.elapsed_s() + simulated_s
        appointment = Appointment(action)
        if not self._entries or due < self._entries[0][0]:
            self._sooner.set()
        heapq.heappush(self._entries, (due, next(self._order), appointment))
        return appointment

    async def run(self) -> None:
        """Keep all appointments, for ever."""
        while True:
            self._sooner.clear()
            for _ in range(_BATCH):
                if not self._keep_next():
                    break
            else:
                await turn()
                continue
            if not self._entries:
                await self._sooner.wait()
                continue
            left_s = self.pace.real_s(self._entries[0][0] - self.pace.elapsed_s())
            with suppress(TimeoutError):
                await within(self.pace.clock, max(left_s, 0.0), self._sooner.wait())

    def _keep_next(self) -> bool:
        """Keep the first appointment if it is due; tell whether it was."""
        # A thousandth of a second early is on time: fewer wake-ups under load.
        early = 0.001 * self.pace.speed
        if not self._entries or self._entries[0][0] > self.pace.elapsed_s() + early:
            return False
        action = heapq.heappop(self._entries)[2].action
        if action is not None:
            try:
                action()
            except Exception as error:
                log.exception("appointment failed", error=str(error))
        return True


class _Turn:
    """Awaited, it comes back when everybody else has run once."""

    def __await__(self) -> Generator[None, None, None]:
        yield


async def turn() -> None:
    """Let everybody else run once."""
    await _Turn()
