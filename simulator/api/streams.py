# SPDX-License-Identifier: Apache-2.0
"""The connection of one watch: what is sent when, and how it ends.

Bookmarks come about every minute and once more just before the end, as from the real
server (apiserver/pkg/storage/cacher/cache_watcher.go), so that a client that resumes is never
far behind.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from common.clock import Clock
from simulator.api.faults import Faults
from simulator.api.watches import Watch

SHORTEST_WATCH_S: Final = 1800.0
BOOKMARK_EVERY_S: Final = 60.0
_BOOKMARK_BEFORE_END_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a watch lasts, and how often it sends bookmarks."""

    lasts_s: float
    bookmark_every_s: float | None


class Stream:
    """Writes a watch to its client until one of them ends."""

    def __init__(
        self, watch: Watch, request: web.BaseRequest, timing: Timing, clock: Clock
    ) -> None:
        self.watch = watch
        self.resource = watch.resource
        self._request = request
        self._timing = timing
        self._clock = clock

    def drop(self) -> None:
        """Break the connection."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def run(self, faults: Faults) -> web.StreamResponse:
        """Serve the watch; a frozen one stays open without data."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        faults.opened(self)
        timer = asyncio.create_task(self._keep_time())
        try:
            # A client that disconnects is not an error; it can resume.
            with suppress(ConnectionError):
                await response.prepare(self._request)
                await self._write(response, faults)
                await response.write_eof()
        finally:
            timer.cancel()
            self.watch.end()
            faults.closed(self)
        return response

    async def _write(self, response: web.StreamResponse, faults: Faults) -> None:
        while True:
            await self.watch.wait()
            await faults.until_thawed(self.resource)
            data = self.watch.take()
            if data:
                await response.write(data)
            elif self.watch.ended:
                return

    async def _keep_time(self) -> None:
        left_s, every_s = self._timing.lasts_s, self._timing.bookmark_every_s
        while every_s is not None and left_s > _BOOKMARK_BEFORE_END_S:
            pause_s = min(every_s, left_s - _BOOKMARK_BEFORE_END_S)
            await self._clock.sleep(pause_s)
            self.watch.bookmark()
            left_s -= pause_s
        await self._clock.sleep(left_s)
        self.watch.end()
