# SPDX-License-Identifier: Apache-2.0
"""Events, which the API serves twice: as `v1` and as `events.k8s.io/v1`.

They are stored in the first form. What the second one requires (its fields are the ones that
Evenkeel writes) follows pkg/apis/core/validation/events.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from common.kube.resources import Resource
from simulator.api import names
from simulator.api.errors import Cause, required, wrong
from simulator.api.kind import NAME_FIELDS, Fields, Strategy
from simulator.api.kinds.cluster import check_micro_time
from simulator.api.kinds.event_shapes import Event
from simulator.api.storage import Json

CORE_EVENTS: Final = Resource("", "v1", "events", "Event", True)

_TO_NEW: Final[Mapping[str, str]] = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_TO_OLD: Final[Mapping[str, str]] = {new: old for old, new in _TO_NEW.items()}
_TO_REPORTER: Final = {"reportingComponent": "reportingController"}
_MISPLACED: Final = "does not match event.namespace"
_TYPES: Final = ("Normal", "Warning")


def to_new(event: Json) -> Json:
    """Return an event as `events.k8s.io/v1` shows it."""
    renamed = {_TO_NEW.get(key, key): value for key, value in event.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}


def to_old(event: Json) -> Json:
    """Return an event in the stored form."""
    renamed = {_TO_OLD.get(key, key): value for key, value in event.items()}
    return {**renamed, "apiVersion": "v1"}


def _involved(key: str) -> Any:
    return lambda event: str((event.get("involvedObject") or {}).get(key, ""))


def _plain(key: str) -> Any:
    return lambda event: str(event.get(key) or "")


_SHARED: Final[Fields] = {**NAME_FIELDS, **{k: _plain(k) for k in ("reason", "type")}}
_INVOLVED: Final = (
    "kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath",
)  # fmt: skip


_CORE_FIELDS: Final[Fields] = {
    **_SHARED,
    "reportingComponent": _plain("reportingComponent"),
    **{f"involvedObject.{key}": _involved(key) for key in _INVOLVED},
}


class CoreEventStrategy(Strategy):
    """An event as `v1` accepts it: with few checks."""

    create_on_update = True
    collected = False
    shape = Event
    reporter: ClassVar[str] = "reportingComponent"
    field_message = "field label not supported: {}"
    fields = _CORE_FIELDS

    def default(self, obj: Json) -> None:
        obj.setdefault("involvedObject", {})
        if obj.get("eventTime") is not None:
            check_micro_time(obj["eventTime"], "Event")
        obj.setdefault("eventTime", None)
        obj.setdefault("source", {})
        for key in ("firstTimestamp", "lastTimestamp"):
            obj.setdefault(key, None)
        for key in ("reportingComponent", "reportingInstance"):
            obj.setdefault(key, "")

    def validate(self, obj: Json) -> Iterator[Cause]:
        yield from _event_causes(obj, self.reporter)


_NEW_FIELDS: Final[Fields] = {
    **_SHARED,
    "reportingController": _plain("reportingComponent"),
    **{f"regarding.{key}": _involved(key) for key in _INVOLVED},
}


class NewEventStrategy(CoreEventStrategy):
    """An event as `events.k8s.io/v1` accepts it: complete, and immutable except its series."""

    reporter = "reportingController"
    fields = _NEW_FIELDS

    def validate(self, obj: Json) -> Iterator[Cause]:
        yield from super().validate(obj)
        yield from _series_causes(obj.get("series"))
        if obj.get("eventTime") is None:
            yield required("eventTime")
        if obj.get("type") not in _TYPES:
            yield wrong("type", "", f"has invalid value: {obj.get('type') or ''}")
        for key in ("firstTimestamp", "lastTimestamp", "count", "source"):
            if obj.get(key):
                yield wrong(key, "", "needs to be unset")

    def validate_update(self, obj: Json, old: Json) -> Iterator[Cause]:
        yield from super().validate(obj)
        if obj.get("series") != old.get("series"):
            yield from _series_causes(obj.get("series"))
        for key in sorted((obj.keys() | old.keys()) - {"series", "metadata"}):
            if obj.get(key) != old.get(key):
                yield wrong(_TO_REPORTER.get(key, key), obj.get(key), "field is immutable")


def _event_causes(event: Json, reporter: str) -> Iterator[Cause]:
    namespace = event["metadata"].get("namespace")
    involved = (event.get("involvedObject") or {}).get("namespace", "")
    if event.get("eventTime") is None:
        if (involved or "default") != namespace:
            yield wrong("involvedObject.namespace", involved, _MISPLACED)
        return
    # An event about a cluster-scoped object belongs in `default`.
    if not involved and namespace not in ("default", "kube-system"):
        yield wrong("involvedObject.namespace", involved, _MISPLACED)
    yield from _reporter_causes(event.get("reportingComponent") or "", reporter)
    for key in ("reportingInstance", "action", "reason"):
        if not event.get(key):
            yield required(key)
        elif len(event[key].encode()) > 128:
            yield wrong(key, "", "can have at most 128 characters")
    if len((event.get("message") or "").encode()) > 1024:
        yield wrong("message", "", "can have at most 1024 characters")


def _reporter_causes(controller: str, path: str) -> Iterator[Cause]:
    if not controller:
        yield required(path)
    for problem in names.label_key(controller):
        yield wrong(path, controller, problem)


def _series_causes(series: Json | None) -> Iterator[Cause]:
    if series is None:
        return
    if series.get("count", 0) < 2:
        yield wrong("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")
