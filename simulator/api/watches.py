# SPDX-License-Identifier: Apache-2.0
"""Watches: every change after a version, in order, each exactly once.

Storage adds to a watch while a change is made, and the connection that serves the watch takes
from it. It starts with the current state (as additions) or with the changes since a version;
from then on it misses nothing, or it ends. What a change means to a watch with selectors
follows apiserver/pkg/storage/cacher: an object that no longer matches is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from simulator.api.errors import Expired, Refusal
from simulator.api.kind import Kind
from simulator.api.kubectl.presentation import Presenter
from simulator.api.lists import ListOptions, Matcher, matcher_of, version_number
from simulator.api.storage import (
    Change,
    Collection,
    Entry,
    EventType,
    Json,
    Storage,
    event_line,
    namespace_of,
)

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_TOO_OLD: Final = "The resourceVersion for the provided watch is too old."
_LONGEST_BACKLOG: Final = 100_000


class Watch:
    """One client's view of the changes of a kind."""

    def __init__(
        self,
        storage: Storage,
        kind: Kind,
        namespace: str | None,
        options: ListOptions,
        presenter: Presenter,
    ) -> None:
        self.resource = kind.resource.plural
        self.ended = False
        self._storage = storage
        self.kind = kind
        self._namespace = namespace
        self._matcher: Matcher | None = matcher_of(kind, options)
        self._presenter = presenter
        self._backlog: list[bytes] = []
        self._wake = asyncio.Event()
        self._seen = 0
        self._told = 0
        self._unsubscribe: Callable[[], None] = lambda: None
        self._begin(options)

    def take(self) -> bytes:
        """Return and remove the pending data."""
        data = b"".join(self._backlog)
        self._backlog.clear()
        self._wake.clear()
        return data

    async def wait(self) -> None:
        """Return when there is something to send or the watch has ended."""
        if not self._backlog and not self.ended:
            await self._wake.wait()

    def bookmark(self) -> None:
        """Send a bookmark, unless the client has that version, as the real server does."""
        if self._storage.collection(self.kind.storage).newest > self._told:
            self._bookmark({})

    def _bookmark(self, annotations: Json) -> None:
        self._told = self._storage.version
        metadata: Json = {"resourceVersion": str(self._told)}
        if annotations:
            metadata["annotations"] = annotations
        resource = self.kind.resource
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        self._push(event_line("BOOKMARK", self._presenter.bookmark(obj)))

    def end(self) -> None:
        """End the watch once everything has been sent."""
        self.ended = True
        self._unsubscribe()
        self._wake.set()

    def _begin(self, options: ListOptions) -> None:
        collection = self._storage.collection(self.kind.storage)
        wanted = version_number(options.version) if options.version else 0
        if options.stream.initial_events or (options.stream.initial_events is None and not wanted):
            self._add_current(collection)
            if options.stream.initial_events and options.stream.bookmarks:
                self._bookmark({INITIAL_EVENTS_END: "true"})
        elif wanted:
            if wanted < collection.compacted:
                self._fail(Expired(_TOO_OLD))
                return
            self._seen = wanted
            for change in collection.since(wanted):
                self._on_change(change)
        self._seen = max(wanted, self._storage.version)
        self._told = max(wanted, self._told)
        self._unsubscribe = self._storage.subscribe(self.kind.storage, self._on_change)

    def _add_current(self, collection: Collection) -> None:
        entries = collection.within(self._namespace).values()
        for entry in sorted(entries, key=lambda each: each.key):
            if self._matcher is None or self._matcher(entry.obj):
                self._say(EventType.ADDED, entry)

    def _fail(self, error: Refusal) -> None:
        self._push(event_line("ERROR", self._presenter.error(error)))
        self.ended = True

    def _on_change(self, change: Change) -> None:
        if change.version <= self._seen:
            return
        if self._namespace and namespace_of(change.entry.key) != self._namespace:
            return
        if self._matcher is None:
            self._told = change.version
            if self._presenter.plain:
                self._push(change.line)
            else:
                self._say(change.type, change.entry)
            return
        self._say_selected(change, self._matcher)

    def _say_selected(self, change: Change, matches: Matcher) -> None:
        before = change.old is not None and matches(change.old.obj)
        after = change.type is not EventType.DELETED and matches(change.entry.obj)
        if after:
            self._say(EventType.MODIFIED if before else EventType.ADDED, change.entry)
        elif before and change.type is EventType.DELETED:
            self._say(EventType.DELETED, change.entry)
        elif before and change.old is not None:
            self._say(EventType.DELETED, _at_version(change.old, change.version))

    def _say(self, type_: EventType, entry: Entry) -> None:
        self._told = max(self._told, entry.version)
        self._push(event_line(type_, self._presenter.item(entry)))

    def _push(self, line: bytes) -> None:
        self._backlog.append(line)
        self._wake.set()
        if len(self._backlog) > _LONGEST_BACKLOG:
            # A client that does not read would use more and more memory; it can resume.
            self.end()


def _at_version(entry: Entry, version: int) -> Entry:
    metadata = {**entry.obj["metadata"], "resourceVersion": str(version)}
    return Entry(entry.key, {**entry.obj, "metadata": metadata}, version)
