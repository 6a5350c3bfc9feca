# SPDX-License-Identifier: Apache-2.0
"""CustomResourceDefinitions: creating one adds routes, deleting it removes them.

Both happen within the write that causes them, so that the next request already sees it;
the real server needs a moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.kube.resources import Resource
from simulator.api import deletion
from simulator.api.catalog import DEFINITIONS
from simulator.api.deletion import DeleteOptions
from simulator.api.kind import Kind
from simulator.api.kinds.definitions import CLEANUP, kind_of
from simulator.api.metadata import timestamp
from simulator.api.objects import copied
from simulator.api.storage import Change, EventType, Json

if TYPE_CHECKING:
    from simulator.api.registry import Registry

_ACCEPTED: Final = ("plural", "singular", "shortNames", "kind", "listKind", "categories")


class Definitions:
    """Keeps the served kinds in step with the definitions."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._made: dict[str, Resource] = {}
        registry.storage.subscribe(DEFINITIONS, self._on_change)

    def _on_change(self, change: Change) -> None:
        name = change.obj["metadata"]["name"]
        if change.type is EventType.DELETED:
            self._forget(name)
        elif "deletionTimestamp" in change.obj["metadata"]:
            self._clean_up(name)
        elif change.old_obj is None or change.old_obj["spec"] != change.obj["spec"]:
            self._serve(name, change.obj)

    def _serve(self, name: str, definition: Json) -> None:
        kind = kind_of(definition)
        before = self._made.get(name)
        if before is not None and (kind is None or before != kind.resource):
            self._forget(name)
        if kind is not None:
            self._registry.storage.collection(kind.resource)
            self._registry.kinds.add(kind)
            self._made[name] = kind.resource
        if not definition["status"].get("conditions"):
            self._establish(name, kind)

    def _establish(self, name: str, kind: Kind | None) -> None:
        now = timestamp(self._registry.clock.now())
        served = self._registry.kind(DEFINITIONS)
        old = self._registry.entry(served, name)
        names = {k: v for k, v in old.obj["spec"]["names"].items() if k in _ACCEPTED}
        status = {
            "conditions": [
                _condition("NamesAccepted", "NoConflicts", "no conflicts found", now),
                _condition(
                    "Established",
                    "InitialNamesAccepted",
                    "the initial names have been accepted",
                    now,
                ),
            ],
            "acceptedNames": names,
            "storedVersions": [kind.resource.version] if kind else [],
        }
        self._registry.put(served, old.key, {**old.obj, "status": status})

    def _clean_up(self, name: str) -> None:
        """Delete all objects of a kind; its CRD is removed after the last one."""
        resource = self._made.get(name)
        if resource is None:
            self._finish(name)
            return
        kind = self._registry.kind(resource)
        collection = self._registry.storage.collection(resource)
        for entry in tuple(collection.entries.values()):
            metadata = entry.obj["metadata"]
            if "deletionTimestamp" not in metadata:
                place = (metadata["name"], metadata.get("namespace"))
                deletion.delete(self._registry, kind, *place, DeleteOptions())
        if not collection.entries:
            self._finish(name)
            return

        def on_object(change: Change) -> None:
            if change.type is EventType.DELETED and not collection.entries:
                stop()
                self._finish(name)

        stop = self._registry.storage.subscribe(resource, on_object)

    def _finish(self, name: str) -> None:
        kind = self._registry.kind(DEFINITIONS)
        old = self._registry.storage.get(DEFINITIONS, name)
        if old is None:
            return
        obj = copied(old.obj)
        left = [each for each in obj["metadata"].get("finalizers") or () if each != CLEANUP]
        obj["metadata"]["finalizers"] = left
        self._registry.finish_update(kind, obj, old)

    def _forget(self, name: str) -> None:
        resource = self._made.pop(name, None)
        if resource is not None:
            self._registry.kinds.remove(resource)
            self._registry.storage.drop(resource)


def _condition(type_: str, reason: str, message: str, now: str) -> Json:
    return {
        "type": type_,
        "status": "True",
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }
