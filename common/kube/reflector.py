# SPDX-License-Identifier: Apache-2.0
"""Keeps a sink in step with one kind of object, for ever.

A paged list fills the sink, a watch keeps it current, and whatever breaks is taken up
again: from the last resourceVersion if the server still has its history, with a new list
if not, and then objects that vanished meanwhile are forgotten.

Invariants: the sink never holds a version of an object that we know to be outdated;
`resource_version` is never ahead of what the sink was told; nothing is asked for without
a wait after a failure; and a cache that has heard nothing for too long says so.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Generic, Protocol, TypeVar

import structlog

from common.clock import Clock, within
from common.config import Reading
from common.http_body import MIB
from common.kube.api import KubeApi, Params
from common.kube.backoff import Backoff
from common.kube.envelopes import (
    Broken,
    ObjectDecoder,
    Page,
    T,
    WireObject,
    key_of,
    split_event,
    version_of,
)
from common.kube.errors import (
    ApiError,
    Forbidden,
    Gone,
    KubeconfigError,
    KubeError,
    Malformed,
    NotFound,
    ServerError,
    TimedOut,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from common.kube.resources import Resource
from common.kube.translate import status_error
from common.metrics import Metrics
from common.turns import Turns

log: structlog.stdlib.BoundLogger = structlog.get_logger()

T_contra = TypeVar("T_contra", bound=WireObject, contravariant=True)

# A server that asks for more than this is mistaken, or does not want us at all.
_LONGEST_RETRY_AFTER_S: Final = 300.0
AT_ONCE: Final = 50
"""How many objects of a list are taken in before others have their turn on the event loop."""
MAX_PAGE_BYTES: Final = 64 * MIB
"""The largest page of a list that is read; one that is larger is asked for in smaller pages.

Five hundred objects are a few megabytes, unless they are made large on purpose.
"""
_TOLD: Final = 500
"""Characters of an error that are kept and logged; it may quote the object."""
_CHANGES: Final = ("ADDED", "MODIFIED", "DELETED")
_EVENT_TYPES: Final = (*_CHANGES, "BOOKMARK")
_SKIP_CAUSES: Final = ("undecodable", "nonsense")
# After these the server still has the history after our version; after all others it may not.
_PASSING: Final = (
    Unreachable,
    TooManyRequests,
    ServerError,
    Unauthorized,
    Forbidden,
    KubeconfigError,
)
_OUT_OF_REACH: Final = (Unreachable, TooManyRequests, ServerError)
"""The server did not answer, or could not."""


class Sink(Protocol[T_contra]):
    """What a reflector fills.

    `upsert` may raise ValueError for an object whose content makes no sense; the reflector
    then forgets the version that the sink holds.
    """

    def upsert(self, obj: T_contra, /) -> None: ...

    def delete(self, obj: T_contra, /) -> None: ...

    def keys(self) -> Iterable[str]:
        """Return `namespace/name` or `name` of everything held."""
        ...

    def forget(self, key: str, /) -> None:
        """Drop an object that went away unseen; do nothing if it is not held."""
        ...


@dataclass(frozen=True, slots=True)
class ListWatch(Generic[T]):
    """Which objects are listed and watched, and how they are decoded."""

    resource: Resource
    type_: type[T]
    _: KW_ONLY
    namespace: str = ""
    """The only one that is read; empty for all."""
    field_selector: str = ""
    install: str = ""
    """The command that installs its CRD; empty for built-in kinds."""
    dispensable: bool = False
    """Nothing waits for it: it may not be defined, and may not be readable."""

    def selection(self) -> dict[str, str | int]:
        """Return the parameters that select objects."""
        return {"fieldSelector": self.field_selector} if self.field_selector else {}


@dataclass(slots=True)
class _Listing:
    """A list that may be interrupted between pages and taken up again."""

    page_size: int
    token: str = ""
    version: str = ""
    seen: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)


class Reflector(Generic[T]):
    """Lists and watches one kind; see the module."""

    def __init__(
        self,
        client: KubeApi,
        source: ListWatch[T],
        sink: Sink[T],
        *,
        reading: Reading,
        clock: Clock,
        metrics: Metrics,
        rng: random.Random,
    ) -> None:
        self.resource: Final = source.resource
        self._client = client
        self._source = source
        self._path = source.resource.path(namespace=source.namespace or None)
        self._decoder = ObjectDecoder(source.type_)
        self._sink = sink
        self._reading = reading
        self._clock = clock
        self._rng = rng
        self._backoff = Backoff(floor_s=reading.backoff_min, cap_s=reading.backoff_max, rng=rng)
        self._figures = _Figures(metrics, source.resource.kind, self)
        self._version = ""
        self._listed = False
        self._absent = False
        self._turns = Turns()
        self._must_list = True
        self._listing = _Listing(reading.page_size)
        self._heard_at = clock.monotonic()
        self._heard_something = asyncio.Event()
        self._watching = False
        self._watched_at = clock.monotonic()
        self.last_unreachable_s = float("-inf")
        """When the server last gave no proper answer, on the monotonic clock."""
        self._trouble = ""
        self._complaints: dict[str, str] = {}

    @property
    def resource_version(self) -> int | None:
        """Return up to which version the sink has been told everything."""
        return _number(self._version)

    @property
    def synced(self) -> bool:
        """Tell whether the sink holds a whole list that is not stale."""
        return self._listed and self.staleness_s() <= self._reading.stale_after

    @property
    def absent(self) -> bool:
        """Tell whether the server does not know this kind, because its CRD is missing."""
        return self._absent

    @property
    def trouble(self) -> str:
        """What went wrong last time, in words; empty after any success."""
        return self._trouble

    def staleness_s(self) -> float:
        """Return how long ago the server was last heard."""
        return self._clock.monotonic() - self._heard_at

    def unwatched_s(self) -> float:
        """Return for how long no watch has been open; changes since then are not known."""
        return 0.0 if self._watching else self._clock.monotonic() - self._watched_at

    async def wait_synced(self) -> None:
        """Return when `synced` is true."""
        while not self.synced:
            self._heard_something.clear()
            await self._heard_something.wait()

    async def run(self) -> None:
        """List and watch until canceled."""
        while True:
            pause_s = await self._turn()
            if pause_s > 0:
                await self._clock.sleep(pause_s)

    async def _turn(self) -> float:
        """List if need be, watch once, and return how long to wait before the next turn."""
        try:
            if self._must_list:
                await self._list()
            return await self._watch()
        except KubeError as error:
            return self._after(error)
        except Exception:
            # The sink may have taken half of an event: only a list makes it whole again.
            self._must_list = True
            self._listing = _Listing(self._reading.page_size)
            self._figures.error("Unexpected")
            log.exception("reflector failed", kind=self.resource.kind)
            return self._backoff.next_s()

    async def _list(self) -> None:
        listing = self._listing
        body = await self._page_body(listing)
        while True:
            page = self._decoder.page(body)
            listing.version = listing.version or page.version
            listing.token = page.token
            if not page.token:
                await self._apply_page(page, listing)
                break
            body = await self._applied_meanwhile(page, listing)
        self._finish(listing)

    async def _applied_meanwhile(self, page: Page[T], listing: _Listing) -> bytes:
        """Take in a page, and read the next one meanwhile: the server works at the same time."""
        ahead = asyncio.create_task(self._page_body(listing))
        try:
            await self._apply_page(page, listing)
            return await ahead
        finally:
            ahead.cancel()
            await asyncio.wait([ahead])

    async def _page_body(self, listing: _Listing) -> bytes:
        """Read the next page; smaller ones are asked for if one is too large."""
        while True:
            params = self._page(listing)
            try:
                return await self._client.get(self._path, params=params, max_bytes=MAX_PAGE_BYTES)
            except TooLarge:
                if listing.page_size == 1:
                    raise
                listing.page_size = max(1, listing.page_size // 4)
                kind, size = self.resource.kind, listing.page_size
                log.info("list page too large, using smaller pages", kind=kind, page_size=size)

    def _page(self, listing: _Listing) -> Params:
        # No resourceVersion: a consistent read, never older than what we already know.
        params = self._source.selection() | {"limit": listing.page_size}
        return params | {"continue": listing.token} if listing.token else params

    async def _apply_page(self, page: Page[T], listing: _Listing) -> None:
        for number, obj in enumerate(page.objects):
            if number % AT_ONCE == 0:
                await self._turns.take()
            key = key_of(obj.metadata)
            if self._upsert(key, obj):
                listing.seen.add(key)
            else:
                listing.skipped.add(key)
        for broken in page.broken:
            listing.skipped.add(broken.key)
            self._skip(broken.key, "undecodable", broken.why)

    def _finish(self, listing: _Listing) -> None:
        if not listing.version:
            raise Malformed("the list has no resourceVersion to watch from")
        for key in [key for key in self._sink.keys() if key not in listing.seen]:  # noqa: SIM118
            self._sink.forget(key)
        self._complaints = {k: v for k, v in self._complaints.items() if k in listing.skipped}
        self._listing = _Listing(self._reading.page_size)
        self._version = listing.version
        self._must_list = False
        self._listed = True
        self._absent = False
        self._figures.lists.inc()
        self._heard()

    async def _watch(self) -> float:
        """Watch for one window; return how long to wait before the next."""
        reading = self._reading
        # 0 would mean the server's own default.
        window_s = max(1, round(self._rng.uniform(reading.min_watch, reading.max_watch)))
        started, version = self._clock.monotonic(), self._version
        try:
            await within(self._clock, window_s + reading.watch_grace, self._consume(window_s))
        except TimeoutError:
            log.info("watch not ended by the server in time", kind=self.resource.kind)
        finally:
            lasted_s = self._clock.monotonic() - started
            worked = self._version != version or lasted_s >= reading.backoff_max
            if worked:
                self._backoff.reset()
        if worked:
            return reading.backoff_min - lasted_s
        return self._backoff.next_s()

    async def _consume(self, window_s: int) -> None:
        params = self._source.selection() | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": window_s,
            "resourceVersion": self._version,
        }
        self._figures.watches.inc()
        async with self._client.stream(
            self._path,
            params=params,
            connect_s=self._reading.connect_timeout.seconds,
            silence_s=self._reading.silence.seconds,
        ) as lines:
            self._watching = True
            try:
                async for line in lines:
                    self._take(line)
            except TimedOut:
                # A dead connection, or a kind of which nothing happens: a server whose etcd
                # notifies no progress sends no bookmarks then. Only a list tells the two apart.
                log.debug("watch was silent", kind=self.resource.kind)
                self._must_list = True
            finally:
                self._watching, self._watched_at = False, self._clock.monotonic()

    def _take(self, line: bytes) -> None:
        type_, raw = split_event(line)
        if type_ == "ERROR":
            raise status_error(500, raw)
        if type_ == "BOOKMARK":
            self._advance(self._checked(version_of(raw)))
        elif type_ in _CHANGES:
            self._apply(type_, self._decoder.one(raw))
        else:
            raise Malformed(f"a watch knows no event of type {type_!r}")
        self._figures.events[type_].inc()
        self._heard()

    def _apply(self, type_: str, obj: T | Broken) -> None:
        if isinstance(obj, Broken):
            version = self._checked(obj.version)
            self._skip(obj.key, "undecodable", obj.why)
        else:
            version = self._checked(obj.metadata.resource_version or "")
            self._change(type_, key_of(obj.metadata), obj)
        self._advance(version)

    def _change(self, type_: str, key: str, obj: T) -> None:
        if type_ != "DELETED":
            self._upsert(key, obj)
            return
        self._sink.delete(obj)
        self._complaints.pop(key, None)

    def _upsert(self, key: str, obj: T) -> bool:
        try:
            self._sink.upsert(obj)
        except ValueError as error:
            self._skip(key, "nonsense", str(error))
            return False
        if self._complaints:
            self._complaints.pop(key, None)
        return True

    def _skip(self, key: str, cause: str, why: str) -> None:
        """Count and tell an object that cannot be used; its old version must not live on."""
        self._figures.skipped[cause].inc()
        self._sink.forget(key)
        why = why[:_TOLD]
        if self._complaints.get(key) != why:
            self._complaints[key] = why
            log.warning("object skipped", kind=self.resource.kind, object=key, error=why)

    def _checked(self, version: str) -> str:
        """Return the version, unless the server's history went back, say with a restored etcd."""
        old, new = _number(self._version), _number(version)
        if old is not None and new is not None and new < old:
            raise Malformed(f"the server went back from resourceVersion {old} to {new}")
        return version

    def _advance(self, version: str) -> None:
        if version:
            self._version = version

    def _heard(self) -> None:
        self._heard_at = self._clock.monotonic()
        self._heard_something.set()
        if self._trouble:
            self._trouble = ""
            log.info("reading recovered", kind=self.resource.kind)

    def _after(self, error: KubeError) -> float:
        """Take note of a failure; return how long to wait."""
        self._figures.error(type(error).__name__)
        if isinstance(error, _OUT_OF_REACH):
            self.last_unreachable_s = self._clock.monotonic()
        if not _keeps_history(error):
            self._must_list = True
        if not isinstance(error, _OUT_OF_REACH):
            self._listing = _Listing(self._reading.page_size)
        pause_s = self._pause_s(error)
        if self._is_missing(error):
            self._miss_kind()
        else:
            self._tell(error, pause_s)
        return pause_s

    def _is_missing(self, error: KubeError) -> bool:
        if self._source.dispensable:
            return isinstance(error, (NotFound, Forbidden))
        return isinstance(error, NotFound) and bool(self._source.install)

    def _miss_kind(self) -> None:
        """Take note that the kind is not defined: then there are no objects of it either."""
        for key in list(self._sink.keys()):
            self._sink.forget(key)
        self._listed = False
        # The server has answered: this is no silence.
        self._heard_at = self._clock.monotonic()
        if not self._absent:
            self._absent = True
            self._trouble = f"the {self.resource.kind} CRD is not installed"
            say = log.info if self._source.dispensable else log.warning
            how = {"install": self._source.install} if self._source.install else {}
            say("CRD not installed", kind=self.resource.kind, **how)

    def _pause_s(self, error: KubeError) -> float:
        pause_s = self._backoff.next_s()
        asked_s = error.retry_after_s if isinstance(error, ApiError) else None
        if asked_s is None or asked_s <= pause_s:
            return pause_s
        # The server asks all clients for the same pause: the jitter is ours to add.
        jitter_s = self._rng.uniform(0, self._reading.backoff_min)
        return min(asked_s, _LONGEST_RETRY_AFTER_S) + jitter_s

    def _tell(self, error: KubeError, pause_s: float) -> None:
        """Log a failure once, not each time that it repeats itself."""
        words = f"{type(error).__name__}: {error}"
        if words == self._trouble:
            return
        self._trouble = words
        tell = log.info if isinstance(error, Gone) else log.warning
        tell("reading failed", kind=self.resource.kind, error=words, retry_s=round(pause_s, 1))


class _Figures:
    """The metrics of one reflector, bound once."""

    def __init__(self, metrics: Metrics, kind: str, reflector: Reflector[T]) -> None:
        self.lists = metrics.counter(
            "reflector_lists_total", "Complete lists that were applied.", ("kind",)
        ).labels(kind)
        self.watches = metrics.counter(
            "reflector_watches_total", "Watches that were opened.", ("kind",)
        ).labels(kind)
        events = metrics.counter(
            "reflector_events_total", "Watch events that were applied.", ("kind", "type")
        )
        self.events = {type_: events.labels(kind, type_) for type_ in _EVENT_TYPES}
        skipped = metrics.counter(
            "objects_skipped_total", "Objects that could not be used.", ("kind", "cause")
        )
        self.skipped = {cause: skipped.labels(kind, cause) for cause in _SKIP_CAUSES}
        self._errors = metrics.counter(
            "reflector_errors_total", "Lists and watches that failed.", ("kind", "cause")
        )
        self._kind = kind
        metrics.gauge(
            "cache_staleness_seconds",
            "Time since the last response of the API server about this kind.",
            ("kind",),
        ).labels(kind).set_function(reflector.staleness_s)

    def error(self, cause: str) -> None:
        self._errors.labels(self._kind, cause).inc()


def _keeps_history(error: KubeError) -> bool:
    """Tell whether the watch can be taken up again where it broke off."""
    if isinstance(error, ApiError) and error.has_cause("ResourceVersionTooLarge"):
        return False
    return isinstance(error, _PASSING)


def _number(version: str) -> int | None:
    return int(version) if version.isdecimal() else None
