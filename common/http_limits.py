# SPDX-License-Identifier: Apache-2.0
"""What one client, or all of them together, may ask of an HTTP port of ours.

uvicorn has no limits under httptools: it joins a URL and collects headers for as long as they
keep coming, on the event loop that also answers kube-scheduler, and a connection that never
sends a request stays open for ever. Here everything that a client controls has a limit, and
bytes are counted before the parser sees them, so that a refusal comes before memory grows.

Invariants: a port never has more connections than its limit, and a new client is let in
before an idle one is kept; a connection is closed if it takes too long to send a request, to
read its answer or to ask again; and what a client did wrong is never logged per request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

if TYPE_CHECKING:
    from prometheus_client import Counter
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from common.metrics import Metrics

WHEN_GONE: Final = "evenkeel.when_gone"
"""In the scope of a request: what to call if its client leaves before the answer."""
_PIPELINED: Final = 8
"""Requests that a client may send ahead of their answers."""
_SETTLED_S: Final = 0.1
"""Only after this long a connection counts as idle: a client that has just connected, or has
just read an answer, may have its request on the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a port accepts."""

    url_bytes: int = 2 << 10
    head_bytes: int = 16 << 10
    """Request line and headers together; a scrape with a bearer token has about 3 KiB."""
    headers: int = 64
    body_bytes: int = 4 << 10
    connections: int = 64
    request_s: float = 5.0
    """From opening a connection, or from the first byte of a request, to the last byte of it."""
    answer_s: float = 30.0
    """From the end of a request until its answer was read by the client."""
    idle_s: float = 75.0
    """Between two requests; longer than Prometheus' usual interval of 60 s at most."""

    @property
    def small(self) -> bool:
        """Tell whether no request has a body worth speaking of."""
        return self.body_bytes <= self.head_bytes

    @property
    def message_bytes(self) -> int:
        """Everything that belongs to one request, with the framing of chunks and trailers."""
        return self.head_bytes + self.body_bytes + (self.body_bytes >> 4) + (64 << 10)


class Excess(Enum):
    """What was refused: the status, and the words that go with it."""

    URL = HTTPStatus.REQUEST_URI_TOO_LONG, "the URL is too long"
    HEAD = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers are too large"
    HEADERS = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "there are too many headers"
    BODY = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body is too large"
    PIPELINE = HTTPStatus.TOO_MANY_REQUESTS, "too many requests were sent ahead of their answers"
    SYNTAX = HTTPStatus.BAD_REQUEST, "this is not HTTP/1.1"
    SLOW_REQUEST = HTTPStatus.REQUEST_TIMEOUT, "the request took too long to arrive"
    SLOW_READER = None, "the answer was not read in time"
    CROWDED = None, "there were too many connections"

    @property
    def answer(self) -> bytes:
        """The whole answer; empty where the client would not read one."""
        status, words = self.value
        if status is None:
            return b""
        return (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            "content-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(words) + 1}\r\n"
            "connection: close\r\n\r\n"
            f"{words}\n"
        ).encode()


_ANSWERS: Final = {excess: excess.answer for excess in Excess}


class Refused(Exception):
    """Ends the parsing of a request."""

    def __init__(self, excess: Excess) -> None:
        super().__init__(excess.value[1])
        self.excess = excess


class PortState(ServerState):
    """All connections of one port, with what they may do."""

    def __init__(self, limits: Limits, counter: Counter | None, port: str) -> None:
        super().__init__()
        self.limits: Final = limits
        self.opening = 0
        """Connections that were accepted and do not speak HTTP yet, because of TLS."""
        self._refused = {
            excess: counter.labels(port, excess.name.lower()) for excess in Excess if counter
        }

    def count(self, excess: Excess) -> None:
        """Count a refusal."""
        if excess in self._refused:
            self._refused[excess].inc()

    def make_room(self, now_s: float) -> bool:
        """Close the oldest idle connection if there are too many; tell whether one may come."""
        if len(self.connections) + self.opening < self.limits.connections:
            return True
        idle = [each for each in self._ours() if each.idle]
        # A client that has asked before goes last, also if the others have just come.
        strangers = [each for each in idle if not each.has_asked]
        settled = [each for each in strangers or idle if each.may_go(now_s)]
        if not settled:
            return False
        oldest = min(settled, key=lambda each: each.since_s)
        self.count(Excess.CROWDED)
        oldest.drop()
        # The loop tells the protocol later; the place is free now.
        self.connections.discard(oldest)
        return True

    def sweep(self, now_s: float) -> None:
        """Close whatever has taken too long."""
        for each in list(self._ours()):
            each.check_time(now_s)

    def _ours(self) -> Iterator[LimitedProtocol]:
        return (each for each in self.connections if isinstance(each, LimitedProtocol))


def refusals(metrics: Metrics) -> Counter:
    """Return the counter of everything that was refused here, for both ports."""
    return metrics.counter(
        "http_refused_total",
        "Requests and connections that exceeded a limit of the port.",
        ("port", "cause"),
    )


class _Phase(Enum):
    WAITING = "waiting for a request"
    SENDING = "the client is sending"
    ANSWERING = "we are answering"


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits on everything that the client controls."""

    server_state: PortState

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # Any: uvicorn's own parameters
        super().__init__(*args, **kwargs)
        self._limits = self.server_state.limits
        self._phase = _Phase.WAITING
        self.since_s = self.loop.time()
        self._answered = 0
        self._in_head = True
        self._head_bytes = 0
        self._message_bytes = 0
        self._excess = Excess.SYNTAX
        self._running: RequestResponseCycle | None = None

    @property
    def idle(self) -> bool:
        """Tell whether no answer is owed here."""
        return self._phase is not _Phase.ANSWERING

    @property
    def has_asked(self) -> bool:
        """Tell whether a request of this connection was answered."""
        return self._answered > 0

    def may_go(self, now_s: float) -> bool:
        """Tell whether it has not changed for so much time that nothing is in flight."""
        return now_s - self.since_s > _SETTLED_S

    def check_time(self, now_s: float) -> None:
        """Close the connection if it has been in its present phase for too long."""
        spent_s = now_s - self.since_s
        if self._phase is _Phase.ANSWERING:
            if spent_s > self._limits.answer_s:
                self._cut(Excess.SLOW_READER)
        elif self._phase is _Phase.SENDING or not self._answered:
            if spent_s > self._limits.request_s:
                self._cut(Excess.SLOW_REQUEST)
        elif spent_s > self._limits.idle_s:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        if self._phase is _Phase.WAITING:
            self._enter(_Phase.SENDING)
        self._message_bytes += len(data)
        if not self._in_head and self._message_bytes > self._limits.message_bytes:
            self._cut(Excess.BODY)
            return
        rest: bytes | memoryview = data
        while rest and not self.transport.is_closing():
            rest = self._feed(rest)

    def _feed(self, data: bytes | memoryview) -> bytes | memoryview:
        """Let the parser see what it may; return what is left after that."""
        if not self._in_head:
            self._parse(data)
            return b""
        room = self._limits.head_bytes - self._head_bytes
        if room <= 0:
            self._cut(Excess.HEAD)
            return b""
        if len(data) <= room:
            self._head_bytes += len(data)
            self._parse(data)
            return b""
        view = memoryview(data)
        self._head_bytes += room
        self._parse(view[:room])
        return view[room:]

    def _parse(self, data: bytes | memoryview) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._cut(self._excess)
        except httptools.HttpParserUpgrade:
            # The request was complete and is answered like any other; what follows it would be
            # in a protocol that is not spoken here.
            self._message_bytes = 0

    def _refuse(self, excess: Excess) -> None:
        """End the parser's work from inside one of its callbacks."""
        self._excess = excess
        raise Refused(excess)

    def _cut(self, excess: Excess) -> None:
        """Say why, if the client can still read it, and close."""
        if self.transport.is_closing():
            return
        self.server_state.count(excess)
        if _ANSWERS[excess] and not self._owes_answer():
            self.transport.write(_ANSWERS[excess])
            self.transport.close()
        else:
            self.drop()

    def drop(self) -> None:
        """Close at once; answers that are being worked out are written nowhere."""
        self._forget_answers()
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_answers()
        super().connection_lost(exc)

    def _forget_answers(self) -> None:
        # uvicorn tells only the last of several requests that the client has gone; an answer to
        # an earlier one would be an error with a trace in the log.
        self.pipeline.clear()
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
            scope: Any = self._running.scope  # Any: uvicorn knows no entries but its own
            for call in scope.get(WHEN_GONE, ()):
                call()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _owes_answer(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    def _enter(self, phase: _Phase) -> None:
        self._phase = phase
        self.since_s = self.loop.time()

    # Callbacks of the parser.
    def on_message_begin(self) -> None:
        if len(self.pipeline) + self._owes_answer() >= _PIPELINED:
            self._refuse(Excess.PIPELINE)
        super().on_message_begin()
        self.scope[WHEN_GONE] = []  # type: ignore[typeddict-unknown-key]

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self._limits.url_bytes:
            self._refuse(Excess.URL)

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers of a chunked body come here too.
        if len(self.headers) >= self._limits.headers:
            self._refuse(Excess.HEADERS)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True
        self._message_bytes = 0
        self._enter(_Phase.ANSWERING if self._owes_answer() else _Phase.WAITING)

    def on_response_complete(self) -> None:
        self._answered += 1
        if self._phase is _Phase.ANSWERING:
            self._enter(_Phase.ANSWERING if self.pipeline else _Phase.WAITING)
        super().on_response_complete()
