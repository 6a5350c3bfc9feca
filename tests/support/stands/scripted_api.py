# SPDX-License-Identifier: Apache-2.0
"""An API server on a real socket that plays exactly what a test wrote down.

It speaks just enough HTTP/1.1 and is raw asyncio, because the interesting servers are the
ones that no framework can be made to imitate: they stop in the middle of a line, reset the
connection, or say nothing at all and stay.

Each request takes the next step of the script, whatever it asked for; tests look at
`requests` afterwards. When the script is over, requests are left without an answer.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from common.clock import Clock
from common.kube.client import KubeClient, connect


@dataclass(frozen=True)
class Request:
    """What a client asked for."""

    method: str
    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    user: str  # of the client's certificate

    @property
    def is_watch(self) -> bool:
        return self.params.get("watch") == "true"


@dataclass
class Exchange:
    """One request and the connection on which it is to be answered."""

    request: Request
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    async def answer(
        self, status: int, body: bytes, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a whole answer."""
        fields = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        await self._head(status, {**fields, **(headers or {})})
        await self.raw(body)

    async def begin(self) -> None:
        """Send the head of an endless answer."""
        await self._head(200, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})

    async def chunk(self, data: bytes) -> None:
        """Send a piece of an endless answer."""
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        """End an endless answer as HTTP wants it."""
        await self.raw(b"0\r\n\r\n")

    async def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)
        await self._writer.drain()

    def reset(self) -> None:
        """Drop the connection without a goodbye."""
        self._writer.transport.abort()

    async def closed(self) -> None:
        """Wait until the client hangs up."""
        with suppress(ConnectionError):
            while await self._reader.read(1 << 16):
                pass

    async def _head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Said"] + [f"{k}: {v}" for k, v in headers.items()]
        await self.raw("\r\n".join([*lines, "", ""]).encode())


Step = Callable[[Exchange], Awaitable[None]]


class ScriptedApi:
    """A server with a script; restart it with `stop` and `start`, on the same port."""

    def __init__(self, *steps: Step, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self._script = deque(steps)
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._changed = asyncio.Condition()
        # Keeps the port ours while no server listens: connections are refused meanwhile.
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reserved.bind(("127.0.0.1", 0))

    @property
    def port(self) -> int:
        port: int = self._reserved.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def lists(self) -> list[Request]:
        return [request for request in self.requests if not request.is_watch]

    @property
    def watches(self) -> list[Request]:
        return [request for request in self.requests if request.is_watch]

    def then(self, *steps: Step) -> None:
        """Add to the script."""
        self._script.extend(steps)

    async def until(self, predicate: Callable[[], bool]) -> None:
        """Wait until something is true; looked at whenever this server noticed something."""
        async with self._changed:
            await self._changed.wait_for(predicate)

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", self.port, reuse_port=True, ssl=self._tls
        )

    async def stop(self) -> None:
        """Stop listening and drop all connections, as a killed process does."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for writer in self._tasks.values():
            writer.transport.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> ScriptedApi:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        self._reserved.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = writer
        self.connections += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while True:
                    await self._serve(reader, writer)
        finally:
            writer.transport.abort()
            del self._tasks[task]
            self.connections -= 1
            await self._notify()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await _read_request(reader, _user_of(writer))
        self.requests.append(request)
        step = self._script.popleft() if self._script else no_answer
        await self._notify()
        await step(Exchange(request, reader, writer))

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def _read_request(reader: asyncio.StreamReader, user: str) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {key.lower(): value.strip() for key, _, value in (x.partition(":") for x in lines)}
    url = urlsplit(target)
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, url.path, dict(parse_qsl(url.query)), headers, body, user)


def _user_of(writer: asyncio.StreamWriter) -> str:
    certificate = writer.get_extra_info("peercert") or {}
    return "".join(
        value for ((key, value),) in certificate.get("subject", ()) if key == "commonName"
    )


def answer(status: int, body: Any, *, headers: Mapping[str, str] | None = None) -> Step:
    """Answer with a value as JSON, or with bytes as they are."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def step(exchange: Exchange) -> None:
        await exchange.answer(status, data, headers=headers)

    return step


def page(items: Sequence[Any], version: str, *, token: str = "") -> Step:
    """Answer with one page of a list."""
    return answer(
        200, {"metadata": {"resourceVersion": version, "continue": token}, "items": items}
    )


def status(
    code: int, reason: str = "", message: str = "", *, headers: Mapping[str, str] | None = None
) -> Step:
    """Answer with a Status object."""
    return answer(code, status_object(code, reason, message), headers=headers)


def status_object(code: int, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"kind": "Status", "code": code, "reason": reason, "message": message}


async def no_answer(exchange: Exchange) -> None:
    """Take the request and never say anything."""
    await exchange.closed()


async def silence(exchange: Exchange) -> None:
    """Begin a watch and then say nothing more, without hanging up."""
    await exchange.begin()
    await exchange.closed()


def watch(*events: Any, cut: bytes = b"", ending: str = "end") -> Step:
    """Play a watch: events, then perhaps a piece of a line, then `end`, `reset` or `stay`."""

    async def step(exchange: Exchange) -> None:
        await exchange.begin()
        for event in events:
            await exchange.chunk(json.dumps(event).encode() + b"\n")
        if cut:
            await exchange.chunk(cut)
        if ending == "stay":
            await exchange.closed()
        elif ending == "reset":
            exchange.reset()
        else:
            await exchange.end()

    return step


@dataclass
class LiveWatch:
    """A watch whose events a test sends while it runs."""

    _orders: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)

    def send(self, event: Any) -> None:
        self._orders.put_nowait(json.dumps(event).encode() + b"\n")

    def end(self) -> None:
        self._orders.put_nowait(None)

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.begin()
        while (data := await self._orders.get()) is not None:
            await exchange.chunk(data)
        await exchange.end()


def write_kubeconfig(
    path: Path,
    server: str,
    *,
    user: Mapping[str, Any] | None = None,
    cluster: Mapping[str, Any] | None = None,
) -> str:
    """Write a kubeconfig with one context; JSON is YAML."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "test", "user": dict(user or {})}],
    }
    path.write_text(json.dumps(config))
    return str(path)


@asynccontextmanager
async def client_of(
    api: ScriptedApi, folder: Path, clock: Clock, **settings: Any
) -> AsyncIterator[KubeClient]:
    """Connect to a scripted server, as a program does."""
    kubeconfig = write_kubeconfig(folder / "kubeconfig", api.url)
    async with connect(kubeconfig=kubeconfig, clock=clock, **settings) as client:
        yield client
