# SPDX-License-Identifier: Apache-2.0
"""Placements that were answered and that no board contains yet.

The watch shows a binding some milliseconds after our answer, and the next board comes later
still. Until then the pod is charged to the node that it most likely got; once the watch shows
its node, it is charged there. The charge ends only when a board that contains the pod is in
use: if it ended with the binding event, the node would look idle for a moment, and in a burst
a moment is enough for ten more pods. kube-scheduler keeps assumed pods in its own cache for
the same reason (pkg/scheduler/backend/cache/cache.go), but does not tell extenders.

A pod that is not bound within `EXPIRY_S` of the answer was not placed at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec

from common.cluster.records import NodeName, PodRecord, PodUid
from common.metrics import Metrics
from extender.scoring import Demand

EXPIRY_S: Final = 10.0

Changed = Callable[[NodeName, PodUid], None]
"""Called with the node whose charges changed, and the pod that was added or removed."""


class Placement(msgspec.Struct, frozen=True, gc=False):
    """A pod that is expected on a node."""

    node: NodeName
    demand: Demand
    until_s: float


class Bound(msgspec.Struct, frozen=True, gc=False):
    """A placement that the watch has confirmed, at this version of the cluster."""

    node: NodeName
    demand: Demand
    version: int


class AssumedPlacements:
    """The charges of each node, from the answer until a board contains the pod."""

    def __init__(self, metrics: Metrics, changed: Changed) -> None:
        self._changed = changed
        self._expected: dict[PodUid, Placement] = {}  # oldest first, so the first expires first
        self._bound: dict[PodUid, Bound] = {}
        self._by_node: dict[NodeName, dict[PodUid, Demand]] = {}
        placements = metrics.counter(
            "assumed_placements_total", "Assumed placements by how they ended.", ("result",)
        )
        self._right = placements.labels("right")
        self._wrong = placements.labels("wrong")
        self._expired = placements.labels("expired")

    def __len__(self) -> int:
        return len(self._expected) + len(self._bound)

    def __contains__(self, uid: object) -> bool:
        return uid in self._expected or uid in self._bound

    def on(self, node: NodeName) -> Collection[Demand]:
        """Return what is charged to a node."""
        return self._by_node.get(node, {}).values()

    def nodes(self) -> Iterable[NodeName]:
        """Return the nodes that have charges."""
        return self._by_node.keys()

    def assume(self, uid: PodUid, node: NodeName, demand: Demand, now_s: float) -> None:
        """Charge a pod to the node that it most likely got, replacing an earlier assumption."""
        self.release(uid)
        self._expected[uid] = Placement(node, demand, now_s + EXPIRY_S)
        self._charge(uid, node, demand)

    def release(self, uid: PodUid) -> None:
        """Drop an assumption: the pod is scheduled again, or no longer exists."""
        found = self._expected.pop(uid, None)
        if found is not None:
            self._discharge(uid, found.node)

    def on_pod(self, old: PodRecord | None, new: PodRecord | None, version: int) -> None:
        """Process a pod event that led to this version of the cluster."""
        if old is not None and (new is None or new.uid != old.uid):
            self._gone(old.uid)
        if new is not None and new.node and new.uid in self._expected:
            self._seen(new.uid, new.node, version)

    def settle(self, version: int) -> None:
        """Drop the charges that a board of this version contains."""
        for uid in [uid for uid, found in self._bound.items() if found.version <= version]:
            self._discharge(uid, self._bound.pop(uid).node)

    def expire(self, now_s: float) -> None:
        """Drop assumptions that were not confirmed in time."""
        while self._expected:
            uid, oldest = next(iter(self._expected.items()))
            if now_s < oldest.until_s:
                return
            self.release(uid)
            self._expired.inc()

    def _seen(self, uid: PodUid, node: NodeName, version: int) -> None:
        guess = self._expected.pop(uid)
        (self._right if guess.node == node else self._wrong).inc()
        self._bound[uid] = Bound(node, guess.demand, version)
        if guess.node != node:
            self._discharge(uid, guess.node)
            self._charge(uid, node, guess.demand)

    def _gone(self, uid: PodUid) -> None:
        self.release(uid)
        found = self._bound.pop(uid, None)
        if found is not None:
            self._discharge(uid, found.node)

    def _charge(self, uid: PodUid, node: NodeName, demand: Demand) -> None:
        self._by_node.setdefault(node, {})[uid] = demand
        self._changed(node, uid)

    def _discharge(self, uid: PodUid, node: NodeName) -> None:
        charges = self._by_node[node]
        del charges[uid]
        if not charges:
            del self._by_node[node]
        self._changed(node, uid)
