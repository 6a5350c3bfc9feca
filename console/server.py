# SPDX-License-Identifier: Apache-2.0
"""Serves the console on a loopback port of a program.

Most programs run for weeks without a viewer. So the application with its libraries is loaded at
the first request, in a thread, and until then a program pays only for remembering load.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from common.clock import Clock
from common.http_limits import Limits
from common.http_server import address_of, listen, serving
from console.data import ConsoleData
from console.feed import Feed

if TYPE_CHECKING:
    from prometheus_client import Counter
    from starlette.types import ASGIApp, Receive, Scope, Send

HOST: Final = "127.0.0.1"
LIMITS: Final = Limits(
    url_bytes=8 << 10,
    # Browsers open connections ahead of requests; one that is closed meanwhile is an error to them.
    request_s=60.0,
    # A stream is one answer: the browser opens another one when it ends.
    answer_s=3600.0,
)


class Console:
    """The console of one program; an ASGI application."""

    def __init__(
        self, data: ConsoleData, *, program: str, clock: Clock, token: str | None = None
    ) -> None:
        """With a token, only those who have shown it see anything; see `console.security`."""
        self.feed: Final = Feed(data, clock=clock)
        self._data = data
        self._program = program
        self._token = token
        self._app: ASGIApp | None = None
        self._loading = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app or await self._loaded()
        await app(scope, receive, send)

    async def _loaded(self) -> ASGIApp:
        async with self._loading:
            if self._app is None:
                self._app = await asyncio.to_thread(self._load)
            return self._app

    def _load(self) -> ASGIApp:
        from console.app import build_app
        from console.security import Guard

        app = build_app(self._data, self.feed, program=self._program)
        return Guard(app, token=self._token)

    @asynccontextmanager
    async def serving(self, port: int, *, refused: Counter | None = None) -> AsyncIterator[str]:
        """Answer on a loopback port while the block runs; give the address."""
        listener = await listen(HOST, port)
        address = address_of(listener)
        async with serving(self, listener, limits=LIMITS, refused=refused, name="console"):
            following = asyncio.create_task(self.feed.run())
            try:
                yield address
            finally:
                following.cancel()
                self.feed.close()
                await asyncio.gather(following, return_exceptions=True)
