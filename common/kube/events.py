# SPDX-License-Identifier: Apache-2.0
"""Events for people who run `kubectl describe` or `kubectl events` (`events.k8s.io/v1`).

Recording must never disturb the program: `record` only queues what happened, it neither
waits nor raises; one background task, `run`, writes to the API server. All memory is bounded.
When the queue is full the oldest entry is dropped, because people ask what happened just now;
every dropped Event is counted.

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
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

import structlog

from common.api.contract import GROUP
from common.clock import Clock, within
from common.kube.api import KubeApi
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
from common.kube.resources import EVENTS
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
_BACKOFF_MIN_S: Final = 0.5
_BACKOFF_MAX_S: Final = 10.0
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLimits:
    """How much is kept in memory, how often series are written, and how long it is tried."""

    queue_size: int = 1000
    remembered: int = 4096
    update_every_s: float = 30.0
    finish_after_s: float = 360.0
    request_s: float = 5.0
    tries: int = 6
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
    """One Event and how often it happened; `written` of these are written or dropped."""

    what: Happening
    name: str
    first_s: float
    last_s: float
    idle_since_s: float
    count: int = field(default=1, init=False)
    written: int = field(default=0, init=False)
    exists: bool = field(default=False, init=False)
    queued: bool = field(default=False, init=False)

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
    """The program and the process that report."""

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


class Recorder:
    """Queues Events at once and writes them in the background."""

    def __init__(
        self,
        client: KubeApi,
        *,
        program: str,
        identity: str,
        limits: EventLimits,
        clock: Clock,
        metrics: Metrics,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._reporter = Reporter(program, identity)
        self._limits = limits
        self._clock = clock
        self._rng = rng
        self._series: dict[Happening, Series] = {}  # the one longest without a repeat is first
        self._queue: deque[Series] = deque()
        self._work = asyncio.Event()
        self._logged_forbidden = False
        dropped = metrics.counter(
            "events_dropped_total", "Events that were not recorded.", ("cause",)
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
        """Queue an Event; returns at once and never raises."""
        series = self._remembered(Happening(regarding, type_, reason, note, action, related))
        if series.count <= 2:
            self._enqueue(series)

    async def record_now(
        self,
        *,
        regarding: ObjectRef,
        type_: EventType,
        reason: str,
        note: str,
        action: str,
        related: ObjectRef | None = None,
    ) -> None:
        """Write an Event before returning, in a single try; a failure is logged and counted."""
        series = self._remembered(Happening(regarding, type_, reason, note, action, related))
        await self._write(series, tries=1)

    async def run(self) -> None:
        """Write what is recorded, for ever; when canceled, write the rest within `drain_s`."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write_all())
                group.create_task(self._sweep())
        finally:
            await self._drain()

    def _remembered(self, what: Happening) -> Series:
        series = self._counted(what)
        self._series[what] = series
        if len(self._series) > self._limits.remembered:
            del self._series[next(iter(self._series))]
        return series

    def _counted(self, what: Happening) -> Series:
        now_s, monotonic_s = self._clock.now(), self._clock.monotonic()
        series = self._series.pop(what, None)
        if series is None or self._finished(series):
            name = event_name(what.regarding.name, self._rng.getrandbits(64))
            return Series(what, name, now_s, now_s, monotonic_s)
        series.repeat(now_s=now_s, monotonic_s=monotonic_s)
        return series

    def _finished(self, series: Series) -> bool:
        return self._clock.monotonic() - series.idle_since_s >= self._limits.finish_after_s

    def _enqueue(self, series: Series) -> None:
        if series.queued:
            return
        if len(self._queue) >= self._limits.queue_size:
            self._drop(self._queue.popleft(), "overflow")
        series.queued = True
        self._queue.append(series)
        self._work.set()

    def _drop(self, series: Series, cause: _Cause) -> None:
        series.queued = False
        series.written = series.count
        self._dropped[cause].inc()

    async def _write_all(self) -> None:
        while True:
            while self._queue:
                await self._write(self._queue.popleft(), tries=self._limits.tries)
            self._work.clear()
            await self._work.wait()

    async def _sweep(self) -> None:
        """Write new counts and forget finished series, once per interval."""
        while True:
            await self._clock.sleep(self._limits.update_every_s)
            self._enqueue_unwritten()
            over = [s for s in self._series.values() if self._finished(s) and not s.queued]
            for series in over:
                del self._series[series.what]

    def _enqueue_unwritten(self) -> None:
        for series in self._series.values():
            if series.count > series.written:
                self._enqueue(series)

    async def _drain(self) -> None:
        self._enqueue_unwritten()
        try:
            await within(self._clock, self._limits.drain_s, self._write_rest())
        except TimeoutError:
            log.warning("events dropped at shutdown", count=len(self._queue))
            while self._queue:
                self._drop(self._queue.popleft(), "shutdown")

    async def _write_rest(self) -> None:
        while self._queue:
            await self._write(self._queue.popleft(), tries=1)

    async def _write(self, series: Series, *, tries: int) -> None:
        series.queued = False
        try:
            await self._deliver(series, tries)
        except asyncio.CancelledError:
            self._put_back(series)
            raise
        except _FINAL as error:
            self._drop(series, "refused")
            self._log_rejected(series, error)
        except KubeError as error:
            self._drop(series, "gave_up")
            log.warning("event not recorded", kind=series.what.regarding.kind, error=str(error))
        except Exception:
            # One event that fails unexpectedly must stop neither the others nor the program.
            self._drop(series, "defect")
            log.exception("event not recorded", kind=series.what.regarding.kind)

    def _put_back(self, series: Series) -> None:
        if not series.queued:
            series.queued = True
            self._queue.appendleft(series)

    async def _deliver(self, series: Series, tries: int) -> None:
        backoff = Backoff(floor_s=_BACKOFF_MIN_S, cap_s=_BACKOFF_MAX_S, rng=self._rng)
        for _ in range(1, tries):
            try:
                return await self._send(series)
            except _FINAL:
                raise
            except KubeError as error:
                asked_s = min(_retry_after_s(error), _BACKOFF_MAX_S)
                await self._clock.sleep(max(asked_s, backoff.next_s()))
        await self._send(series)

    async def _send(self, series: Series) -> None:
        count = series.count
        if not (series.exists and await self._patched(series)):
            await self._create(series)
        series.exists = True
        series.written = count

    async def _create(self, series: Series) -> None:
        body = self._reporter.event(series)
        try:
            await self._call(self._client.create(EVENTS, body, namespace=series.what.namespace))
        except AlreadyExists:
            # An earlier attempt of ours succeeded and only its response was lost.
            if series.count > 1:
                await self._patched(series)

    async def _patched(self, series: Series) -> bool:
        """Update the series; return whether its Event still exists."""
        namespace = series.what.namespace
        patch = self._client.patch(EVENTS, series.wire(), name=series.name, namespace=namespace)
        try:
            await self._call(patch)
        except NotFound:
            return False
        return True

    async def _call(self, call: Awaitable[bytes]) -> None:
        limit_s = self._limits.request_s
        try:
            await within(self._clock, limit_s, call)
        except TimeoutError as error:
            raise TimedOut(f"no answer about an event within {limit_s:g} s") from error

    def _log_rejected(self, series: Series, error: ApiError) -> None:
        say = log.warning
        if isinstance(error, Forbidden):
            # Every event would repeat the same sentence; in a namespace on its way out a
            # refusal is nothing to report.
            quiet = self._logged_forbidden or error.has_cause("NamespaceTerminating")
            say = log.debug if quiet else log.warning
            self._logged_forbidden = self._logged_forbidden or not quiet
        say("event rejected", kind=series.what.regarding.kind, error=error.message)


def _retry_after_s(error: KubeError) -> float:
    return (isinstance(error, ApiError) and error.retry_after_s) or 0.0
