# SPDX-License-Identifier: Apache-2.0
"""Work of little urgency waits for its turn, so that the event loop is never busy with it.

The health port shares its loop with the answers to kube-scheduler. Requests that arrive
together would all be answered in one pass of the loop; here one of them gets its turn per
pass, first come first served, and the passes in between belong to everything else.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """Lets one waiter go on per pass, and in the long run one every `apart_s`.

    Up to `burst` of them need not keep that distance, if there was none for a while.
    """

    def __init__(self, apart_s: float = 0.0, *, burst: int = 1) -> None:
        self._apart_s = apart_s
        self._ahead_s = (burst - 1) * apart_s
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._next_s = 0.0
        self._timer: asyncio.Handle | None = None

    async def take(self) -> None:
        """Return when it is the caller's turn."""
        await self.join()

    def join(self) -> asyncio.Future[None]:
        """Return what is done when it is the caller's turn; who cancels it takes none."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if self._timer is None:
            self._schedule(loop)
        return turn

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        wait_s = self._next_s - self._ahead_s - loop.time()
        if wait_s > 0:
            self._timer = loop.call_later(wait_s, self._grant, loop)
        else:
            self._timer = loop.call_soon(self._grant, loop)

    def _grant(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else the client has gone
                turn.set_result(None)
                self._next_s = max(self._next_s, loop.time()) + self._apart_s
                break
        if self._waiting:
            self._schedule(loop)
