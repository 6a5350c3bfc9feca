"""Events for people who run `kubectl describe` or `kubectl events` (`events.k8s.io/v1`).

Recording is a courtesy and must never hurt: `record` only notes what happened, it neither
waits nor raises; one background task, `run`, does the talking. All memory is bounded. When
the queue is full the oldest entry goes, because people ask what happened just now; whatever
is not told is counted.

The same thing happening again is not a new Event but a `series` on the first one, as
client-go does it (tools/events/event_broadcaster.go): the first repeat is written at once
with a count of 2, later ones at most once per `update_every_s`, and after `finish_after_s`
without a repeat the next one starts a new Event. What is written obeys the API server's
limits (pkg/apis/core/validation/events.go), which count bytes.

Call `record` from the event loop's thread only.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import deque
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, get_args

import structlog

from common.clock import Clock, within
from common.contract import GROUP
from common.kube.backoff import Backoff
from common.kube.errors import (
    FINAL,
    AlreadyExists,
    ApiError,
    Forbidden,
    Gone,
    KubeError,
    NotFound,
    TimedOut,
)
from common.kube.resources import EVENTS, Resource
from common.kube.timestamps import micro_time
from common.metrics import Metrics
from common.visible import visible

log: structlog.stdlib.BoundLogger = structlog.get_logger()

EventType = Literal["Normal", "Warning"]
_Cause = Literal["overflow", "refused", "gave_up", "shutdown", "defect"]

NOTE_BYTES: Final = 1024
WORD_BYTES: Final = 128  # of reason, action and reportingInstance
NAME_CHARACTERS: Final = 253

_FINAL: Final = (*FINAL, Gone)
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSettings:
    """How much is remembered, how often it is told, and how long it is tried."""

    queue_size: int = 1000
    remembered: int = 4096
    update_every_s: float = 30.0
    finish_after_s: float = 360.0
    request_s: float = 5.0
    tries: int = 6
    backoff_min_s: float = 0.5
    backoff_max_s: float = 10.0
    drain_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRef:
    """The object an Event is about; no namespace if its kind has none."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"

    def wire(self) -> dict[str, str]:
        """Return it as the API writes it, without what is not known."""
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
        }
        return {key: value for key, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class Happening:
    """What happened; equal ones are repeats of each other."""

    regarding: ObjectRef
    type_: EventType
    reason: str
    note: str
    action: str
    related: ObjectRef | None

    @property
    def namespace(self) -> str:
        """Where its Event lives: Events always have a namespace, objects need not."""
        return self.regarding.namespace or "default"


@dataclass(slots=True)
class Series:
    """One Event and how often it happened; `told` of these are written or given up."""

    what: Happening
    name: str
    first_s: float
    last_s: float
    idle_since_s: float
    count: int = 1
    told: int = 0
    exists: bool = False
    queued: bool = False

    def repeat(self, *, now_s: float, monotonic_s: float) -> None:
        """Count one more."""
        self.count += 1
        self.last_s = now_s
        self.idle_since_s = monotonic_s

    def wire(self) -> dict[str, Any]:
        """Return the part of the Event that changes; nothing while it happened once."""
        if self.count < 2:
            return {}
        return {"series": {"count": self.count, "lastObservedTime": micro_time(self.last_s)}}


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who speaks."""

    program: str
    identity: str

    def event(self, series: Series) -> dict[str, Any]:
        """Return the whole Event as the API takes it."""
        what = series.what
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": series.name, "namespace": what.namespace},
            "eventTime": micro_time(series.first_s),
            "type": what.type_,
            "reason": cut(what.reason, WORD_BYTES),
            "action": cut(what.action, WORD_BYTES),
            "note": cut(visible(what.note), NOTE_BYTES),
            "regarding": what.regarding.wire(),
            "reportingController": f"{GROUP}/{self.program}",
            "reportingInstance": cut(self.identity, WORD_BYTES),
            **series.wire(),
        }
        return body | ({"related": what.related.wire()} if what.related else {})


def cut(text: str, limit_bytes: int) -> str:
    """Return `text` as valid UTF-8 of at most `limit_bytes`, with an ellipsis if shortened."""
    raw = text.encode(errors="replace")
    if len(raw) > limit_bytes:
        raw = raw[: limit_bytes - len("…".encode())] + "…".encode()
    return raw.decode(errors="ignore")


def event_name(subject: str, tail: int) -> str:
    """Return `<subject>.<hex>` as a valid object name, whatever the subject is called."""
    ending = f".{tail:016x}"
    head = subject[: NAME_CHARACTERS - len(ending)].rstrip("-.")
    # Some kinds allow names that Events do not, for example `system:node`.
    return (head if _SUBDOMAIN.fullmatch(head) else "object") + ending


class EventClient(Protocol):
    """The part of `KubeClient` that recording needs."""

    def create(
        self, resource: Resource, body: Any, *, namespace: str
    ) -> Coroutine[Any, Any, bytes]: ...

    def patch(
        self, resource: Resource, body: Any, *, name: str, namespace: str
    ) -> Coroutine[Any, Any, bytes]: ...


class Recorder:
    """Takes notes at once and tells the API server when it can."""

    def __init__(
        self,
        client: EventClient,
        *,
        program: str,
        identity: str,
        settings: EventSettings,
        clock: Clock,
        metrics: Metrics,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._reporter = Reporter(program, identity)
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._series: dict[Happening, Series] = {}  # the one longest without a repeat is first
        self._queue: deque[Series] = deque()
        self._work = asyncio.Event()
        self._said_forbidden = False
        dropped = metrics.counter(
            "events_dropped_total", "Events that could not be told.", ("cause",)
        )
        self._dropped = {cause: dropped.labels(cause) for cause in get_args(_Cause)}

    def record(
        self,
        *,
        regarding: ObjectRef,
        type_: EventType,
        reason: str,
        note: str,
        action: str,
        related: ObjectRef | None = None,
    ) -> None:
        """Note that something happened; returns at once and never raises."""
        what = Happening(regarding, type_, reason, note, action, related)
        series = self._counted(what)
        self._series[what] = series
        if len(self._series) > self._settings.remembered:
            del self._series[next(iter(self._series))]
        if series.count <= 2:
            self._enqueue(series)

    async def run(self) -> None:
        """Tell what is recorded, for ever; when cancelled, tell the rest within `drain_s`."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tell_all())
                group.create_task(self._sweep())
        finally:
            await self._drain()

    def _counted(self, what: Happening) -> Series:
        now_s, monotonic_s = self._clock.now(), self._clock.monotonic()
        series = self._series.pop(what, None)
        if series is None or self._finished(series):
            name = event_name(what.regarding.name, self._rng.getrandbits(64))
            return Series(what, name, now_s, now_s, monotonic_s)
        series.repeat(now_s=now_s, monotonic_s=monotonic_s)
        return series

    def _finished(self, series: Series) -> bool:
        return self._clock.monotonic() - series.idle_since_s >= self._settings.finish_after_s

    def _enqueue(self, series: Series) -> None:
        if series.queued:
            return
        if len(self._queue) >= self._settings.queue_size:
            self._drop(self._queue.popleft(), "overflow")
        series.queued = True
        self._queue.append(series)
        self._work.set()

    def _drop(self, series: Series, cause: _Cause) -> None:
        series.queued = False
        series.told = series.count
        self._dropped[cause].inc()

    async def _tell_all(self) -> None:
        while True:
            while self._queue:
                await self._tell(self._queue.popleft(), tries=self._settings.tries)
            self._work.clear()
            await self._work.wait()

    async def _sweep(self) -> None:
        """Tell new counts and forget what is over, once per interval."""
        while True:
            await self._clock.sleep(self._settings.update_every_s)
            self._enqueue_untold()
            over = [s for s in self._series.values() if self._finished(s) and not s.queued]
            for series in over:
                del self._series[series.what]

    def _enqueue_untold(self) -> None:
        for series in self._series.values():
            if series.count > series.told:
                self._enqueue(series)

    async def _drain(self) -> None:
        self._enqueue_untold()
        try:
            await within(self._clock, self._settings.drain_s, self._tell_rest())
        except TimeoutError:
            log.warning("events not told before the end", count=len(self._queue))
            while self._queue:
                self._drop(self._queue.popleft(), "shutdown")

    async def _tell_rest(self) -> None:
        while self._queue:
            await self._tell(self._queue.popleft(), tries=1)

    async def _tell(self, series: Series, *, tries: int) -> None:
        series.queued = False
        try:
            await self._deliver(series, tries)
        except asyncio.CancelledError:
            self._put_back(series)
            raise
        except _FINAL as error:
            self._drop(series, "refused")
            self._say_refused(series, error)
        except KubeError as error:
            self._drop(series, "gave_up")
            log.warning("event not told", kind=series.what.regarding.kind, error=str(error))
        except Exception:
            # Whatever one odd event does, the others are told and the program lives.
            self._drop(series, "defect")
            log.exception("event not told", kind=series.what.regarding.kind)

    def _put_back(self, series: Series) -> None:
        if not series.queued:
            series.queued = True
            self._queue.appendleft(series)

    async def _deliver(self, series: Series, tries: int) -> None:
        settings = self._settings
        backoff = Backoff(
            floor_s=settings.backoff_min_s, cap_s=settings.backoff_max_s, rng=self._rng
        )
        for _ in range(1, tries):
            try:
                return await self._send(series)
            except _FINAL:
                raise
            except KubeError as error:
                asked_s = min(_retry_after_s(error), settings.backoff_max_s)
                await self._clock.sleep(max(asked_s, backoff.next_s()))
        await self._send(series)

    async def _send(self, series: Series) -> None:
        count = series.count
        if not (series.exists and await self._patched(series)):
            await self._create(series)
        series.exists = True
        series.told = count

    async def _create(self, series: Series) -> None:
        body = self._reporter.event(series)
        try:
            await self._call(self._client.create(EVENTS, body, namespace=series.what.namespace))
        except AlreadyExists:
            # An earlier try of ours came through and only its answer was lost.
            if series.count > 1:
                await self._patched(series)

    async def _patched(self, series: Series) -> bool:
        """Update the series; tell whether there still was an Event to update."""
        place = {"name": series.name, "namespace": series.what.namespace}
        try:
            await self._call(self._client.patch(EVENTS, series.wire(), **place))
        except NotFound:
            return False
        return True

    async def _call(self, call: Awaitable[bytes]) -> None:
        limit_s = self._settings.request_s
        try:
            await within(self._clock, limit_s, call)
        except TimeoutError as error:
            raise TimedOut(f"no answer about an event within {limit_s:g} s") from error

    def _say_refused(self, series: Series, error: ApiError) -> None:
        say = log.warning
        if isinstance(error, Forbidden):
            # Every event would repeat the same sentence; in a namespace on its way out a
            # refusal is nothing to report.
            quiet = self._said_forbidden or error.has_cause("NamespaceTerminating")
            say = log.debug if quiet else log.warning
            self._said_forbidden = self._said_forbidden or not quiet
        say("event refused", kind=series.what.regarding.kind, error=error.message)


def _retry_after_s(error: KubeError) -> float:
    return (isinstance(error, ApiError) and error.retry_after_s) or 0.0
