# SPDX-License-Identifier: Apache-2.0
"""Deletion of a namespace: first everything in it, then the namespace itself.

Follows pkg/controller/namespace of v1.36, without its waits.
"""

from __future__ import annotations

from collections.abc import Callable

from common.clock import Clock
from common.kube.resources import NAMESPACES, Resource
from simulator.api.deletion import DeleteOptions
from simulator.api.kind import Kind
from simulator.api.storage import Change, EventType, namespace_of
from simulator.api.store import Store
from simulator.api.sync_queue import SyncQueue


class NamespaceController:
    """Empties namespaces that are being deleted."""

    def __init__(self, store: Store, *, clock: Clock) -> None:
        self._store = store
        self._queue: SyncQueue[str] = SyncQueue("namespace controller", clock)
        self._ending: set[str] = set()
        self._stops: dict[Resource, Callable[[], None]] = {}
        store.subscribe(NAMESPACES, self._on_namespace, replay=True)
        store.kinds.listen(added=self._follow, removed=self._leave)

    async def run(self) -> None:
        """Empty namespaces forever."""
        await self._queue.run(self._empty)

    def work_off(self) -> None:
        """Delete what can be deleted now."""
        self._queue.work_off(self._empty)

    def _follow(self, kind: Kind) -> None:
        resource = kind.storage
        if resource.namespaced and resource not in self._stops:
            self._stops[resource] = self._store.storage.subscribe(resource, self._on_object)

    def _leave(self, kind: Kind) -> None:
        stop = self._stops.pop(kind.storage, None)
        if stop is not None:
            stop()

    def _on_namespace(self, change: Change) -> None:
        metadata = change.obj["metadata"]
        if change.type is EventType.DELETED:
            self._ending.discard(metadata["name"])
        elif "deletionTimestamp" in metadata and metadata["name"] not in self._ending:
            self._ending.add(metadata["name"])
            self._queue.add(metadata["name"])

    def _on_object(self, change: Change) -> None:
        if self._ending and change.type is EventType.DELETED:
            namespace = namespace_of(change.entry.key)
            if namespace in self._ending:
                self._queue.add(namespace)

    def _empty(self, namespace: str) -> None:
        if self._store.find(NAMESPACES, namespace) is None:
            return
        for resource in tuple(self._stops):
            self._delete_all(resource, namespace)
        collections = (self._store.storage.collection(each) for each in self._stops)
        if not any(each.within(namespace) for each in collections):
            self._finish(namespace)

    def _delete_all(self, resource: Resource, namespace: str) -> None:
        for entry in tuple(self._store.storage.collection(resource).within(namespace).values()):
            metadata = entry.obj["metadata"]
            if "deletionTimestamp" not in metadata:
                options = DeleteOptions(propagation="Background")
                self._store.delete(resource, metadata["name"], namespace=namespace, options=options)

    def _finish(self, namespace: str) -> None:
        entry = self._store.storage.get(NAMESPACES, namespace)
        if entry is None or entry.obj["metadata"].get("finalizers"):
            return
        left = [each for each in entry.obj["spec"]["finalizers"] if each != "kubernetes"]
        obj = {**entry.obj, "spec": {**entry.obj["spec"], "finalizers": left}}
        if left:
            self._store.storage.put(NAMESPACES, namespace, obj)
        else:
            self._store.storage.remove(NAMESPACES, namespace, obj)
