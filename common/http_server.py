# SPDX-License-Identifier: Apache-2.0
"""Serves an application on a port: uvicorn without its signals, and with limits.

The program that runs it decides when it ends; with uvicorn's own handlers nothing after
`serve()` would run (it raises the signal again).

Connections are accepted here and not by the loop's own server, which accepts all that wait
before anything else gets its turn, and knows no limit. One is accepted per turn of the loop,
so that a crowd on one port does not hold up the other; TLS has to be agreed on in time; and
while a port is full of requests that are being answered, further clients wait in the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from common.http_limits import LimitedProtocol, Limits, PortState

if TYPE_CHECKING:
    import ssl

    from prometheus_client import Counter
    from starlette.types import ASGIApp

_GRACE_S: Final = 2
_BACKLOG: Final = 256
_FULL_S: Final = 0.005
"""How soon it is tried again to accept on a port that is full, or without file descriptors."""
_SWEEPS: Final = 4
"""How often a deadline is checked."""


_ALL: Final = ("0.0.0.0", "::")
_NO_IPV6: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_HINT: Final = "; choose another port with a flag, 0 is a free one"


class CannotListen(Exception):
    """The port is taken, or the address is not one of this machine."""


async def listen(host: str, port: int) -> socket.socket:
    """Return a bound socket; port 0 is a free one. Raise `CannotListen` otherwise."""
    try:
        if host in _ALL:
            return _bound_to_all(port)
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return _bound(*found[0])
    except OSError as error:
        # On a failed bind asyncio's words repeat the address; the system's do not.
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        hint = _HINT if error.errno == errno.EADDRINUSE else ""
        text = f"cannot listen on {_joined(host, port)}: {str(why).lower()}{hint}"
        raise CannotListen(text) from None


def _bound_to_all(port: int) -> socket.socket:
    """Listen on IPv6 and IPv4, or on IPv4 alone where the kernel has no IPv6.

    Kubernetes' programs read both addresses like this. In a cluster with IPv6 only, probes would
    never reach a socket that is bound to 0.0.0.0.
    """
    try:
        return _bound(socket.AF_INET6, socket.SOCK_STREAM, 0, "", ("::", port))
    except OSError as error:
        if error.errno not in _NO_IPV6:
            raise
        return _bound(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("0.0.0.0", port))


def _bound(family: int, type_: int, protocol: int, _: str, address: Any) -> socket.socket:
    listener = socket.socket(family, type_, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Of `::` only; any other address is of one family anyway.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def address_of(listener: socket.socket) -> str:
    """Return where a socket is bound, as it stands in a URL."""
    host, port, *_ = listener.getsockname()
    return _joined(host, port)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Acceptor:
    """Lets clients in, one per turn of the loop and never more than the limit."""

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        state: PortState,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._listener = listener
        self._protocol = protocol
        self._state = state
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Listen."""
        if self._state.limits.small:
            # Accepted sockets have it too: less is read in vain from a client that never stops.
            size = 2 * self._state.limits.head_bytes
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        self._listener.listen(_BACKLOG)
        self._resume()
        self._sweep()

    def close(self) -> None:
        """Accept no more; who is let in stays."""
        self._loop.remove_reader(self._listener)
        for timer in (self._timer, self._sweeper):
            if timer is not None:
                timer.cancel()
        for task in self._opening:
            task.cancel()

    async def wait_closed(self) -> None:
        """Return when no connection is half open."""
        await asyncio.gather(*self._opening, return_exceptions=True)

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._listener, self._accept)

    def _pause(self) -> None:
        self._loop.remove_reader(self._listener)
        self._timer = self._loop.call_later(_FULL_S, self._resume)

    def _accept(self) -> None:
        if not self._state.make_room(self._loop.time()):
            self._pause()
            return
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:  # no file descriptors or no memory: nothing that a quick retry solves
            self._pause()
            return
        self._state.opening += 1
        task = self._loop.create_task(self._open(connection))
        self._opening.add(task)
        task.add_done_callback(self._opened)

    async def _open(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        with contextlib.suppress(OSError):  # includes what TLS does not agree on, and timeouts
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            timeout_s = self._state.limits.request_s if self._tls else None
            await self._loop.connect_accepted_socket(
                self._protocol, connection, ssl=self._tls, ssl_handshake_timeout=timeout_s
            )
            return
        connection.close()

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        self._state.opening -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "not accepted", "exception": error})

    def _sweep(self) -> None:
        self._state.sweep(self._loop.time())
        limits = self._state.limits
        shortest_s = min(limits.request_s, limits.answer_s, limits.idle_s)
        self._sweeper = self._loop.call_later(shortest_s / _SWEEPS, self._sweep)


class Server(uvicorn.Server):
    """uvicorn's server, told to stop by a call and never by a signal or a timer."""

    def __init__(self, config: uvicorn.Config, state: PortState) -> None:
        super().__init__(config)
        self.server_state = state
        self._state = state
        self._stop = asyncio.Event()
        self._answering = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept on these sockets; uvicorn would leave that to the loop."""
        await self.lifespan.startup()
        self.servers = []
        for listener in sockets or ():
            acceptor = Acceptor(listener, self._protocol, self._state, self.config.ssl)
            acceptor.start()
            self.servers.append(acceptor)  # type: ignore[arg-type]  # closed like the loop's
        self.started = True

    def _protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self._state, app_state=self.lifespan.state
        )
        return made

    async def main_loop(self) -> None:
        """Wait for `stop`; uvicorn's own loop wakes ten times a second to ask a flag."""
        await self.on_tick(0)  # sets the headers that every answer carries
        self._answering.set()
        await self._stop.wait()

    async def until_answering(self) -> None:
        await self._answering.wait()

    def stop(self) -> None:
        """Let requests finish, then return from `serve`."""
        self._stop.set()


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp,
    listener: socket.socket,
    *,
    limits: Limits | None = None,
    refused: Counter | None = None,
    name: str = "",
    **options: Any,
) -> AsyncIterator[Server]:
    """Serve an application while the block runs; it is stopped gracefully after that.

    What exceeds the limits is counted in `refused` under the name of the port. `options` are
    uvicorn's, for example those for TLS.
    """
    limits = limits or Limits()
    server = Server(_config(app, limits, options), PortState(limits, refused, name))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    answering = asyncio.create_task(server.until_answering())
    try:
        await asyncio.wait({task, answering}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield server
    finally:
        answering.cancel()
        server.stop()
        await asyncio.gather(task, answering, return_exceptions=True)
        listener.close()
    task.result()


def _config(app: ASGIApp, limits: Limits, options: Mapping[str, Any]) -> uvicorn.Config:
    defaults: dict[str, Any] = {
        "http": LimitedProtocol,
        "interface": "asgi3",
        "ws": "none",
        "lifespan": "off",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "date_header": False,
        "proxy_headers": False,
        "timeout_keep_alive": limits.idle_s,
        "timeout_graceful_shutdown": _GRACE_S,
    }
    return uvicorn.Config(app, **(defaults | dict(options)))
