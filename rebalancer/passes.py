# SPDX-License-Identifier: Apache-2.0
"""When a level-triggered controller goes over the cluster: at once, after changes, periodically.

A pass compares the whole cluster with what it should be, so one that failed is simply followed
by the next. The flag is cleared before a pass begins: a change during it leads to another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from common.clock import Clock, within

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Passes:
    """Repeats a pass: at least `pause_s` apart, however much changes, at most `every_s`."""

    def __init__(self, clock: Clock, *, pause_s: float, every_s: float) -> None:
        self._clock = clock
        self._pause_s = pause_s
        self._every_s = every_s
        self._changed = asyncio.Event()

    def request(self) -> None:
        """Ask for another pass soon."""
        self._changed.set()

    def on_change(self, _old: object, _new: object) -> None:
        """Ask for another pass; the listener for tables in which every change matters."""
        self.request()

    async def run(self, reconcile: Callable[[], Awaitable[None]], failed: str) -> None:
        """Repeat a pass until canceled; `failed` is the log event for one that raised."""
        while True:
            self._changed.clear()
            try:
                await reconcile()
            except Exception:  # the next pass starts from the cluster again
                log.exception(failed)
            await self._clock.sleep(self._pause_s)
            with suppress(TimeoutError):
                await within(self._clock, self._every_s, self._changed.wait())
