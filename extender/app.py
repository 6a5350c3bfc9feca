"""The service that kube-scheduler calls, as an ASGI application.

The three verbs are looked up in a dict ahead of everything else; the rest (what this is,
which version, what does not exist) is left to FastAPI, whose machinery costs more than a
whole verdict. On the way of a verb nothing is awaited but the body, the verdict and the
answer.

Two invariants. What the client got wrong is a 4xx in JSON with a reason, and never a 5xx;
what we got wrong is an answer without an opinion (`extender.neutral`). And every answer says
its length: with chunked ones kube-scheduler would open a connection for nearly every call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from common import __version__
from common.clock import Clock
from common.http_limits import Limits
from common.metrics import Metrics
from extender.asking import Verdicts
from extender.corking import CorkedProtocol
from extender.desk import Desk
from extender.errors import BadRequest, ClientGone, Reason
from extender.right_of_way import RightOfWay
from extender.tls import ServerTls
from extender.wire import Lookup

if TYPE_CHECKING:
    from prometheus_client import Counter, Histogram
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

_KEEP_ALIVE_S: Final = 120
"""Longer than the 90 s after which kube-scheduler gives an idle connection up itself."""
_LARGEST_BODY: Final = 64 << 20
_SMALL_BODY: Final = 1 << 20
"""What kube-scheduler sends with `nodeCacheCapable`, 5,000 names and a pod, has half of this."""
LIMITS: Final = Limits(
    body_bytes=_LARGEST_BODY, connections=128, request_s=10.0, idle_s=_KEEP_ALIVE_S
)
_JSON: Final = (b"content-type", b"application/json")
_ALLOW: Final = (b"allow", b"POST")
_BUCKETS_S: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
)

Decide = Callable[[bytes], Awaitable[bytes]]
Headers = Sequence[tuple[bytes, bytes]]


def make_app(
    verdicts: Verdicts,
    lookup: Lookup,
    metrics: Metrics,
    *,
    clock: Clock,
    right_of_way: RightOfWay | None = None,
) -> ASGIApp:
    """Return the service; `lookup` finds pods that the cache already knows."""
    desk = Desk(verdicts, lookup, metrics, clock)
    return Service(desk, metrics, clock, right_of_way or RightOfWay(clock))


def server_options(tls: ServerTls | None = None) -> dict[str, Any]:
    """Return how uvicorn has to serve the application, for `common.http_server.serving`."""
    options: dict[str, Any] = {
        "http": CorkedProtocol,
        "timeout_keep_alive": _KEEP_ALIVE_S,
        "limits": LIMITS,
        "name": "extender",
    }
    if tls is not None:
        options["ssl_context_factory"] = lambda *_: tls.context
    return options


class Verb(NamedTuple):
    """One thing that can be asked, with the children of the metrics that count it."""

    name: str
    decide: Decide
    seconds: Histogram
    answered: Counter


class Service:
    """Takes requests, answers the verbs and passes the rest on."""

    def __init__(
        self, desk: Desk, metrics: Metrics, clock: Clock, right_of_way: RightOfWay
    ) -> None:
        self._clock = clock
        self._right_of_way = right_of_way
        self._requests = metrics.counter(
            "extender_requests_total", "Requests that were answered.", ("verb", "code")
        )
        self._bad = metrics.counter(
            "extender_bad_requests_total", "Requests that could not be answered.", ("reason",)
        )
        seconds = metrics.histogram(
            "extender_request_duration_seconds",
            "From the end of a request to its answer.",
            ("verb",),
            buckets=_BUCKETS_S,
        )
        decisions = {"filter": desk.filter, "prioritize": desk.prioritize, "preempt": desk.preempt}
        self._verbs = {
            f"/{name}": Verb(name, decide, seconds.labels(name), self._requests.labels(name, "200"))
            for name, decide in decisions.items()
        }
        self._rest = _rest(self._count_bad)
        self._bodies = Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        verb = self._verbs.get(scope.get("path", ""))
        if verb is None:
            await self._rest(scope, receive, send)
            return
        try:
            body = await read_body(scope, receive, self._bodies)
            began_s = self._clock.monotonic()
            with self._right_of_way:
                answer = await verb.decide(body)
        except ClientGone:
            return
        except BadRequest as error:
            self._count_bad(verb.name, error)
            await _send(send, error.status, _words(error), _headers_for(error))
            return
        verb.seconds.observe(self._clock.monotonic() - began_s)
        verb.answered.inc()
        await _send(send, 200, answer)

    def _count_bad(self, verb: str, error: BadRequest) -> None:
        self._bad.labels(error.reason).inc()
        self._requests.labels(verb, str(error.status)).inc()


class Bodies:
    """What is held of large bodies that are still being read, by all connections together."""

    def __init__(self, most: int = _LARGEST_BODY) -> None:
        self._left = most

    def take(self, size: int) -> None:
        """Hold so much more; raise if that is too much at once."""
        if size > self._left:
            words = "too many large bodies are being sent at once"
            raise BadRequest(Reason.TOO_LARGE, words, status=429)
        self._left -= size

    def give_back(self, size: int) -> None:
        self._left += size


async def read_body(scope: Scope, receive: Receive, bodies: Bodies) -> bytes:
    """Return the whole body of a POST; raise if it cannot be one of ours."""
    _check_head(scope)
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        body = await _joined(body, receive, bodies)
    elif message["type"] == "http.disconnect":
        raise ClientGone
    if not body:
        raise BadRequest(Reason.EMPTY_BODY, "the body is empty")
    return body


def _check_head(scope: Scope) -> None:
    if scope["method"] != "POST":
        raise BadRequest(Reason.METHOD_NOT_ALLOWED, "this is asked with POST", status=405)
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > _LARGEST_BODY:
            raise _too_large()
        if name == b"content-encoding" and value.lower() not in (b"", b"identity"):
            raise BadRequest(Reason.COMPRESSED, "the body must not be compressed", status=415)


async def _joined(first: bytes, receive: Receive, bodies: Bodies) -> bytes:
    parts, size, held, more = [first], len(first), 0, True
    try:
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            size, more = size + len(parts[-1]), message.get("more_body", False)
            if size > _LARGEST_BODY:
                raise _too_large()
            if size - held > _SMALL_BODY:
                bodies.take(size - held - _SMALL_BODY)
                held = size - _SMALL_BODY
        return b"".join(parts)
    finally:
        bodies.give_back(held)


def _too_large() -> BadRequest:
    words = f"the body is larger than {_LARGEST_BODY >> 20} MiB"
    return BadRequest(Reason.TOO_LARGE, words, status=413)


async def _send(send: Send, status: int, body: bytes, headers: Headers = ()) -> None:
    length = (b"content-length", b"%d" % len(body))
    start = {"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def _words(error: BadRequest) -> bytes:
    return msgspec.json.encode({"error": str(error), "reason": error.reason})


def _headers_for(error: BadRequest) -> Headers:
    return (_ALLOW,) if error.reason is Reason.METHOD_NOT_ALLOWED else ()


def _rest(count: Callable[[str, BadRequest], None]) -> FastAPI:
    """Return the application for whatever is not a verb."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)

    @app.api_route("/", methods=["GET", "HEAD"])
    async def about() -> dict[str, Any]:
        verbs = ["POST /filter", "POST /prioritize", "POST /preempt"]
        return {"name": "evenkeel extender", "version": __version__, "verbs": verbs}

    @app.api_route("/version", methods=["GET", "HEAD"])
    async def version() -> dict[str, str]:
        return {"version": __version__}

    @app.exception_handler(HTTPException)
    async def refuse(_: Request, error: HTTPException) -> JSONResponse:
        bad = _refusal(error)
        count("other", bad)
        content = {"error": str(bad), "reason": bad.reason}
        return JSONResponse(content, status_code=bad.status, headers=error.headers)

    return app


def _refusal(error: HTTPException) -> BadRequest:
    if error.status_code == 405:
        return BadRequest(Reason.METHOD_NOT_ALLOWED, "this is asked with GET", status=405)
    words = "there is nothing here; ask POST /filter, /prioritize or /preempt"
    return BadRequest(Reason.NOT_FOUND, words, status=404)
