# SPDX-License-Identifier: Apache-2.0
"""What a client can do to a port of ours, over real sockets: nothing without a limit."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import structlog
import uvloop

from common.http_limits import Limits, PortState, refusals
from common.http_server import Server, address_of, listen, serving
from common.metrics import Metrics
from tests.support.certificates import Authority
from tests.support.http import plain_http
from tests.support.stands.extender import eventually

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

SMALL = Limits(
    url_bytes=1000,
    head_bytes=4000,
    headers=10,
    body_bytes=1000,
    connections=3,
    request_s=30.0,
    answer_s=30.0,
    idle_s=30.0,
)
QUICK = 0.05
GET = b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"


class Port(NamedTuple):
    """A served port, and what was refused on it."""

    address: str
    metrics: Metrics
    server: Server
    seen: list[Scope]

    def refused(self, cause: str) -> float:
        labels = {"port": "test", "cause": cause}
        found = self.metrics.registry.get_sample_value("evenkeel_http_refused_total", labels)
        return found or 0.0

    @property
    def state(self) -> PortState:
        state = self.server.server_state
        assert isinstance(state, PortState)
        return state


class Line:
    """A bare connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> bytes:
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return head + await self.reader.readexactly(length)

    async def rest(self) -> bytes:
        """Return everything until the server closes; an aborted connection ends too."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    async def pour(self, piece: bytes, least: int) -> int:
        """Send for as long as the server takes it; return how much it took."""
        sent = 0
        try:
            while sent < least:
                await self.send(piece)
                sent += len(piece)
        except ConnectionError:
            pass
        return sent


@asynccontextmanager
async def line_to(port: Port, tls: ssl.SSLContext | None = None) -> AsyncIterator[Line]:
    host, _, number = port.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(number), limit=1 << 20, ssl=tls)
    try:
        yield Line(reader, writer)
    finally:
        writer.close()


Handle = Callable[["Receive"], Awaitable[None]]


async def at_once(_: Receive) -> None:
    """Answer without looking at the body."""


@asynccontextmanager
async def served(
    limits: Limits = SMALL, handle: Handle = at_once, **options: object
) -> AsyncIterator[Port]:
    metrics, seen = Metrics("test"), list[dict[str, object]]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(dict(scope))
        await handle(receive)
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    listener = await listen("127.0.0.1", 0)
    address = address_of(listener)
    serve = serving(app, listener, limits=limits, refused=refusals(metrics), name="test", **options)
    async with serve as server:
        yield Port(address, metrics, server, seen)  # type: ignore[arg-type]  # scopes are dicts


async def test_a_url_without_end_is_cut_off_before_it_takes_memory() -> None:
    async with served() as port, line_to(port) as line:
        await line.send(b"GET /")
        await line.pour(b"a" * 65536, 64 << 20)
        told = await line.rest()
        assert told == b"" or told.startswith(b"HTTP/1.1 414 ")
        assert port.refused("url") == 1
        assert port.seen == []


@pytest.mark.parametrize("size", [999, 1000, 1001])
async def test_a_url_is_refused_above_its_limit_and_not_below(size: int) -> None:
    async with served() as port, line_to(port) as line:
        # In two pieces: the parser hands over what came with each.
        await line.send(b"GET /" + b"a" * 500)
        await line.send(b"a" * (size - 501) + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        status = (await line.answer()).split()[1]
        assert status == (b"200" if size <= 1000 else b"414")
        assert len(port.seen) == (size <= 1000)


async def test_headers_without_end_are_cut_off_before_they_take_memory() -> None:
    async with served(replace(SMALL, headers=1_000_000)) as port, line_to(port) as line:
        await line.send(b"GET / HTTP/1.1\r\n")
        await line.pour(b"x-some: header\r\n" * 4096, 64 << 20)
        told = await line.rest()
        assert told == b"" or told.startswith(b"HTTP/1.1 431 ")
        assert port.refused("head") == 1


async def test_one_header_without_end_is_cut_off() -> None:
    async with served() as port, line_to(port) as line:
        await line.send(b"GET / HTTP/1.1\r\nx: ")
        await line.pour(b"a" * 65536, 64 << 20)
        await line.rest()
        assert port.refused("head") == 1


@pytest.mark.parametrize("count", [9, 10])
async def test_headers_are_counted(count: int) -> None:
    async with served() as port, line_to(port) as line:
        more = b"".join(b"x-%d: 1\r\n" % number for number in range(count))
        await line.send(b"GET / HTTP/1.1\r\nHost: x\r\n" + more + b"\r\n")
        status = (await line.answer()).split()[1]
        assert status == (b"200" if count == 9 else b"431")
        assert port.refused("headers") == (count == 10)


async def test_the_head_of_every_request_of_a_connection_is_limited() -> None:
    async with served(replace(SMALL, headers=1_000_000)) as port, line_to(port) as line:
        for _ in range(3):
            await line.send(GET)
            assert (await line.answer()).startswith(b"HTTP/1.1 200 ")
        await line.send(b"GET / HTTP/1.1\r\n" + b"x-some: header\r\n" * 300)
        assert (await line.rest()).startswith(b"HTTP/1.1 431 ")
        assert port.refused("head") == 1


@pytest.mark.parametrize(
    "announced", [b"Content-Length: 1000000000", b"Transfer-Encoding: chunked"]
)
async def test_a_body_without_end_is_cut_off_though_nothing_reads_it(announced: bytes) -> None:
    async with served() as port, line_to(port) as line:
        await line.send(b"POST / HTTP/1.1\r\nHost: x\r\n" + announced + b"\r\n\r\n")
        await line.answer()
        taken = await line.pour(b"1000\r\n" + b"a" * 4096 + b"\r\n", 64 << 20)
        assert taken < 64 << 20
        assert port.refused("body") == 1


async def test_the_framing_of_chunks_counts_too() -> None:
    async with served() as port, line_to(port) as line:
        await line.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;")
        await line.answer()
        assert await line.pour(b"extension" * 8192, 64 << 20) < 64 << 20
        assert port.refused("body") == 1


async def test_trailers_are_counted_with_the_headers() -> None:
    async with served() as port, line_to(port) as line:
        await line.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
        await line.answer()
        await line.pour(b"x-some: trailer\r\n" * 4096, 1 << 20)
        await line.rest()
        assert port.refused("headers") == 1
        assert len(port.seen[0]["headers"]) <= SMALL.headers


async def test_requests_sent_ahead_are_limited() -> None:
    async with served(replace(SMALL, head_bytes=1 << 20)) as port, line_to(port) as line:
        await line.send(GET * 5000)
        await line.rest()
        assert port.refused("pipeline") == 1
        assert len(port.seen) <= 8


async def test_a_request_that_trickles_in_is_given_up() -> None:
    async with served(replace(SMALL, request_s=QUICK)) as port, line_to(port) as line:
        await line.send(b"GET / HT")
        assert (await line.rest()).startswith(b"HTTP/1.1 408 ")
        assert port.refused("slow_request") == 1


async def test_a_body_that_trickles_in_is_given_up() -> None:
    async def read(receive: Receive) -> None:
        while (await receive()).get("more_body"):
            pass

    async with served(replace(SMALL, request_s=QUICK), read) as port, line_to(port) as line:
        await line.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\na")
        assert await line.rest() == b""
        assert port.refused("slow_request") == 1


async def test_a_connection_that_says_nothing_is_closed() -> None:
    async with served(replace(SMALL, request_s=QUICK)) as port, line_to(port) as line:
        await line.rest()
        assert port.refused("slow_request") == 1


async def test_a_connection_without_a_further_request_is_closed_in_silence() -> None:
    async with served(replace(SMALL, idle_s=QUICK)) as port, line_to(port) as line:
        await line.send(GET)
        await line.answer()
        assert await line.rest() == b""
        assert port.refused("slow_request") == 0


async def test_an_answer_that_is_not_read_is_given_up() -> None:
    never = asyncio.Event()

    async def stuck(_: Receive) -> None:
        await never.wait()

    async with served(replace(SMALL, answer_s=QUICK), stuck) as port, line_to(port) as line:
        await line.send(GET)
        assert await line.rest() == b""
        assert port.refused("slow_reader") == 1
        never.set()


async def test_silent_connections_make_room_for_whoever_comes_next() -> None:
    async with served() as port, line_to(port) as kept:
        await kept.send(GET)
        await kept.answer()
        async with line_to(port) as silent, line_to(port) as partial:
            await partial.send(b"GET / HT")
            for _ in range(5):
                async with line_to(port) as next_one:
                    await next_one.send(GET)
                    assert (await next_one.answer()).startswith(b"HTTP/1.1 200 ")
            assert await silent.rest() == b""
        # Who has asked something before goes last.
        await kept.send(GET)
        assert (await kept.answer()).startswith(b"HTTP/1.1 200 ")
        assert port.refused("crowded") >= 1


async def test_there_are_never_more_connections_than_the_limit() -> None:
    async with served() as port:
        lines = [await asyncio.open_connection(*_where(port)) for _ in range(20)]
        async with line_to(port) as line:
            await line.send(GET)
            assert (await line.answer()).startswith(b"HTTP/1.1 200 ")
        assert len(port.state.connections) + port.state.opening <= SMALL.connections
        for _, writer in lines:
            writer.close()


async def test_a_port_that_is_busy_answering_lets_others_wait_instead_of_refusing_them() -> None:
    no_checkpoint = asyncio.Event()

    async def slowly(_: Receive) -> None:
        await no_checkpoint.wait()

    async with served(handle=slowly) as port, plain_http(timeout=30) as client:
        asked = [
            asyncio.create_task(
                client.get(f"http://{port.address}/", headers={"Connection": "close"})
            )
            for _ in range(8)
        ]
        while len(port.seen) < SMALL.connections:
            done, _ = await asyncio.wait(asked, timeout=0.001)
            assert not done
        assert len(port.state.connections) == SMALL.connections
        no_checkpoint.set()
        answers = await asyncio.gather(*asked)
    assert [answer.status_code for answer in answers] == [200] * 8


@pytest.mark.parametrize(
    "nonsense", [b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n\xff\r\n\r\n"]
)
async def test_what_is_no_http_is_refused_and_not_logged(
    nonsense: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with structlog.testing.capture_logs() as logs:
        async with served() as port, line_to(port) as line:
            await line.send(nonsense)
            assert (await line.rest()).startswith(b"HTTP/1.1 400 ")
            assert port.refused("syntax") == 1
    assert (logs, [record for record in caplog.records if record.levelname != "INFO"]) == ([], [])


async def test_an_upgrade_is_answered_like_any_request(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as port, line_to(port) as line:
        await line.send(
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        assert (await line.answer()).startswith(b"HTTP/1.1 200 ")
    assert [record for record in caplog.records if record.levelname != "INFO"] == []


async def test_tls_that_is_never_agreed_on_is_given_up_and_takes_no_place_for_ever(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server", names=["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    limits = replace(SMALL, request_s=QUICK)
    async with served(limits, ssl_context_factory=lambda *_: context) as port:
        silent = [await asyncio.open_connection(*_where(port)) for _ in range(5)]
        async with line_to(port, trusting) as line:
            await line.send(GET)
            assert (await line.answer()).startswith(b"HTTP/1.1 200 ")
        for reader, writer in silent:
            assert await reader.read() == b""
            writer.close()


def _where(port: Port) -> tuple[str, int]:
    host, _, number = port.address.rpartition(":")
    return host, int(number)


@pytest.mark.parametrize("requests", [1, 3, 20])
def test_a_client_that_sends_ahead_and_leaves_makes_no_noise(
    requests: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave() -> None:
        no_checkpoint = asyncio.Event()

        async def slowly(_: Receive) -> None:
            await no_checkpoint.wait()

        async with served(handle=slowly) as port:
            async with line_to(port) as line:
                await line.send(GET * requests)
                await eventually(lambda: port.seen, "a request is being answered")
            if requests != 3:  # with some sent ahead it is not read on until they are answered
                await eventually(lambda: not port.state.connections, "it is known to be gone")
            no_checkpoint.set()
            await eventually(lambda: not port.state.connections, "nothing is left of the client")
            await eventually(lambda: not port.state.tasks, "nothing is being answered")

    # On the loop of our programs, where writing to a closed connection is an error.
    uvloop.run(leave())
    assert [record for record in caplog.records if record.levelname != "INFO"] == []
