"""Has the kernel send each answer at once.

uvicorn writes the head of an answer and then its body. kube-scheduler would be woken for the
head alone, find nothing to do, and be woken again: on a busy machine that costs both sides
more than the answer itself. A corked socket (tcp(7)) sends nothing but full packets, and the
rest when it is opened; so it is corked while a request is being answered.

Nothing depends on it: where a socket cannot be corked, answers go out as they are written.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from common.http_limits import LimitedProtocol

_CORK: Final[int | None] = getattr(socket, "TCP_CORK", None)


class CorkedProtocol(LimitedProtocol):
    """uvicorn's protocol on a socket that is corked from each request to its answer."""

    _socket: socket.socket | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._socket = transport.get_extra_info("socket")

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._cork(True)

    def on_response_complete(self) -> None:
        self._cork(False)
        super().on_response_complete()

    def _cork(self, closed: bool) -> None:
        if self._socket is None or _CORK is None:
            return
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, _CORK, closed)
        except OSError:  # not TCP, or gone meanwhile
            self._socket = None
