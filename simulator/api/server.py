# SPDX-License-Identifier: Apache-2.0
"""The API on a real port.

Plain HTTP on loopback, one event loop, no routing table: a path is split and looked up.
Watches are streams that are written on every change; a frozen watch stays open without data, a
dropped one breaks like a lost connection.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
from aiohttp import web

from simulator.api import metrics_api
from simulator.api.bindings import BINDINGS
from simulator.api.calls import Call, Target, target_of, verb_of
from simulator.api.endpoints import Answer, Endpoints
from simulator.api.errors import InternalError, Refusal, TooLarge, no_such_method, no_such_route
from simulator.api.faults import FaultInjected, Faults
from simulator.api.kind import Kind
from simulator.api.kubectl.discovery import (
    METRICS_GROUP,
    OPENAPI_V3,
    VERSION,
    Discovery,
    openapi_v2,
)
from simulator.api.kubectl.presentation import presenter_of
from simulator.api.lists import ListOptions
from simulator.api.metrics_api import MetricsProvider
from simulator.api.storage import Json
from simulator.api.store import Store
from simulator.api.streams import BOOKMARK_EVERY_S, SHORTEST_WATCH_S, Stream, Timing
from simulator.api.watches import Watch

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http_parser import RawRequestMessage

log: structlog.stdlib.BoundLogger = structlog.get_logger()

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_JSON: Final = "application/json"
_TEXT: Final = "text/plain"
_LARGEST_BODY: Final = 3 * 1024 * 1024
_HEALTH: Final = ("healthz", "livez", "readyz")
_TRUE: Final = ("true", "1")
_encode: Final = msgspec.json.Encoder().encode


class ApiServer:
    """Serves a store over HTTP until it is stopped."""

    def __init__(
        self,
        store: Store,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        faults: Faults | None = None,
        metrics: MetricsProvider | None = None,
        bookmark_every_s: float = BOOKMARK_EVERY_S,
    ) -> None:
        self.store = store
        self.faults = faults or Faults(clock=store.clock, rng=random.Random(0))
        self.host = host
        self.port = port
        self._metrics = metrics
        self._bookmark_every_s = bookmark_every_s
        self._endpoints = Endpoints(store)
        self._mounted: dict[str, Handler] = {}
        self._streams: set[Stream] = set()
        # Separate from the cluster's generator: opening a watch must not change the simulation.
        self._rng = random.Random(0)
        self._runner: web.ServerRunner | None = None
        store.kinds.listen(removed=self._end_watches)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def mount(self, name: str, handler: Handler) -> None:
        """Serve `/<name>` and everything below it with another handler."""
        self._mounted[name] = handler

    async def start(self) -> None:
        """Listen; port 0 picks a free port."""
        # A watch whose client is gone must end before the next change.
        server = web.Server(self._handle, request_factory=_request_of, handler_cancellation=True)
        runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, self.host, self.port, backlog=1024)
        await site.start()
        self._runner = runner
        self.port = runner.addresses[0][1]

    async def stop(self) -> None:
        """End all watches and close all connections."""
        self.faults.thaw_watches()
        for stream in tuple(self._streams):
            stream.watch.end()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> ApiServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _end_watches(self, kind: Kind) -> None:
        for stream in tuple(self._streams):
            if stream.watch.kind.resource == kind.resource:
                stream.watch.end()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except Refusal as refusal:
            return _refused(refusal)
        except FaultInjected as fault:
            return _faulty(fault)
        except web.HTTPRequestEntityTooLarge:
            return _refused(TooLarge(f"Request entity too large: limit is {_LARGEST_BODY}"))
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            log.exception("request failed", path=request.path, error=str(error))
            return _refused(InternalError(f"Internal error occurred: {error}"))

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        if parts[0] in self._mounted:
            return await self._mounted[parts[0]](request)
        if parts[0] == "api" and len(parts) > 2:
            return await self._on_objects(request, "", parts[1], parts[2:])
        if parts[0] == "apis" and len(parts) > 3:
            return await self._on_objects(request, parts[1], parts[2], parts[3:])
        return self._on_rest(request, parts)

    async def _on_objects(
        self, request: web.BaseRequest, group: str, version: str, rest: list[str]
    ) -> web.StreamResponse:
        metrics = self._registered_metrics()
        if (group, version) == METRICS_GROUP and metrics is not None:
            return await self._on_metrics(request, rest, metrics)
        if self.store.kinds.group_version(group, version) is None and group:
            return _page_not_found()
        if rest[-1] == "bindings" and rest[0] == "namespaces" and not group:
            return await self._on_bindings(request, rest[1])
        params: Mapping[str, str] = request.query if request.query_string else {}
        target = target_of(self.store.kinds, group, version, rest)
        verb = verb_of(request.method, target, watch=params.get("watch", "") in _TRUE)
        await self.faults.before(verb, target.resource)
        call = await _call_of(request, verb, target, params)
        if verb == "watch":
            return await self._watch(request, call)
        answer = self._endpoints.answer(call)
        if self.faults.loses(verb, target.resource) and request.transport is not None:
            request.transport.abort()
        return _sent(answer)

    async def _on_bindings(self, request: web.BaseRequest, namespace: str) -> web.StreamResponse:
        if request.method != "POST":
            raise no_such_method()
        await self.faults.before("create", "bindings")
        target = Target(Kind(resource=BINDINGS), namespace)
        call = await _call_of(request, "create", target, request.query)
        return _sent(self._endpoints.bind_by_body(call))

    async def _on_metrics(
        self, request: web.BaseRequest, rest: list[str], metrics: MetricsProvider
    ) -> web.StreamResponse:
        plural = "pods" if "pods" in rest else "nodes"
        await self.faults.before("list", f"{plural}.{METRICS_GROUP[0]}")
        return _json(metrics_api.answer(metrics, request.method, rest, request.query))

    def _registered_metrics(self) -> MetricsProvider | None:
        found = self._metrics
        return found if found is not None and found.is_registered() else None

    def _on_rest(self, request: web.BaseRequest, parts: list[str]) -> web.StreamResponse:
        if request.method != "GET":
            raise no_such_method()
        address, metrics = f"{self.host}:{self.port}", self._registered_metrics()
        discovery = Discovery(self.store.kinds, address, metrics=metrics is not None)
        match parts:
            case [""]:
                return _json(discovery.paths())
            case ["version"]:
                return _json(VERSION)
            case ["api"]:
                return _json(discovery.core_versions())
            case ["apis"]:
                return _json(discovery.groups())
            case ["api", version]:
                return _json(_or_404(discovery.resources("", version)))
            case ["apis", group]:
                return _json_or_page(discovery.group(group))
            case ["apis", group, version]:
                if metrics is not None and (group, version) == METRICS_GROUP:
                    # Raises while the server behind the API is unavailable, as the aggregator does.
                    next(iter(metrics.node_metrics()), None)
                return _json_or_page(discovery.resources(group, version))
            case ["openapi", "v2"]:
                return _described(request.headers.get("Accept", ""))
            case ["openapi", "v3"]:
                return _json(OPENAPI_V3)
            case [name, *_] if name in _HEALTH:
                return web.Response(text="ok", content_type=_TEXT)
        return _page_not_found()

    async def _watch(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        options = ListOptions.parse(call.params)
        presenter = presenter_of(call.accept, call.kind, self.store.clock)
        watch = Watch(self.store.storage, call.kind, call.namespace, options, presenter)
        timing = Timing(
            lasts_s=float(options.stream.timeout_s or SHORTEST_WATCH_S * (1 + self._rng.random())),
            bookmark_every_s=self._bookmark_every_s if options.stream.bookmarks else None,
        )
        stream = Stream(watch, request, timing, self.store.clock)
        self._streams.add(stream)
        try:
            return await stream.run(self.faults)
        finally:
            self._streams.discard(stream)


def _request_of(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=_LARGEST_BODY
    )


async def _call_of(
    request: web.BaseRequest, verb: str, target: Target, params: Mapping[str, str]
) -> Call:
    body = await request.read() if request.body_exists else b""
    headers = request.headers
    return Call(
        verb,
        target,
        params,
        body,
        headers.get("Content-Type", ""),
        headers.get("Accept", ""),
    )


def _sent(answer: Answer) -> web.Response:
    headers = {**answer.headers, "Content-Type": _JSON}
    return web.Response(body=answer.body, status=answer.status, headers=headers)


def _json(value: Json, status: int = 200) -> web.Response:
    return web.Response(body=_encode(value), status=status, content_type=_JSON)


def _described(accept: str) -> web.Response:
    body, media_type = openapi_v2(accept)
    return web.Response(body=body, headers={"Content-Type": media_type})


def _or_404(value: Json | None) -> Json:
    if value is None:
        raise no_such_route()
    return value


def _json_or_page(value: Json | None) -> web.Response:
    return _page_not_found() if value is None else _json(value)


def _page_not_found() -> web.Response:
    return web.Response(status=404, text="404 page not found\n", content_type=_TEXT)


def _refused(refusal: Refusal) -> web.Response:
    response = _json(refusal.status(), refusal.code)
    if refusal.retry_after_s:
        response.headers["Retry-After"] = str(refusal.retry_after_s)
    return response


def _faulty(fault: FaultInjected) -> web.Response:
    """Respond as the filters of the real server do, which do not send Status objects."""
    if fault.status == 429:
        message = "Too many requests, please try again later.\n"
        response = web.Response(status=429, text=message, content_type=_TEXT)
        response.headers["Retry-After"] = str(fault.retry_after_s or 1)
        return response
    error = InternalError("Internal error occurred: a fault was asked for")
    response = _json({**error.status(), "code": fault.status}, fault.status)
    if fault.retry_after_s is not None:
        response.headers["Retry-After"] = str(fault.retry_after_s)
    return response
