"""The world that the scheduler looks at, kept over many pods.

A new snapshot costs the index a look at every node. So the pods that the scheduler itself
has just placed are laid over the last snapshot, until something else that could matter to a
decision has changed, or there are many of them.
"""

from __future__ import annotations

from typing import Final

from common.cluster.records import NodeName
from common.fit import Arrive, Candidate, FitIndex, World
from common.kube.resources import NAMESPACES, REPLICASETS, STATEFULSETS
from simulator.api import Change, EventType, Json, Store
from simulator.mirror import Mirror

MOST_PLACED: Final = 100


class Worlds:
    """Hands out the current world."""

    def __init__(self, store: Store, mirror: Mirror) -> None:
        self._mirror = mirror
        self._index = FitIndex()
        self._world: World | None = None
        for resource in (NAMESPACES, REPLICASETS, STATEFULSETS):
            store.subscribe(resource, self._on_object)

    def current(self) -> World:
        """Return the cluster as it is now, as far as decisions depend on it."""
        if self._world is None or len(self._world.changes) >= MOST_PLACED:
            self._world = World(self._mirror.snapshot(), self._index)
        return self._world

    def fresh(self) -> World:
        """Return the cluster with every pod in its snapshot, for looking at who is where."""
        if self._world is None or self._world.changes:
            self._world = World(self._mirror.snapshot(), self._index)
        return self._world

    def placed(self, pod: Candidate, node: str) -> None:
        """Take note of a pod that was placed; nothing else has changed with it."""
        if self._world is not None and node in self._world.snapshot.nodes:
            self._world = self._world.after(Arrive(pod, NodeName(node)))
        else:
            self._world = None

    def changed(self) -> None:
        """Look anew: something else has changed."""
        self._world = None

    def on_pod(self, change: Change) -> None:
        """Look anew if a pod on a node means something else to others now."""
        if change.type is not EventType.MODIFIED or _meaning(change.old_obj) != _meaning(
            change.obj
        ):
            self.changed()

    def _on_object(self, change: Change) -> None:
        old, new = change.old_obj, change.obj
        if change.type is not EventType.MODIFIED or old is None or _wish(old) != _wish(new):
            self.changed()


def _meaning(pod: Json | None) -> tuple[object, ...]:
    """Return what of a pod decides what it holds and repels; most of its status does not."""
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


def _wish(obj: Json) -> tuple[object, object]:
    return obj.get("spec"), obj["metadata"].get("labels")
