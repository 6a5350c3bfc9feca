# SPDX-License-Identifier: Apache-2.0
"""The world that the scheduler decides on, kept over many pods.

For a new snapshot the index has to visit every node. So the pods that the scheduler itself has
just bound are applied to the last snapshot, until anything else that affects decisions has
changed, or there are many of them.
"""

from __future__ import annotations

from typing import Final

from common.cluster.records import NodeName
from common.fit import Arrive, Candidate, FitIndex, World
from common.kube.resources import NAMESPACES, REPLICASETS, STATEFULSETS
from simulator.api import Change, EventType, Json, Store
from simulator.cache import ClusterCache

MOST_PLACED: Final = 100


class WorldCache:
    """Returns the current world."""

    def __init__(self, store: Store, cache: ClusterCache) -> None:
        self._cache = cache
        self._index = FitIndex()
        self._world: World | None = None
        for resource in (NAMESPACES, REPLICASETS, STATEFULSETS):
            store.subscribe(resource, self._on_object)

    def current(self) -> World:
        """Return the cluster as it is now, as far as decisions depend on it."""
        if self._world is None or len(self._world.changes) >= MOST_PLACED:
            self._world = World(self._cache.snapshot(), self._index)
        return self._world

    def fresh(self) -> World:
        """Return the cluster with every pod in its snapshot."""
        if self._world is None or self._world.changes:
            self._world = World(self._cache.snapshot(), self._index)
        return self._world

    def placed(self, pod: Candidate, node: str) -> None:
        """Apply a pod that was just bound."""
        if self._world is not None and node in self._world.snapshot.nodes:
            self._world = self._world.after(Arrive(pod, NodeName(node)))
        else:
            self._world = None

    def changed(self) -> None:
        """Start from a new snapshot next time."""
        self._world = None

    def on_pod(self, change: Change) -> None:
        """Start from a new snapshot if a pod affects other pods differently now."""
        if change.type is not EventType.MODIFIED or _meaning(change.old_obj) != _meaning(
            change.obj
        ):
            self.changed()

    def _on_object(self, change: Change) -> None:
        old, new = change.old_obj, change.obj
        if change.type is not EventType.MODIFIED or old is None or _desired(old) != _desired(new):
            self.changed()


def _meaning(pod: Json | None) -> tuple[object, ...]:
    """Return the part of a pod that affects other pods; most of its status does not."""
    if pod is None:
        return ()
    status = pod.get("status", {})
    return (
        pod["spec"],
        pod["metadata"].get("labels"),
        "deletionTimestamp" in pod["metadata"],
        status.get("phase") in ("Succeeded", "Failed"),
        status.get("nominatedNodeName"),
        status.get("resources"),
        [
            (each.get("allocatedResources"), each.get("resources"))
            for each in status.get("containerStatuses") or ()
            if "allocatedResources" in each or "resources" in each
        ],
    )


def _desired(obj: Json) -> tuple[object, object]:
    return obj.get("spec"), obj["metadata"].get("labels")
