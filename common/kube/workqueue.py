# SPDX-License-Identifier: Apache-2.0
"""A queue of keys, with the guarantees of client-go's (util/workqueue).

A key that is added twice before a worker gets it is handled once. A key is never with two
workers at the same time; one that is added while a worker has it comes back after `done`.
Of several delays for one key only the earliest counts, and adding the key ends the delay:
controllers are level-triggered and set it again if they still need it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections.abc import Hashable
from contextlib import suppress
from typing import Generic, TypeVar

from common.clock import Clock, within

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys to handle, first in, first out; its length is how many no worker has yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[K, None] = {}
        self._processing: set[K] = set()
        self._dirty: set[K] = set()
        self._due: dict[K, float] = {}
        self._delayed: list[tuple[float, int, K]] = []
        self._order = itertools.count()  # keys need not be comparable
        self._added = asyncio.Event()
        self._rescheduled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: K) -> None:
        """Queue a key."""
        self._due.pop(key, None)
        if key in self._processing:
            self._dirty.add(key)
            return
        self._waiting[key] = None
        self._added.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Queue a key after a delay, unless it is due sooner anyway."""
        due = self._clock.monotonic() + max(0.0, seconds)
        if due < self._due.get(key, math.inf):
            self._due[key] = due
            heapq.heappush(self._delayed, (due, next(self._order), key))
            self._rescheduled.set()

    async def wait(self) -> None:
        """Return once there is a key to get."""
        while not self._waiting:
            self._added.clear()
            await self._added.wait()

    async def get(self) -> K:
        """Return the next key once there is one; the worker must call `done` for it."""
        await self.wait()
        return self.get_nowait()

    def get_nowait(self) -> K:
        """Return the next key; the queue must not be empty."""
        key = next(iter(self._waiting))
        del self._waiting[key]
        self._processing.add(key)
        return key

    def done(self, key: K) -> None:
        """Mark a key as handled; other workers may get it again."""
        self._processing.discard(key)
        if key in self._dirty:
            self._dirty.discard(key)
            self.add(key)

    async def run_delayed(self) -> None:
        """Queue delayed keys when they are due, for ever."""
        while True:
            self._rescheduled.clear()
            now = self._clock.monotonic()
            while self._delayed and self._delayed[0][0] <= now:
                due, _, key = heapq.heappop(self._delayed)
                if self._due.get(key) == due:  # otherwise the key has been added since
                    self.add(key)
            if not self._delayed:
                await self._rescheduled.wait()
                continue
            with suppress(TimeoutError):
                await within(self._clock, self._delayed[0][0] - now, self._rescheduled.wait())
