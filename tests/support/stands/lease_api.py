# SPDX-License-Identifier: Apache-2.0
"""Leases and Events in memory, with the API server's manners, and faults on demand.

`MemoryApi` is the store: optimistic concurrency on resourceVersion, 404, 409 and the strict
checks of Events. `served` puts it on a real socket; `DirectClient` calls it without one, for
tests that play thousands of seconds.

Faults are hooks. `before` runs before a call is carried out, `after` between that and the
answer; either may wait (the call is stalled) or raise `Refusal`. A stalled call goes on when
its client has long given up, as requests on their way to etcd do.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from common.clock import Clock
from common.kube.api import JSON_TYPE
from common.kube.client import KubeClient, connect
from common.kube.errors import Cause, api_error
from common.kube.leader import Elector
from common.metrics import Metrics
from tests.support.clock import FakeClock
from tests.support.stands.kube_api import PartialKubeApi

Object = dict[str, Any]
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True)
class Call:
    """One request as it arrived."""

    user: str
    method: str
    path: str
    body: Any
    content_type: str = "application/json"


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(
        self,
        status: int,
        reason: str = "",
        *,
        cause: str = "",
        message: str = "no",
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason
        self.message = message
        self.cause = cause
        self.retry_after_s = retry_after_s

    def body(self) -> Object:
        causes = [{"reason": self.cause}] if self.cause else []
        return {
            "apiVersion": "v1",
            "kind": "Status",
            "status": "Failure",
            "code": self.status,
            "reason": self.reason,
            "message": self.message,
            "details": {"causes": causes},
        }


Hook = Callable[[Call], Awaitable[None]]


async def nothing(_: Call) -> None:
    """The hook that does no harm."""


class Stall:
    """Parks calls until `release`; give `holds` as a hook."""

    def __init__(self, wanted: Callable[[Call], bool] = lambda _: True) -> None:
        self._wanted = wanted
        self._open = asyncio.Event()
        self.parked: list[Call] = []

    async def holds(self, call: Call) -> None:
        if self._wanted(call) and not self._open.is_set():
            self.parked.append(call)
            await self._open.wait()
            self.parked.remove(call)

    def release(self) -> None:
        self._open.set()


class MemoryApi:
    """Objects by path, and every call that was made."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.calls: list[Call] = []
        self.written: list[Call] = []
        self.before: Hook = nothing
        self.after: Hook = nothing
        self._version = 100

    async def answer(self, call: Call) -> Object:
        """Carry out one call and return the object; raise Refusal instead of an error."""
        self.calls.append(call)
        await self.before(call)
        found = self._carry_out(call)
        await self.after(call)
        return found

    @contextmanager
    def refusing(self, refusal: Refusal) -> Iterator[None]:
        """Refuse every call for a while."""

        async def refuse(_: Call) -> None:
            raise refusal

        before, self.before = self.before, refuse
        try:
            yield
        finally:
            self.before = before

    def of(self, plural: str) -> list[Object]:
        """Return all objects of a kind, in the order of their names."""
        return [found for path, found in sorted(self.objects.items()) if f"/{plural}/" in path]

    def touch(self, path: str, **labels: str) -> None:
        """Label an object, as a stranger does who has no part in the election."""
        found = self.objects[path]
        self._keep(path, {**found, "metadata": {**found["metadata"], "labels": labels}})

    def _carry_out(self, call: Call) -> Object:
        if call.method == "GET":
            return self._found(call.path)
        found = getattr(self, f"_{call.method.lower()}")(call)
        self.written.append(call)
        return self._keep(*found)

    def _post(self, call: Call) -> tuple[str, Object]:
        path = f"{call.path}/{call.body['metadata']['name']}"
        if path in self.objects:
            raise Refusal(409, "AlreadyExists")
        _check(call.body)
        return path, call.body

    def _put(self, call: Call) -> tuple[str, Object]:
        found = self._found(call.path)
        said = call.body["metadata"].get("resourceVersion")
        if said != found["metadata"]["resourceVersion"]:
            raise Refusal(409, "Conflict")
        _check(call.body)
        return call.path, call.body

    def _patch(self, call: Call) -> tuple[str, Object]:
        if call.content_type != "application/merge-patch+json":
            raise Refusal(415, "UnsupportedMediaType")
        found = {**self._found(call.path), **call.body}
        _check(found)
        return call.path, found

    def _found(self, path: str) -> Object:
        if path not in self.objects:
            raise Refusal(404, "NotFound")
        return self.objects[path]

    def _keep(self, path: str, found: Object) -> Object:
        self._version += 1
        metadata = {**found["metadata"], "resourceVersion": str(self._version)}
        self.objects[path] = {**found, "metadata": metadata}
        return self.objects[path]


def _check(body: Object) -> None:
    """Refuse what kube-apiserver refuses (pkg/apis/{coordination,core}/validation)."""
    name = body["metadata"]["name"]
    faults = [] if _NAME.fullmatch(name) and len(name) <= 253 else ["metadata.name"]
    faults += _event_faults(body) if body["kind"] == "Event" else _lease_faults(body["spec"])
    if faults:
        raise Refusal(422, "Invalid", message=f"invalid: {', '.join(faults)}")


def _lease_faults(spec: Object) -> Iterator[str]:
    if spec.get("leaseDurationSeconds", 1) < 1:
        yield "leaseDurationSeconds"
    for key in ("acquireTime", "renewTime"):
        if key in spec and not _MICRO_TIME.fullmatch(spec[key]):
            yield key


def _event_faults(event: Object) -> Iterator[str]:
    series = event.get("series", {"count": 2, "lastObservedTime": event["eventTime"]})
    namespace = event["regarding"].get("namespace", "")
    limits = {"reason": 128, "action": 128, "reportingInstance": 128}
    checks = {
        "eventTime": bool(_MICRO_TIME.fullmatch(event["eventTime"])),
        "type": event["type"] in ("Normal", "Warning"),
        "note": len(event["note"].encode()) <= 1024,
        "series.count": series["count"] >= 2,
        "series.lastObservedTime": bool(_MICRO_TIME.fullmatch(series["lastObservedTime"])),
        "involvedObject.namespace": (namespace or "default") == event["metadata"]["namespace"],
        **{key: 0 < len(event[key].encode()) <= most for key, most in limits.items()},
    }
    yield from (key for key, fine in checks.items() if not fine)


class DirectClient(PartialKubeApi):
    """Stands where a `KubeClient` stands, without a socket in between."""

    def __init__(self, api: MemoryApi, user: str = "", clock: SkewedClock | None = None) -> None:
        self._api = api
        self._user = user
        self._clock = clock

    async def request(
        self, method: str, path: str, *, body: Any = None, content_type: str = JSON_TYPE, **_: Any
    ) -> bytes:
        return await self._do(method, path, body, content_type)

    async def _do(self, method: str, path: str, body: Any, kind: str) -> bytes:
        sent = msgspec.json.decode(msgspec.json.encode(body))
        # A caller who gives up does not take the request back.
        answer = asyncio.ensure_future(self._api.answer(Call(self._user, method, path, sent, kind)))
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return msgspec.json.encode(await asyncio.shield(answer))
        except Refusal as no:
            raise api_error(
                no.status,
                no.message,
                reason=no.reason,
                causes=(Cause(reason=no.cause),),
                retry_after_s=no.retry_after_s,
            ) from no
        finally:
            # A frozen process learns of the answer later.
            if self._clock is not None:
                await self._clock.running()


async def leading(elector: Elector) -> None:
    """Return once an elector leads."""
    async with asyncio.timeout(60):
        while not elector.is_leader:  # noqa: ASYNC110 - the elector tells no one
            await asyncio.sleep(0.001)  # noqa: TID251 - lets sockets progress


def lost(metrics: Metrics) -> float:
    """Return how often an elector has lost the lead."""
    name, labels = "evenkeel_leader_transitions_total", {"to": "waiting"}
    return metrics.registry.get_sample_value(name, labels) or 0.0


class SkewedClock:
    """Another machine's view of `true` time: other hour, other speed, sometimes frozen."""

    def __init__(self, true: FakeClock, *, rate: float = 1.0, ahead_s: float = 0.0) -> None:
        self._true = true
        self._rate = rate
        self._ahead_s = ahead_s
        self._running = asyncio.Event()
        self._running.set()

    def now(self) -> float:
        return self._true.now() + self._ahead_s

    def monotonic(self) -> float:
        return self._true.monotonic() * self._rate

    async def sleep(self, seconds: float) -> None:
        # Never shorter than asked, whatever the division rounds away.
        await self._true.sleep(seconds / self._rate + 1e-6)
        await self.running()

    async def running(self) -> None:
        """Return once the process is not frozen."""
        await self._running.wait()

    def freeze(self) -> None:
        """Stop the process, as SIGSTOP or a blocked event loop does; time goes on."""
        self._running.clear()

    def thaw(self) -> None:
        """Let it run again."""
        self._running.set()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze for the length of a block."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()


class CountedClient(PartialKubeApi):
    """A real `KubeClient`, and how many of its calls are under way."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.started = 0
        self.open = 0

    async def request(self, method: str, path: str, **given: Any) -> bytes:
        return await self._counted(self._client.request(method, path, **given))

    async def _counted(self, call: Coroutine[Any, Any, bytes]) -> bytes:
        self.started += 1
        self.open += 1
        try:
            return await call
        finally:
            self.open -= 1


class SocketApi:
    """A `MemoryApi` behind a real socket."""

    def __init__(self, api: MemoryApi) -> None:
        self.api = api
        self.url = ""
        self._runner: web.AppRunner | None = None
        self._clients: list[CountedClient] = []
        self._requests: list[web.Request] = []

    async def start(self) -> None:
        """Begin to listen on a free port."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        """Close all connections; no one listens any more."""
        if self._runner is not None:
            await self._runner.cleanup()

    @asynccontextmanager
    async def client(self, user: str, folder: Path, clock: Clock) -> AsyncIterator[CountedClient]:
        """Log in as `user`; the calls carry that name."""
        kubeconfig = folder / f"{user}.kubeconfig"
        kubeconfig.write_bytes(msgspec.json.encode(_kubeconfig(self.url, user)))
        async with connect(kubeconfig=str(kubeconfig), clock=clock) as client:
            counted = CountedClient(client)
            self._clients.append(counted)
            yield counted

    async def quiet(self) -> None:
        """Return once all bytes are where they belong: only stalled calls are under way."""
        calm = 0
        async with asyncio.timeout(30):
            # Turns of the loop, not time: between two calls there is a little thinking.
            while calm < 30:
                calm = calm + 1 if self._settled() else 0
                await asyncio.sleep(0 if calm else 0.001)  # noqa: TID251 - lets sockets progress

    def _settled(self) -> bool:
        arrived = sum(client.started for client in self._clients) == len(self.api.calls)
        # A request whose client has given up is stalled, too, but no one waits for it.
        waiting = sum(r.transport is not None for r in self._requests)
        return arrived and sum(client.open for client in self._clients) == waiting

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one request."""
        self._requests.append(request)
        try:
            return web.json_response(await self.api.answer(await _call(request)))
        except Refusal as no:
            wait = {} if no.retry_after_s is None else {"Retry-After": str(no.retry_after_s)}
            return web.json_response(no.body(), status=no.status, headers=wait)
        finally:
            self._requests = [other for other in self._requests if other is not request]


async def _call(request: web.Request) -> Call:
    raw = await request.read()
    user = request.headers.get("Authorization", "").removeprefix("Bearer ")
    body = msgspec.json.decode(raw) if raw else None
    return Call(user, request.method, request.path, body, request.content_type)


@asynccontextmanager
async def served(api: MemoryApi) -> AsyncIterator[SocketApi]:
    """Serve `api` on a free port of the loopback."""
    socket = SocketApi(api)
    await socket.start()
    try:
        yield socket
    finally:
        await socket.stop()


def _kubeconfig(url: str, user: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": user}}],
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": user, "user": {"token": user}}],
    }
