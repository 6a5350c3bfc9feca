# SPDX-License-Identifier: Apache-2.0
"""Lists: what they select, which version they show, and how they are paginated.

All pages of a list show the version of the first one. A continue token contains that version
and the last key, in the format of the real server, so a token is valid across restarts but
not after compaction. The meaning of `resourceVersion` follows the table in
apiserver/pkg/storage (v0.36), including that `0` ignores the limit.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from common.cluster import selectors
from common.cluster.selectors import FieldSelector, SelectorError
from simulator.api.errors import (
    BadRequest,
    Cause,
    Expired,
    InternalError,
    TimedOut,
    invalid_options,
    not_allowed,
    unknown_value,
)
from simulator.api.kind import Kind
from simulator.api.storage import Entry, Json, Storage

Matcher = Callable[[Json], bool]

_TOKEN_VERSION: Final = "meta.k8s.io/v1"
_TOO_OLD: Final = "The resourceVersion for the provided list is too old."
_TOKEN_TOO_OLD: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can "
    "start a new list without the continue parameter, or use the continue token in this response "
    "to retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)
_REMEMBERED: Final = 16


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


_decode_token: Final = msgspec.json.Decoder(_Token).decode


@dataclass(frozen=True, slots=True)
class PageOptions:
    """How a list is paginated."""

    limit: int = 0
    token: str = ""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a watch is served."""

    timeout_s: int | None = None
    bookmarks: bool = False
    initial_events: bool | None = None


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The parameters of a list or a watch."""

    page: PageOptions = PageOptions()
    version: str = ""
    match: str = ""
    labels: str = ""
    fields: str = ""
    watch: bool = False
    stream: StreamOptions = StreamOptions()

    @classmethod
    def parse(cls, params: Mapping[str, str]) -> ListOptions:
        """Parse the parameters of a request; reject invalid combinations."""
        options = cls(
            page=PageOptions(
                limit=_integer(params.get("limit", "")) or 0, token=params.get("continue", "")
            ),
            version=params.get("resourceVersion", ""),
            match=params.get("resourceVersionMatch", ""),
            labels=params.get("labelSelector", ""),
            fields=params.get("fieldSelector", ""),
            watch=_flag(params.get("watch", "")) or False,
            stream=StreamOptions(
                timeout_s=_integer(params.get("timeoutSeconds", "")),
                bookmarks=_flag(params.get("allowWatchBookmarks", "")) or False,
                initial_events=_flag(params.get("sendInitialEvents", "")),
            ),
        )
        cause = _nonsense(options)
        if cause is not None:
            raise invalid_options("ListOptions", cause)
        return options


def _integer(text: str) -> int | None:
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        message = f'strconv.ParseInt: parsing "{text}": invalid syntax'
        raise BadRequest(message) from None


def _flag(text: str) -> bool | None:
    return None if not text else text.lower() not in ("false", "0")


def _nonsense(options: ListOptions) -> Cause | None:
    """Return what is wrong (apimachinery/pkg/apis/meta/internalversion/validation)."""
    field = "resourceVersionMatch"
    if options.watch and options.stream.initial_events is not None:
        if options.match != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            return not_allowed(field, why)
        return None
    if options.stream.initial_events is not None:
        return not_allowed("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if not options.match:
        return None
    if options.watch:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        return not_allowed(field, why)
    if not options.version:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        return not_allowed(field, why)
    if options.match not in ("Exact", "NotOlderThan"):
        return unknown_value(field, options.match, ("Exact", "NotOlderThan", ""))
    if options.match == "Exact" and options.version == "0":
        why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        return not_allowed(field, why)
    return None


def matcher_of(kind: Kind, options: ListOptions) -> Matcher | None:
    """Compile the selectors of a request; None selects everything."""
    try:
        labels = selectors.parse(options.labels) if options.labels else None
        fields = selectors.parse_fields(options.fields) if options.fields else None
    except SelectorError as error:
        raise BadRequest(str(error)) from None
    by_field = _field_matcher(kind, fields) if fields is not None else None
    if labels is None or not labels.requirements:
        return by_field
    chosen = labels

    def by_label(obj: Json) -> bool:
        return chosen.matches(obj["metadata"].get("labels") or {})

    if by_field is None:
        return by_label
    other = by_field
    return lambda obj: by_label(obj) and other(obj)


def _field_matcher(kind: Kind, fields: FieldSelector) -> Matcher | None:
    readers = []
    for requirement in fields.requirements:
        reader = kind.strategy.fields.get(requirement.field)
        if reader is None:
            raise BadRequest(kind.strategy.field_message.format(requirement.field))
        readers.append((reader, requirement.value, requirement.negated))
    if not readers:
        return None
    return lambda obj: all((read(obj) == value) != negated for read, value, negated in readers)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list."""

    entries: Sequence[Entry]
    version: int
    token: str = ""
    remaining: int | None = None


class Lister:
    """Serves lists; caches a few versions so that following pages are not rebuilt."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._moments: OrderedDict[tuple[Kind, str, int], list[Entry]] = OrderedDict()

    def page(self, kind: Kind, namespace: str | None, options: ListOptions) -> Page:
        """Return the requested page."""
        matcher = matcher_of(kind, options)
        version, start = self._begin(kind, options)
        limit = 0 if options.version == "0" else max(0, options.page.limit)
        entries = self._moment(kind, namespace, version, keep=limit > 0)
        base = f"{namespace}/" if namespace else ""
        first = bisect_left(entries, base + start, key=lambda entry: entry.key) if start else 0
        if not limit and matcher is None:
            return Page(entries[first:], version)
        return _cut(entries, first, limit, matcher, version, base)

    def check_version(self, text: str) -> None:
        """Reject a read of a version that does not exist yet."""
        version = version_number(text)
        if version > self._storage.version:
            raise _too_large(version, self._storage.version)

    def _begin(self, kind: Kind, options: ListOptions) -> tuple[int, str]:
        """Return the requested version, and the key to start at."""
        now = self._storage.version
        compacted = self._storage.collection(kind.storage).compacted
        if options.page.token:
            return self._continued(options, compacted)
        if options.version in ("", "0"):
            return now, ""
        wanted = _version_of_list(options.version)
        if wanted > now:
            raise _too_large(wanted, now)
        if options.match == "NotOlderThan" or not (options.match or options.page.limit):
            return now, ""
        if wanted < compacted:
            raise Expired(_TOO_OLD)
        return wanted, ""

    def _continued(self, options: ListOptions, compacted: int) -> tuple[int, str]:
        if options.version not in ("", "0"):
            raise BadRequest("specifying resource version is not allowed when using continue")
        token = _read_token(options.page.token)
        if token.rv == -1:
            return self._storage.version, token.start
        if token.rv < compacted:
            again = _write_token(-1, token.start)
            raise Expired(_TOKEN_TOO_OLD, metadata={"continue": again})
        if token.rv > self._storage.version:
            raise _too_large(token.rv, self._storage.version)
        return token.rv, token.start

    def _moment(
        self, kind: Kind, namespace: str | None, version: int, *, keep: bool
    ) -> list[Entry]:
        """Return the objects at a version, by key."""
        place = (kind, namespace or "", version)
        found = self._moments.get(place)
        if found is None:
            found = self._sorted(kind, namespace, version)
            if keep:
                self._moments[place] = found
                if len(self._moments) > _REMEMBERED:
                    self._moments.popitem(last=False)
        return found

    def _sorted(self, kind: Kind, namespace: str | None, version: int) -> list[Entry]:
        collection = self._storage.collection(kind.storage)
        current = version == self._storage.version
        entries = collection.within(namespace) if current else collection.at(version, namespace)
        return sorted(entries.values(), key=lambda entry: entry.key)


def _cut(
    entries: list[Entry],
    first: int,
    limit: int,
    matcher: Matcher | None,
    version: int,
    base: str,
) -> Page:
    if matcher is None:
        page, rest = entries[first : first + limit], len(entries) - first - limit
        if rest <= 0:
            return Page(page, version)
        return Page(page, version, _write_token(version, _after(page[-1], base)), rest)
    found: list[Entry] = []
    for entry in entries[first:]:
        if matcher(entry.obj):
            if limit and len(found) == limit:
                return Page(found, version, _write_token(version, _after(found[-1], base)))
            found.append(entry)
    return Page(found, version)


def _after(entry: Entry, base: str) -> str:
    return entry.key[len(base) :] + "\0"


def version_number(text: str) -> int:
    """Return a resourceVersion as a number; an invalid one is a 500, as on the real server."""
    if not text.isdecimal():
        message = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": '
        raise InternalError(f"{message}invalid syntax")
    return int(text)


def _version_of_list(text: str) -> int:
    try:
        return version_number(text)
    except InternalError as error:
        # Only here the real server returns a 400.
        raise BadRequest(f"invalid resource version: {error.message}") from None


def _too_large(wanted: int, current: int) -> TimedOut:
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    cause = Cause("ResourceVersionTooLarge", "Too large resource version")
    return TimedOut(message, details={"causes": [cause.json()]}, retry_after_s=1)


def _write_token(version: int, start: str) -> str:
    data = msgspec.json.encode(_Token(_TOKEN_VERSION, version, start))
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _read_token(text: str) -> _Token:
    try:
        token = _decode_token(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        raise BadRequest("invalid continue token: continue key is not valid") from None
    start = token.start.removeprefix("/")
    if token.v != _TOKEN_VERSION or ".." in start.split("/"):
        raise BadRequest("invalid continue token: continue key is not valid")
    return _Token(token.v, token.rv, start)
