# SPDX-License-Identifier: Apache-2.0
"""Versioned objects in memory, with the history of their changes; no API semantics.

Invariants:

- An object is a value: once in here it is never changed, only replaced. So reads hand out
  the object itself, versions share what did not change, and its JSON is encoded at most
  once, for every list and watch that ever sends it.
- One counter versions everything, as etcd's revision does.
- Subscribers see every change, in the order of versions, after it was made. A subscriber
  that writes does not break the order: its change waits until all subscribers have seen the
  current one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from common.kube.resources import Resource

Json = dict[str, Any]  # Any: nested API objects
_encode: Final = msgspec.json.Encoder().encode

HISTORY: Final = 20_000
FIRST_VERSION: Final = 1


class EventType(StrEnum):
    """The type of a change, spelled as in watches."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Entry:
    """One version of one object."""

    __slots__ = ("_data", "key", "obj", "version")

    def __init__(self, key: str, obj: Json, version: int) -> None:
        self.key = key
        self.obj = obj
        self.version = version
        self._data: bytes | None = None

    @property
    def data(self) -> bytes:
        """The object as JSON."""
        if self._data is None:
            self._data = _encode(self.obj)
        return self._data


class Change:
    """One change of an object; a deletion has its last state."""

    __slots__ = ("_line", "entry", "old", "resource", "type")

    def __init__(
        self, resource: Resource, type_: EventType, entry: Entry, old: Entry | None
    ) -> None:
        self.resource = resource
        self.type = type_
        self.entry = entry
        self.old = old
        self._line: bytes | None = None

    @property
    def version(self) -> int:
        return self.entry.version

    @property
    def obj(self) -> Json:
        """The object as it is now; for a deletion as it was last."""
        return self.entry.obj

    @property
    def old_obj(self) -> Json | None:
        """The object as it was before this change."""
        return self.old.obj if self.old is not None else None

    @property
    def line(self) -> bytes:
        """The line that a watch without selectors sends."""
        if self._line is None:
            self._line = event_line(self.type, self.entry.data)
        return self._line


def event_line(type_: str, data: bytes) -> bytes:
    """Return one event as a line of a watch."""
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), data)


Subscriber = Callable[[Change], None]
_EMPTY: Final[Mapping[str, Entry]] = {}


class Collection:
    """All objects of one kind."""

    def __init__(self, resource: Resource, *, history: int, version: int) -> None:
        self.resource = resource
        self.entries: dict[str, Entry] = {}
        self.compacted = version
        """The newest version whose successors are no longer all known."""
        self.newest = version
        """The version of the last change."""
        self.subscribers: list[Subscriber] = []
        self._namespaces: dict[str, dict[str, Entry]] = {}
        self._history: deque[Change] = deque()
        self._longest = history

    def within(self, namespace: str | None) -> Mapping[str, Entry]:
        """Return the objects of a namespace, or all of them, by key."""
        return self.entries if not namespace else self._namespaces.get(namespace, _EMPTY)

    def since(self, version: int) -> list[Change]:
        """Return the changes after `version`, which must not be compacted."""
        found: list[Change] = []
        for change in reversed(self._history):
            if change.version <= version:
                break
            found.append(change)
        found.reverse()
        return found

    def at(self, version: int, namespace: str | None) -> dict[str, Entry]:
        """Return the objects as they were at `version`, which must not be compacted."""
        then = dict(self.within(namespace))
        for change in reversed(self.since(version)):
            if namespace and namespace_of(change.entry.key) != namespace:
                continue
            if change.old is None:
                then.pop(change.entry.key, None)
            else:
                then[change.entry.key] = change.old
        return then

    def apply(self, change: Change) -> None:
        """Apply a change and record it."""
        key, namespace = change.entry.key, namespace_of(change.entry.key)
        if change.type is EventType.DELETED:
            del self.entries[key]
            shelf = self._namespaces[namespace]
            del shelf[key]
            if not shelf:
                del self._namespaces[namespace]
        else:
            self.entries[key] = change.entry
            self._namespaces.setdefault(namespace, {})[key] = change.entry
        self.newest = change.version
        self._history.append(change)
        if len(self._history) > self._longest:
            self.compacted = self._history.popleft().version

    def compact(self, version: int) -> None:
        """Forget changes up to and including `version`."""
        self.compacted = max(self.compacted, version)
        while self._history and self._history[0].version <= version:
            self._history.popleft()


class Storage:
    """Every object of the cluster."""

    def __init__(self, *, history: int = HISTORY) -> None:
        self.version: int = FIRST_VERSION
        self._history = history
        self._collections: dict[Resource, Collection] = {}
        self._owned: dict[str, dict[tuple[Resource, str], None]] = {}
        self._undelivered: deque[Change] = deque()
        self._delivering = False

    def collection(self, resource: Resource) -> Collection:
        """Return the collection of a kind, created on first use."""
        found = self._collections.get(resource)
        if found is None:
            found = Collection(resource, history=self._history, version=self.version)
            self._collections[resource] = found
        return found

    def resources(self) -> Iterable[Resource]:
        """Return all kinds with a collection."""
        return tuple(self._collections)

    def get(self, resource: Resource, key: str) -> Entry | None:
        return self.collection(resource).entries.get(key)

    def put(self, resource: Resource, key: str, obj: Json) -> Entry:
        """Store a version of an object, whose metadata gets the new resourceVersion."""
        collection = self.collection(resource)
        old = collection.entries.get(key)
        entry = self._stamped(key, obj)
        type_ = EventType.ADDED if old is None else EventType.MODIFIED
        self._commit(collection, Change(resource, type_, entry, old))
        return entry

    def remove(self, resource: Resource, key: str, last: Json | None = None) -> Entry:
        """Delete an object; `last` is the state for watchers, if not the stored one."""
        collection = self.collection(resource)
        old = collection.entries[key]
        entry = self._stamped(key, last if last is not None else old.obj)
        self._commit(collection, Change(resource, EventType.DELETED, entry, old))
        return entry

    def owned_by(self, uid: str) -> Iterator[tuple[Resource, Entry]]:
        """Return the objects that have this uid among their owners."""
        for resource, key in tuple(self._owned.get(uid, ())):
            entry = self.get(resource, key)
            if entry is not None:
                yield resource, entry

    def subscribe(
        self, resource: Resource, subscriber: Subscriber, *, replay: bool = False
    ) -> Callable[[], None]:
        """Call `subscriber` with every change from now on; return how to unsubscribe."""
        collection = self.collection(resource)
        if replay:
            for entry in tuple(collection.entries.values()):
                subscriber(Change(resource, EventType.ADDED, entry, None))
        collection.subscribers = [*collection.subscribers, subscriber]

        def unsubscribe() -> None:
            collection.subscribers = [s for s in collection.subscribers if s is not subscriber]

        return unsubscribe

    def compact(self, version: int | None = None) -> None:
        """Forget history up to `version`, by default all of it."""
        for collection in self._collections.values():
            collection.compact(self.version if version is None else version)

    def drop(self, resource: Resource) -> None:
        """Forget a kind whose objects are gone, with its subscribers."""
        self._collections.pop(resource, None)

    def _stamped(self, key: str, obj: Json) -> Entry:
        self.version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.version)}
        # The type always comes first, so that lists can leave it out of the encoded bytes.
        typed = {"kind": obj["kind"], "apiVersion": obj["apiVersion"]}
        return Entry(key, {**typed, **obj, "metadata": metadata}, self.version)

    def _commit(self, collection: Collection, change: Change) -> None:
        collection.apply(change)
        self._index(change)
        if not collection.subscribers:
            return
        self._undelivered.append(change)
        if not self._delivering:
            self._deliver()

    def _deliver(self) -> None:
        self._delivering = True
        try:
            while self._undelivered:
                change = self._undelivered.popleft()
                for subscriber in self.collection(change.resource).subscribers:
                    subscriber(change)
        finally:
            self._delivering = False

    def _index(self, change: Change) -> None:
        before = owners_of(change.old_obj) if change.old is not None else ()
        after = () if change.type is EventType.DELETED else owners_of(change.obj)
        if before == after:
            return
        place = (change.resource, change.entry.key)
        for uid in before:
            owned = self._owned.get(uid, {})
            owned.pop(place, None)
            if not owned:
                self._owned.pop(uid, None)
        for uid in after:
            self._owned.setdefault(uid, {})[place] = None


def key_of(namespace: str | None, name: str) -> str:
    """Return the key of an object; keys sort as in etcd."""
    return f"{namespace}/{name}" if namespace else name


def namespace_of(key: str) -> str:
    """Return the namespace in a key; the empty text for cluster-scoped objects."""
    return key.partition("/")[0] if "/" in key else ""


def owners_of(obj: Json | None) -> tuple[str, ...]:
    """Return the uids of an object's owners."""
    references = (obj or {}).get("metadata", {}).get("ownerReferences")
    return tuple(reference.get("uid", "") for reference in references) if references else ()
