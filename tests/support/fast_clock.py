# SPDX-License-Identifier: Apache-2.0
"""A clock that goes faster than the machine's, for programs that wait for each other.

Clocks with the same epoch have the same time, in other processes too. Nothing but the waits
gets shorter: stamps, deadlines and durations agree with each other as they always do.
"""

from __future__ import annotations

from common.clock import SYSTEM

SPEED = 10.0


class FastClock:
    """The machine's clock, some times faster; equal epochs make equal times."""

    def __init__(self, epoch_s: float | None = None, speed: float = SPEED) -> None:
        self.epoch_s = SYSTEM.now() if epoch_s is None else epoch_s
        self._speed = speed

    def now(self) -> float:
        return self.epoch_s + (SYSTEM.now() - self.epoch_s) * self._speed

    def monotonic(self) -> float:
        return SYSTEM.monotonic() * self._speed

    async def sleep(self, seconds: float) -> None:
        await SYSTEM.sleep(seconds / self._speed)
