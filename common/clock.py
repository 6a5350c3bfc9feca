# SPDX-License-Identifier: Apache-2.0
"""The only module that touches time.

Everything that waits, stamps or measures is handed a `Clock`, so that tests decide what
time it is and none of them sleeps. Durations come from `monotonic`, which no operator
and no NTP daemon can set back; `now` is for stamps that leave the process and for
comparing with stamps that came from outside.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Final, Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Tells the time and waits; all values are seconds."""

    def now(self) -> float:
        """Return the wall clock: seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return a clock that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`, or when canceled."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


SYSTEM: Final[Clock] = SystemClock()


async def within(clock: Clock, seconds: float, work: Awaitable[T]) -> T:
    """Await `work` for at most `seconds` of `clock`; raise TimeoutError after that."""
    task = asyncio.ensure_future(work)
    alarm = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TimeoutError(f"nothing within {seconds:g} s")
        return task.result()
    finally:
        for pending in (task, alarm):
            pending.cancel()
        # A canceled task ends in a later turn of the loop; none may outlive the call.
        await asyncio.gather(task, alarm, return_exceptions=True)
