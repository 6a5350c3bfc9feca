# SPDX-License-Identifier: Apache-2.0
"""Makes the kernel send each response as one piece.

uvicorn writes the head of a response and then its body. kube-scheduler would be woken for
the head alone, find nothing to do, and be woken again: on a busy machine that costs both
sides more than the response itself. A corked socket (TCP_CORK in tcp(7)) sends only full
packets, and the rest when it is uncorked; so it stays corked while a request is answered.

This is an optimization only: where a socket cannot be corked, responses go out as written.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from common.http_limits import LimitedProtocol

_TCP_CORK: Final[int | None] = getattr(socket, "TCP_CORK", None)


class CorkedProtocol(LimitedProtocol):
    """uvicorn's protocol on a socket that is corked from each request to its response."""

    _socket: socket.socket | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._socket = transport.get_extra_info("socket")

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._set_cork(True)

    def on_response_complete(self) -> None:
        self._set_cork(False)
        super().on_response_complete()

    def _set_cork(self, corked: bool) -> None:
        if self._socket is None or _TCP_CORK is None:
            return
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, _TCP_CORK, corked)
        except OSError:  # not a TCP socket, or closed meanwhile
            self._socket = None
