"""A queue of keys for several workers.

What is added twice before anybody looks is looked at once; a key is never with two workers
at the same time; what changes while a key is being looked at brings it back afterwards; and
of several alarms for one key only the earliest counts.
"""

from __future__ import annotations

import asyncio
import heapq
from contextlib import suppress

from common.clock import Clock, within


class KeyQueue:
    """Names to look at, first come first served."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str, None] = {}
        self._busy: set[str] = set()
        self._again: set[str] = set()
        self._due: dict[str, float] = {}
        self._alarms: list[tuple[float, str]] = []
        self._added = asyncio.Event()
        self._alarmed = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many keys nobody has taken yet."""
        return len(self._waiting)

    def add(self, key: str) -> None:
        """Have a key looked at soon."""
        self._due.pop(key, None)
        if key in self._busy:
            self._again.add(key)
            return
        self._waiting[key] = None
        self._added.set()

    def add_after(self, key: str, seconds: float) -> None:
        """Have a key looked at when so much time has passed, unless it is sooner anyway."""
        due = self._clock.monotonic() + max(0.0, seconds)
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._alarms, (due, key))
            self._alarmed.set()

    async def take(self) -> str:
        """Return the next key; it must be given back with `done`."""
        while not self._waiting:
            self._added.clear()
            await self._added.wait()
        key = next(iter(self._waiting))
        del self._waiting[key]
        self._busy.add(key)
        return key

    def done(self, key: str) -> None:
        """Let others have the key again."""
        self._busy.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    async def run_alarms(self) -> None:
        """Bring keys back when they are due, for ever."""
        while True:
            self._alarmed.clear()
            now = self._clock.monotonic()
            while self._alarms and self._alarms[0][0] <= now:
                self._ring(*heapq.heappop(self._alarms))
            if not self._alarms:
                await self._alarmed.wait()
                continue
            with suppress(TimeoutError):
                await within(self._clock, self._alarms[0][0] - now, self._alarmed.wait())

    def _ring(self, due: float, key: str) -> None:
        if self._due.get(key) == due:  # otherwise it has been looked at since
            self.add(key)
