# SPDX-License-Identifier: Apache-2.0
"""Pages of a list and lines of a watch, and the objects inside.

Envelope and content are decoded apart, so that an object which is not what its type
promises spoils only itself. A page is first tried in one go, which is what nearly always
works; one by one is the fallback.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from common.kube.errors import Malformed
from common.null_json import UNDECODABLE, JsonDecoder


class Metadata(Protocol):
    """What every object says about itself."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str | None: ...
    @property
    def resource_version(self) -> str | None: ...


class WireObject(Protocol):
    """A struct that a reflector can carry."""

    @property
    def metadata(self) -> Metadata: ...


T = TypeVar("T", bound=WireObject)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str | None = None
    token: str | None = msgspec.field(default=None, name="continue")


# `items` has no default: an answer without it is no list, and must not empty a cache.
class _Page(msgspec.Struct, Generic[T]):
    metadata: _ListMeta
    items: list[T] | None


class _RawPage(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _AnyMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str | None = None
    resource_version: str = ""


class _AnyObject(msgspec.Struct):
    metadata: _AnyMeta


_RAW_PAGE: Final = msgspec.json.Decoder(_RawPage)
_EVENT: Final = msgspec.json.Decoder(_Event)
_ANY_OBJECT: Final = JsonDecoder(_AnyObject)


@dataclass(frozen=True, slots=True)
class Broken:
    """An object that could not be decoded; key and version are empty if unreadable too."""

    key: str
    version: str
    why: str


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list; `token` leads to the next and is empty on the last."""

    version: str
    token: str
    objects: list[T]
    broken: list[Broken]


def key_of(metadata: Metadata) -> str:
    """Return `namespace/name`, or `name` where there is no namespace."""
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def split_event(line: bytes) -> tuple[str, msgspec.Raw]:
    """Return type and content of one line of a watch."""
    try:
        event = _EVENT.decode(line)
    except UNDECODABLE as error:
        raise Malformed(f"a line of a watch is not an event: {error}") from error
    return event.type, event.object


def version_of(raw: msgspec.Raw) -> str:
    """Return the resourceVersion of any object, empty if there is none."""
    try:
        return _ANY_OBJECT.decode(raw).metadata.resource_version
    except UNDECODABLE:
        return ""


class ObjectDecoder(Generic[T]):
    """Decodes objects of one type, alone or by the page."""

    def __init__(self, type_: type[T]) -> None:
        self._one = JsonDecoder(type_)
        # Any: mypy takes no variable as a type argument
        whole: Any = _Page[type_]  # type: ignore[valid-type]
        self._whole: msgspec.json.Decoder[_Page[T]] = msgspec.json.Decoder(whole)

    def page(self, body: bytes) -> Page[T]:
        """Return a page; objects that cannot be decoded are set apart."""
        try:
            page = self._whole.decode(body)
        except UNDECODABLE:
            return self._page_one_by_one(body)
        meta = page.metadata
        return Page(meta.resource_version or "", meta.token or "", page.items or [], [])

    def one(self, raw: msgspec.Raw) -> T | Broken:
        """Return an object, or what can be said about it if it makes no sense."""
        try:
            return self._one.decode(raw)
        except UNDECODABLE as error:
            return _broken(raw, error)

    def _page_one_by_one(self, body: bytes) -> Page[T]:
        try:
            page = _RAW_PAGE.decode(body)
        except UNDECODABLE as error:
            raise Malformed(f"the answer is not a list: {error}") from error
        found = [self.one(raw) for raw in page.items or ()]
        return Page(
            page.metadata.resource_version or "",
            page.metadata.token or "",
            [one for one in found if not isinstance(one, Broken)],
            [one for one in found if isinstance(one, Broken)],
        )


def _broken(raw: msgspec.Raw, error: Exception) -> Broken:
    try:
        metadata = _ANY_OBJECT.decode(raw).metadata
    except UNDECODABLE:
        return Broken("", "", str(error))
    return Broken(key_of(metadata), metadata.resource_version, str(error))
