# SPDX-License-Identifier: Apache-2.0
"""The health port: is this program alive, is it ready, and what does it count.

`/livez` fails only for what a restart would fix; `/readyz` also says what is still missing,
one named check each; `/healthz` is `/livez` under its old name, because probes that use it
restart the pod. `?verbose` lists every check. `/metrics` is for Prometheus. All of it is
read-only: GET and HEAD, anything else is 405. `/debug/*` names pods and nodes of all tenants
and is answered to loopback peers only, which `kubectl port-forward` is one of.

Anyone who reaches the port can ask as often as they like, on the event loop that also
answers kube-scheduler. So requests take turns (`common.turns`), and one rendering of the
metrics, which is the longest work here, is done in small pieces and shared by all who wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from common.http_limits import WHEN_GONE, Limits, refusals
from common.http_server import address_of, listen, serving
from common.metrics import CONTENT_TYPE, Metrics
from common.turns import Turns
from common.visible import visible

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

Check = Callable[[], str | None]
"""Returns None if all is well, else the reason in words."""
Endpoint = Callable[[Request], Any]

LIMITS: Final = Limits()
# What probes and scrapes ask for in a minute is within the burst; the rest is for a flood.
_BURST: Final = 20
_APART_S: Final = 0.01
_RENDERINGS_APART_S: Final = 0.25
# No other address of 127.0.0.0/8: Istio's sidecar hands on what comes from outside as 127.0.0.6.
_LOOPBACK: Final = (ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1"))
_PASSED_ON: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto")
HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Go with every page of the health port."""


class Finding(NamedTuple):
    """What one check said."""

    name: str
    why: str | None

    def __str__(self) -> str:
        return f"[+]{self.name} ok" if self.why is None else f"[-]{self.name} failed: {self.why}"


class Health:
    """Collects the checks of one program and answers for them."""

    def __init__(self, metrics: Metrics) -> None:
        self._live: dict[str, Check] = {}
        self._ready: dict[str, Check] = {"shutdown": self._stopping}
        self._notes: dict[str, Check] = {}
        self._told: dict[str, Callable[[], str]] = {}
        self._draining = False
        self.refused: Final = refusals(metrics)
        """Counts what exceeded the limits of a port, of all ports of the program."""
        self._rendered = _Rendering(metrics)
        self._routes = Starlette(
            routes=[
                Route("/livez", self._livez),
                Route("/healthz", self._livez),
                Route("/readyz", self._readyz),
                Route("/metrics", self._render),
            ]
        )
        self._turns = Turns(_APART_S, burst=_BURST)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request when it is its turn; an ASGI application."""
        turn = self._turns.join()
        # Otherwise those who leave would be waited for by those who stay.
        scope.get(WHEN_GONE, []).append(turn.cancel)
        await asyncio.wait([turn])
        if not turn.cancelled():
            await self._routes(scope, receive, send)

    def live(self, name: str, check: Check) -> None:
        """Add a check whose failure a restart would fix."""
        self._live[name] = check

    def ready(self, name: str, check: Check) -> None:
        """Add a check that must pass before this program is asked anything."""
        self._ready[name] = check

    def note(self, name: str, check: Check) -> None:
        """Add something that `/readyz` tells although it keeps the program from nothing."""
        self._notes[name] = check

    def tell(self, name: str, says: Callable[[], str]) -> None:
        """Add a line to the listing of `/readyz` that is true either way, and fails nothing."""
        self._told[name] = says

    def route(self, path: str, endpoint: Endpoint) -> None:
        """Answer GET and HEAD on a further path; on `/debug/*` only to loopback peers."""
        shown = _on_loopback(endpoint) if path.startswith("/debug/") else endpoint
        self._routes.router.routes.append(Route(path, shown))

    def drain(self) -> None:
        """Be not ready from now on: the program is about to stop."""
        self._draining = True

    @contextlib.asynccontextmanager
    async def serving(self, host: str, port: int, limits: Limits = LIMITS) -> AsyncIterator[str]:
        """Answer on this port while the block runs; give the address, `127.0.0.1:8889`."""
        listener = await listen(host, port)
        address = address_of(listener)
        async with serving(self.app, listener, limits=limits, refused=self.refused, name="health"):
            yield address

    def _stopping(self) -> str | None:
        return "the program is stopping" if self._draining else None

    async def _livez(self, request: Request) -> Response:
        return _answer(request, self._live, {})

    async def _readyz(self, request: Request) -> Response:
        told = [f"[i]{name}: {says()}" for name, says in self._told.items()]
        return _answer(request, self._live | self._ready, self._notes, told)

    async def _render(self, _: Request) -> Response:
        headers = HEADERS | {"Content-Type": CONTENT_TYPE}
        return Response(await self._rendered.next(), headers=headers)


class _Rendering:
    """Renders the metrics in small pieces, once for all who ask while another one runs."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._starts = Turns(_RENDERINGS_APART_S, burst=_BURST)
        self._pieces = Turns()
        self._next: asyncio.Task[bytes] | None = None

    async def next(self) -> bytes:
        """Return metrics that were rendered after this call."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._render())
        return await asyncio.shield(self._next)

    async def _render(self) -> bytes:
        await self._starts.take()
        self._next = None  # who comes from now on must not get what was counted before
        pieces = []
        for piece in self._metrics.pieces():
            pieces.append(piece)
            await self._pieces.take()
        return b"".join(pieces)


def _answer(
    request: Request,
    checks: Mapping[str, Check],
    notes: Mapping[str, Check],
    facts: Sequence[str] = (),
) -> Response:
    findings = [Finding(name, _asked(check)) for name, check in checks.items()]
    failed = any(finding.why is not None for finding in findings)
    told = [f"[!]{name}: {why}" for name, note in notes.items() if (why := _asked(note))]
    verdict = f"{request.url.path.lstrip('/')} check {'failed' if failed else 'passed'}"
    listed = failed or "verbose" in request.query_params
    lines = [*map(str, findings), *told, *facts, verdict] if listed else ["ok", *told]
    text = "".join(f"{visible(line)}\n" for line in lines)
    return PlainTextResponse(text, status_code=503 if failed else 200, headers=HEADERS)


def _asked(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:  # a check that cannot say is a check that fails
        return f"{type(error).__name__}: {error}"


def _on_loopback(endpoint: Endpoint) -> Endpoint:
    """Return the endpoint for peers on this machine, and a refusal for all others."""

    async def page(request: Request) -> Response:
        if _came_from_here(request):
            answer: Response = await endpoint(request)
            return answer
        # The Host header of a request need not name the port; the socket knows it.
        port, path = (request.scope.get("server") or ("", ""))[1], request.url.path
        words = (
            "This page names pods and nodes and is shown on loopback only. "
            f"Run kubectl port-forward with this pod and port {port}, "
            f"then open http://127.0.0.1:{port}{path}\n"
        )
        return PlainTextResponse(words, status_code=403, headers=HEADERS)

    return page


def _came_from_here(request: Request) -> bool:
    """Tell whether the peer is on this machine, and passes on no one else's request."""
    if request.client is None or any(name in request.headers for name in _PASSED_ON):
        return False
    try:
        peer = ipaddress.ip_address(request.client.host)
    except ValueError:
        return False
    return (getattr(peer, "ipv4_mapped", None) or peer) in _LOOPBACK
