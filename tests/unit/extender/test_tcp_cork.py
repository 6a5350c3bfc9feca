# SPDX-License-Identifier: Apache-2.0
"""An answer leaves in one piece, and nothing is held back without one."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn

from common.http_limits import Limits, PortState
from extender.tcp_cork import CorkedProtocol

ASKED = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"


class Wire(asyncio.Transport):
    """A transport and its socket; writes down what is done to either."""

    def __init__(self, *, closed: bool = False) -> None:
        super().__init__()
        self.log: list[str] = []
        self._closed = closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self if name == "socket" else default

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if self._closed:
            raise OSError("gone")
        assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_CORK)
        self.log.append("cork" if value else "uncork")

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 1)

    getpeername = getsockname

    def write(self, data: Any) -> None:
        self.log.append(bytes(data).split(b"\r\n")[0].decode())

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Answer every request once it is there."""
    while (await receive()).get("more_body"):
        pass
    length = (b"content-length", b"2")
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": b"[]"})


class Connection:
    """One client's connection."""

    def __init__(self, wire: Wire) -> None:
        config = uvicorn.Config(answer, lifespan="off", ws="none", log_config=None)
        self._protocol = CorkedProtocol(config, PortState(Limits(), None, "test"), {})
        self._protocol.connection_made(wire)

    def receive(self, data: bytes) -> None:
        self._protocol.data_received(data)

    async def answered(self) -> None:
        while self._protocol.tasks:
            await asyncio.gather(*self._protocol.tasks)
        if self._protocol.timeout_keep_alive_task is not None:
            self._protocol.timeout_keep_alive_task.cancel()


ONE_ANSWER = ["cork", "HTTP/1.1 200 OK", "[]", "uncork"]


async def test_every_answer_is_written_between_corking_and_uncorking() -> None:
    wire = Wire()
    connection = Connection(wire)
    for count in (1, 2):
        connection.receive(ASKED)
        await connection.answered()
        assert wire.log == ONE_ANSWER * count


async def test_a_request_that_is_not_there_yet_corks_nothing() -> None:
    wire = Wire()
    connection = Connection(wire)
    connection.receive(ASKED[:-1])
    assert wire.log == []
    connection.receive(ASKED[-1:])
    await connection.answered()
    assert wire.log == ONE_ANSWER


async def test_nothing_is_held_back_after_answers_to_requests_that_came_together() -> None:
    wire = Wire()
    connection = Connection(wire)
    connection.receive(ASKED + ASKED)
    await connection.answered()
    assert wire.log.count("[]") == 2
    assert wire.log[-1] == "uncork"


async def test_a_socket_that_cannot_be_corked_is_written_to_all_the_same() -> None:
    wire = Wire(closed=True)
    connection = Connection(wire)
    connection.receive(ASKED)
    await connection.answered()
    assert wire.log == ["HTTP/1.1 200 OK", "[]"]
