# SPDX-License-Identifier: Apache-2.0
"""Garbage collection by owner references.

Follows pkg/controller/garbagecollector of v1.36: an object whose owners are all gone is
deleted in the background; one whose owners are only partly gone loses the dead references;
an owner deleted in the foreground waits for the dependents that block it; an orphaning
deletion releases them first. An owner of a kind that is not served counts as alive.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from common.clock import Clock
from common.kube.resources import Resource
from simulator.api.deletion import DeleteOptions
from simulator.api.kind import Kind
from simulator.api.metadata import FOREGROUND, ORPHAN
from simulator.api.storage import Change, Entry, EventType, Json, key_of, namespace_of
from simulator.api.store import Store
from simulator.api.sync_queue import SyncQueue


class Ref(NamedTuple):
    """The key of an object."""

    resource: Resource
    key: str


class _Owner(Enum):
    ALIVE = "alive"
    WAITING = "waiting for its dependents"
    GONE = "gone"


class GarbageCollector:
    """Watches all kinds and deletes objects whose owners are gone."""

    def __init__(self, store: Store, *, clock: Clock) -> None:
        self._store = store
        self._queue: SyncQueue[Ref] = SyncQueue("garbage collector", clock)
        self._stops: dict[Resource, Callable[[], None]] = {}
        store.kinds.listen(added=self._follow, removed=self._leave)

    async def run(self) -> None:
        """Collect forever."""
        await self._queue.run(self._look_at)

    def collect(self) -> None:
        """Collect everything that can be collected now."""
        self._queue.work_off(self._look_at)

    def _follow(self, kind: Kind) -> None:
        resource = kind.storage
        if kind.strategy.collected and resource not in self._stops:
            storage = self._store.storage
            self._stops[resource] = storage.subscribe(resource, self._on_change, replay=True)

    def _leave(self, kind: Kind) -> None:
        stop = self._stops.pop(kind.storage, None)
        if stop is not None:
            stop()

    def _on_change(self, change: Change) -> None:
        metadata = change.obj["metadata"]
        here = Ref(change.resource, change.entry.key)
        if change.type is EventType.DELETED:
            for resource, entry in self._store.storage.owned_by(metadata["uid"]):
                self._queue.add(Ref(resource, entry.key))
            self._wake_owners(change.obj)
        elif "deletionTimestamp" in metadata:
            if metadata.get("finalizers"):
                self._queue.add(here)
        elif metadata.get("ownerReferences") and _owners_changed(change):
            self._queue.add(here)

    def _wake_owners(self, obj: Json) -> None:
        """Check again owners that may have waited for this object."""
        for reference in obj["metadata"].get("ownerReferences") or ():
            ref = self._ref_of(reference, obj["metadata"].get("namespace"))
            if ref is not None:
                self._queue.add(ref)

    def _look_at(self, ref: Ref) -> None:
        entry = self._store.storage.get(ref.resource, ref.key)
        if entry is None:
            return
        metadata = entry.obj["metadata"]
        finalizers = metadata.get("finalizers") or ()
        if "deletionTimestamp" in metadata:
            if ORPHAN in finalizers:
                self._orphan(ref, entry)
            elif FOREGROUND in finalizers:
                self._end_in_foreground(ref, entry)
        elif metadata.get("ownerReferences"):
            self._judge(ref, entry)

    def _judge(self, ref: Ref, entry: Entry) -> None:
        references = entry.obj["metadata"]["ownerReferences"]
        namespace = namespace_of(ref.key)
        states = [(reference, self._state_of(reference, namespace)) for reference in references]
        alive = [reference for reference, state in states if state is _Owner.ALIVE]
        if len(alive) == len(states):
            return
        if alive:
            self._change(ref, lambda metadata: {**metadata, "ownerReferences": alive})
            return
        waited_for = any(state is _Owner.WAITING for _, state in states)
        self._delete(ref, entry, "Foreground" if waited_for else None)

    def _state_of(self, reference: Json, namespace: str) -> _Owner:
        ref = self._ref_of(reference, namespace)
        if ref is None:
            return _Owner.ALIVE
        entry = self._store.storage.get(*ref)
        if entry is None or entry.obj["metadata"]["uid"] != reference["uid"]:
            return _Owner.GONE
        metadata = entry.obj["metadata"]
        waiting = "deletionTimestamp" in metadata and FOREGROUND in metadata.get("finalizers", ())
        return _Owner.WAITING if waiting else _Owner.ALIVE

    def _ref_of(self, reference: Json, namespace: str | None) -> Ref | None:
        kind = self._store.kinds.find(reference["apiVersion"], reference["kind"])
        if kind is None or (kind.resource.namespaced and not namespace):
            return None
        place = namespace if kind.resource.namespaced else None
        return Ref(kind.storage, key_of(place, reference["name"]))

    def _end_in_foreground(self, ref: Ref, entry: Entry) -> None:
        uid = entry.obj["metadata"]["uid"]
        blocked = False
        for resource, dependent in self._store.storage.owned_by(uid):
            self._queue.add(Ref(resource, dependent.key))
            references = dependent.obj["metadata"]["ownerReferences"]
            blocked |= any(r["uid"] == uid and r.get("blockOwnerDeletion") for r in references)
        if not blocked:
            self._change(ref, lambda metadata: _without_finalizer(metadata, FOREGROUND))

    def _orphan(self, ref: Ref, entry: Entry) -> None:
        uid = entry.obj["metadata"]["uid"]
        for resource, dependent in self._store.storage.owned_by(uid):
            self._change(Ref(resource, dependent.key), lambda m: _without_owner(m, uid))
        self._change(ref, lambda metadata: _without_finalizer(metadata, ORPHAN))

    def _delete(self, ref: Ref, entry: Entry, propagation: str | None) -> None:
        metadata = entry.obj["metadata"]
        finalizers = metadata.get("finalizers") or ()
        noted = ORPHAN in finalizers or FOREGROUND in finalizers
        self._store.delete(
            ref.resource,
            metadata["name"],
            namespace=metadata.get("namespace"),
            options=DeleteOptions(
                uid=metadata["uid"],
                propagation=None if noted else propagation or "Background",
            ),
        )

    def _change(self, ref: Ref, change: Callable[[Json], Json]) -> None:
        entry = self._store.storage.get(*ref)
        if entry is not None:
            metadata = entry.obj["metadata"]
            self._store.modify(
                ref.resource,
                metadata["name"],
                lambda obj: {**obj, "metadata": change(obj["metadata"])},
                namespace=metadata.get("namespace"),
            )


def _owners_changed(change: Change) -> bool:
    old = change.old_obj
    before = old["metadata"].get("ownerReferences") if old is not None else None
    return bool(change.obj["metadata"]["ownerReferences"] != before)


def _without_finalizer(metadata: Json, finalizer: str) -> Json:
    left = [each for each in metadata.get("finalizers") or () if each != finalizer]
    return {**metadata, "finalizers": left}


def _without_owner(metadata: Json, uid: str) -> Json:
    left = [each for each in metadata.get("ownerReferences") or () if each["uid"] != uid]
    return {**metadata, "ownerReferences": left}
