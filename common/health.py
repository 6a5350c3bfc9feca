"""The health port: is this program alive, is it ready, and what does it count.

`/livez` fails only for what a restart would mend; `/readyz` also says what is still missing,
one named check each; `/healthz` is `/livez` under its old name, because probes that use it
restart the pod. `?verbose` lists every check. `/metrics` is for Prometheus. All of it is
read-only: GET and HEAD, anything else is 405.

It is served by uvicorn without its signal handling: whoever runs the program decides when
it ends, and with uvicorn's own handlers nothing after `serve()` would run (it raises the
signal again). `listen` and `serving` do the same for any other application.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from common.metrics import CONTENT_TYPE, Metrics

if TYPE_CHECKING:
    from starlette.types import ASGIApp

Check = Callable[[], str | None]
"""Returns None if all is well, else the reason in words."""
Endpoint = Callable[[Request], Any]

# Longer than Prometheus' usual interval, so that a scrape finds its connection again.
_KEEP_ALIVE_S: Final = 75
_GRACE_S: Final = 2
HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Go with every page of the health port."""


class CannotListen(Exception):
    """The port is taken, or the address is not one of this machine."""


class Finding(NamedTuple):
    """What one check said."""

    name: str
    why: str | None

    def __str__(self) -> str:
        return f"[+]{self.name} ok" if self.why is None else f"[-]{self.name} failed: {self.why}"


class Health:
    """Collects the checks of one program and answers for them."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._live: dict[str, Check] = {}
        self._ready: dict[str, Check] = {"shutdown": self._stopping}
        self._draining = False
        self.app = Starlette(
            routes=[
                Route("/livez", self._livez),
                Route("/healthz", self._livez),
                Route("/readyz", self._readyz),
                Route("/metrics", self._render),
            ]
        )

    def live(self, name: str, check: Check) -> None:
        """Add a check whose failure a restart would mend."""
        self._live[name] = check

    def ready(self, name: str, check: Check) -> None:
        """Add a check that must pass before this program is asked anything."""
        self._ready[name] = check

    def route(self, path: str, endpoint: Endpoint) -> None:
        """Answer GET and HEAD on a further path."""
        self.app.router.routes.append(Route(path, endpoint))

    def drain(self) -> None:
        """Be not ready from now on: the program is about to stop."""
        self._draining = True

    @contextlib.asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncIterator[str]:
        """Answer on this port while the block runs; give the address, `127.0.0.1:8889`."""
        listener = await listen(host, port)
        address = address_of(listener)
        async with serving(self.app, listener):
            yield address

    def _stopping(self) -> str | None:
        return "the program is stopping" if self._draining else None

    async def _livez(self, request: Request) -> Response:
        return _answer(request, self._live)

    async def _readyz(self, request: Request) -> Response:
        return _answer(request, self._live | self._ready)

    async def _render(self, _: Request) -> Response:
        headers = HEADERS | {"Content-Type": CONTENT_TYPE}
        return Response(self._metrics.render(), headers=headers)


def _answer(request: Request, checks: Mapping[str, Check]) -> Response:
    findings = [Finding(name, _asked(check)) for name, check in checks.items()]
    failed = any(finding.why is not None for finding in findings)
    verdict = f"{request.url.path.lstrip('/')} check {'failed' if failed else 'passed'}"
    listing = "\n".join([*map(str, findings), verdict])
    text = listing if failed or "verbose" in request.query_params else "ok"
    return PlainTextResponse(f"{text}\n", status_code=503 if failed else 200, headers=HEADERS)


def _asked(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:  # a check that cannot say is a check that fails
        return f"{type(error).__name__}: {error}"


async def listen(host: str, port: int) -> socket.socket:
    """Return a bound socket; port 0 is a free one. Raise `CannotListen` otherwise."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return _bound(*found[0])
    except OSError as error:
        # On a failed bind asyncio's words repeat the address; the system's do not.
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise CannotListen(f"cannot listen on {_joined(host, port)}: {str(why).lower()}") from None


def _bound(family: int, type_: int, protocol: int, _: str, address: Any) -> socket.socket:
    listener = socket.socket(family, type_, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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


class Server(uvicorn.Server):
    """uvicorn's server, told to stop by a call and never by a signal or a timer."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stop = asyncio.Event()
        self._answering = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

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
async def serving(app: ASGIApp, listener: socket.socket, **options: Any) -> AsyncIterator[Server]:
    """Serve an application while the block runs; it is stopped gracefully after that.

    `options` are uvicorn's, for example those for TLS.
    """
    server = Server(_config(app, options))
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


def _config(app: ASGIApp, options: Mapping[str, Any]) -> uvicorn.Config:
    defaults: dict[str, Any] = {
        "http": "httptools",
        "ws": "none",
        "lifespan": "off",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "date_header": False,
        "proxy_headers": False,
        "timeout_keep_alive": _KEEP_ALIVE_S,
        "timeout_graceful_shutdown": _GRACE_S,
    }
    return uvicorn.Config(app, **(defaults | dict(options)))
