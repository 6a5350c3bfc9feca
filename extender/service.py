# SPDX-License-Identifier: Apache-2.0
"""The service that kube-scheduler calls: from the bytes of a request to those of its response.

Two invariants. What the client got wrong is a 4xx in JSON with a reason, and never a 5xx;
what fails inside a decision ends in a neutral answer (`extender.neutral`), which needs only
the request. And every response has a content length: with chunked ones kube-scheduler would
open a connection for nearly every call, because it does not drain the body after decoding
(`HTTPExtender.send` in pkg/scheduler/extender.go).

The path of a verb is hot: nothing is awaited but the body, the decision and the response.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from common.clock import Clock
from common.http_limits import Limits
from common.metrics import Metrics
from extender.errors import BadRequest, ClientGone, Reason
from extender.neutral import NeutralAnswers, all_candidates, equal_scores, keep_all
from extender.openapi import ExtenderApi
from extender.protocol import Policy
from extender.request_priority import RequestPriority
from extender.requests import (
    KnownIndex,
    NameLists,
    PodLookup,
    PodReader,
    read_preemption_request,
    read_request,
)
from extender.responses import filter_response, preempt_response, prioritize_response
from extender.tcp_cork import CorkedProtocol
from extender.tls import ServerTls

if TYPE_CHECKING:
    from prometheus_client import Counter as CounterMetric
    from starlette.types import Receive, Scope, Send

# kube-scheduler closes idle connections itself after 90 s, Go's default, which its transport
# inherits (`SetTransportDefaults` in staging/src/k8s.io/apimachinery/pkg/util/net/http.go). If
# the server closed first, a POST on that connection would fail, and Go does not repeat POSTs.
_KEEP_ALIVE_S: Final = 120
_MAX_BODY: Final = 64 << 20
_SMALL_BODY: Final = 1 << 20
"""With `nodeCacheCapable`, 5,000 names and a pod are half of this."""
LIMITS: Final = Limits(body_bytes=_MAX_BODY, connections=128, request_s=10.0, idle_s=_KEEP_ALIVE_S)
_JSON: Final = (b"content-type", b"application/json")
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
"""From the body of a request to the body of its response."""


def make_app(
    policy: Policy,
    lookup: PodLookup,
    metrics: Metrics,
    *,
    clock: Clock,
    request_priority: RequestPriority | None = None,
    known_names: KnownIndex = lambda: None,
) -> ExtenderApi:
    """Return the service; `lookup` finds pods in the watch cache, `known_names` nodes."""
    decisions = Decisions(policy, lookup, metrics, clock, NameLists(known_names))
    requests = RequestMetrics(metrics)
    priority, bodies = request_priority or RequestPriority(clock), LargeBodies()
    verbs = {
        name: Verb(name, decide, requests, bodies=bodies, clock=clock, priority=priority)
        for name, decide in decisions.by_verb.items()
    }
    return ExtenderApi(verbs, requests.count_bad)


def server_options(tls: ServerTls | None = None) -> dict[str, Any]:
    """Return the options of the server, for `common.http_server.serving`."""
    options: dict[str, Any] = {
        "http": CorkedProtocol,
        "timeout_keep_alive": _KEEP_ALIVE_S,
        "limits": LIMITS,
        "name": "extender",
    }
    if tls is not None:
        options["ssl_context_factory"] = lambda *_: tls.context
    return options


class Decisions:
    """Turns the body of a request into the body of its response, one method for each verb."""

    def __init__(
        self, policy: Policy, lookup: PodLookup, metrics: Metrics, clock: Clock, lists: NameLists
    ) -> None:
        self._policy = policy
        self._pods = PodReader(lookup)
        self._lists = lists
        self._neutral = NeutralAnswers(metrics, clock)
        self._rejected = metrics.counter(
            "nodes_refused_total", "Nodes that filter answers rejected.", ("reason",)
        )
        self._by_reason: dict[str, CounterMetric] = {}
        seen = metrics.counter("nodes_seen_total", "Nodes in requests.", ("verb",))
        self._filtered = seen.labels("filter")
        self._prioritized = seen.labels("prioritize")
        self._preempted = seen.labels("preempt")
        self.by_verb: Final[dict[str, Decide]] = {
            "filter": self.filter,
            "prioritize": self.prioritize,
            "preempt": self.preempt,
        }

    async def filter(self, body: bytes) -> bytes:
        request = read_request(body, self._lists)
        self._filtered.inc(len(request.names))
        try:
            result = await self._policy.filter(self._pods.read(request.pod), request.names)
            response = filter_response(request, result, self._lists)
            self._count_rejected(result.failed.values())
        except BadRequest:
            raise
        except Exception as error:
            self._neutral.failed("filter", error)
            return filter_response(request, keep_all(request.names), self._lists)
        return response

    async def prioritize(self, body: bytes) -> bytes:
        request = read_request(body, self._lists)
        self._prioritized.inc(len(request.names))
        try:
            scores = self._policy.prioritize(self._pods.read(request.pod), request.names)
            return prioritize_response(request.names, scores, request.names_json)
        except BadRequest:
            raise
        except Exception as error:
            self._neutral.failed("prioritize", error)
            equal = equal_scores(request.names)
            return prioritize_response(request.names, equal, request.names_json)

    async def preempt(self, body: bytes) -> bytes:
        request = read_preemption_request(body)
        self._preempted.inc(len(request.candidates))
        try:
            keep = self._policy.preempt(self._pods.read(request.pod), request.candidates)
            return preempt_response(request.candidates, keep)
        except BadRequest:
            raise
        except Exception as error:
            self._neutral.failed("preempt", error)
            return preempt_response(request.candidates, all_candidates(request.candidates))

    def _count_rejected(self, reasons: Iterable[str]) -> None:
        for reason, nodes in Counter(reasons).items():
            child = self._by_reason.get(reason)
            if child is None:
                child = self._by_reason[reason] = self._rejected.labels(reason)
            child.inc(nodes)


class RequestMetrics:
    """Counts and times requests."""

    def __init__(self, metrics: Metrics) -> None:
        self.requests: Final = metrics.counter(
            "extender_requests_total", "Requests by verb and status code.", ("verb", "code")
        )
        self._bad = metrics.counter(
            "extender_bad_requests_total", "Requests that could not be answered.", ("reason",)
        )
        self.seconds: Final = metrics.histogram(
            "extender_request_duration_seconds",
            "From the end of a request to its answer.",
            ("verb",),
            buckets=_BUCKETS_S,
        )

    def count_bad(self, verb: str, error: BadRequest) -> None:
        self._bad.labels(error.reason).inc()
        self.requests.labels(verb, str(error.status)).inc()


class Verb:
    """Answers the POST requests of one verb, as an ASGI application."""

    def __init__(
        self,
        name: str,
        decide: Decide,
        requests: RequestMetrics,
        *,
        bodies: LargeBodies,
        clock: Clock,
        priority: RequestPriority,
    ) -> None:
        self._name = name
        self._decide = decide
        self._bodies = bodies
        self._clock = clock
        self._priority = priority
        self._count_bad = requests.count_bad
        self._seconds = requests.seconds.labels(name)
        self._answered = requests.requests.labels(name, "200")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_body(scope, receive, self._bodies)
            started_s = self._clock.monotonic()
            with self._priority:
                response = await self._decide(body)
        except ClientGone:
            return
        except BadRequest as error:
            self._count_bad(self._name, error)
            await _send(send, error.status, _error_body(error))
            return
        self._seconds.observe(self._clock.monotonic() - started_s)
        self._answered.inc()
        await _send(send, 200, response)


class LargeBodies:
    """Limits what all connections together hold of large bodies that are being received."""

    def __init__(self) -> None:
        self._free = _MAX_BODY

    def reserve(self, size: int) -> None:
        """Reserve memory; raise if that is too much at once."""
        if size > self._free:
            message = "too many large bodies are being received, try again"
            raise BadRequest(Reason.TOO_LARGE, message, status=429)
        self._free -= size

    def release(self, size: int) -> None:
        self._free += size


async def read_body(scope: Scope, receive: Receive, bodies: LargeBodies) -> bytes:
    """Return the whole body of a request; raise if it cannot be a valid one."""
    _check_headers(scope)
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        body = await _read_rest(body, receive, bodies)
    elif message["type"] == "http.disconnect":
        raise ClientGone
    if not body:
        raise BadRequest(Reason.EMPTY_BODY, "the body is empty")
    return body


def _check_headers(scope: Scope) -> None:
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > _MAX_BODY:
            raise _too_large()
        if name == b"content-encoding" and value.lower() not in (b"", b"identity"):
            raise BadRequest(Reason.COMPRESSED, "the body must not be compressed", status=415)


async def _read_rest(first: bytes, receive: Receive, bodies: LargeBodies) -> bytes:
    parts, size, reserved, more = [first], len(first), 0, True
    try:
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            size, more = size + len(parts[-1]), message.get("more_body", False)
            if size > _MAX_BODY:
                raise _too_large()
            if size - reserved > _SMALL_BODY:
                bodies.reserve(size - reserved - _SMALL_BODY)
                reserved = size - _SMALL_BODY
        return b"".join(parts)
    finally:
        bodies.release(reserved)


def _too_large() -> BadRequest:
    message = f"the body is larger than {_MAX_BODY >> 20} MiB"
    return BadRequest(Reason.TOO_LARGE, message, status=413)


async def _send(send: Send, status: int, body: bytes) -> None:
    headers = [_JSON, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _error_body(error: BadRequest) -> bytes:
    return msgspec.json.encode({"error": str(error), "reason": error.reason})
