# SPDX-License-Identifier: Apache-2.0
"""Everything that the predicates look up, kept in step with snapshots and what-ifs.

The index stands at one world at a time: a snapshot, and changes on top of it. Going to
another world costs what differs: nodes whose view is a new object, and the changes that
the two worlds do not share. So worlds are plain values, and asking about many of them in
turn is cheap. One thread uses an index; each thread makes its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from common.cache.snapshot import NodeView, Snapshot
from common.cluster.records import NodeName, PodRecord, PodUid
from common.cluster.shapes import PodShape
from common.fit.candidate import Candidate, Placed
from common.fit.changes import Arrive, Change, Leave
from common.fit.index.facts import NodeFacts
from common.fit.index.mounts import Mounts
from common.fit.index.occupancy import Occupancy
from common.fit.index.pod_groups import PodGroups
from common.fit.index.ports import PortIndex
from common.fit.index.storage import Storage
from common.fit.index.terms import TermIndex, Weighted

Spot = tuple[int, Placed]
Step = tuple[int, Placed, int]

CHUNK: Final = 256
"""Changes that are compared at once."""


class FitIndex:
    """The cluster at one world."""

    def __init__(self) -> None:
        self.facts = NodeFacts()
        self.occupancy = Occupancy(self.facts.capacity)
        self.ports = PortIndex()
        self.pod_groups = PodGroups()
        self.anti_affinity_terms = TermIndex()
        """Required anti-affinity of the pods that run."""
        self.scored_terms = TermIndex()
        """All other affinity of the pods that run, signed: what the scores count."""
        self.mounts = Mounts()
        self.storage: Storage
        self.snapshot: Snapshot | None = None
        self.promised: tuple[NodeName, ...] = ()
        """The nodes where room is kept for pods that wait."""
        self.loads = 0
        """Counts the snapshots that it has gone to."""
        self._at: tuple[Change, ...] | None = None
        self._views: dict[NodeName, NodeView] = {}
        self._changes: list[Change] = []
        self._steps: list[list[Step]] = []
        self._moved: list[PodUid] = []
        """The pod of each change."""
        self._spots: dict[PodUid, list[Spot | None]] = {}
        """Where the changes have brought pods, the last place last; a plan has thousands."""

    def seek(self, snapshot: Snapshot, changes: tuple[Change, ...]) -> None:
        """Go to the world of a snapshot after some changes."""
        if snapshot is self.snapshot and changes is self._at:
            return
        # If a change makes no sense, the next question starts from what is applied by then.
        self._at = None
        if snapshot is not self.snapshot:
            self._rewind(0)
            self._load(snapshot)
        shared = self._shared(changes)
        self._rewind(shared)
        for change in changes[shared:]:
            self._apply(change)
        self._at = changes

    def _shared(self, changes: tuple[Change, ...]) -> int:
        """Return how many of the changes, the first ones, are the applied ones."""
        mine, length = self._changes, min(len(self._changes), len(changes))
        shared = 0
        # A plan asks about worlds with thousands of changes that differ in the last one.
        while shared < length:
            end = min(shared + CHUNK, length)
            if mine[shared:end] != list(changes[shared:end]):
                break
            shared = end
        while shared < length and mine[shared] is changes[shared]:
            shared += 1
        return shared

    def nominated(self, name: NodeName) -> Iterable[PodRecord]:
        """Return the pods that wait for a place on a node that was promised to them."""
        if self.snapshot is None:
            return ()
        waiting = self.snapshot.by_nomination[name].values()
        return [pod for pod in waiting if pod.uid not in self._spots]

    def _load(self, snapshot: Snapshot) -> None:
        if self.snapshot is None or not self.storage.is_of(snapshot):
            self.storage = Storage(snapshot)
        if self.snapshot is None or self.snapshot.nodes is not snapshot.nodes:
            for name in [name for name in self._views if name not in snapshot.nodes]:
                self._remove(name)
            known = len(self.occupancy.names())
            for name, view in snapshot.nodes.items():
                if self._views.get(name) is not view:
                    self._put(name, view)
            if len(self.occupancy.names()) > known:
                # What pods elsewhere ask of a resource was not counted before a node had it.
                for name, view in self._views.items():
                    self.occupancy.put(self.facts.row_of[name], view)
        self.snapshot = snapshot
        self.promised = tuple(snapshot.by_nomination)
        self.loads += 1

    def _put(self, name: NodeName, view: NodeView) -> None:
        if self.facts.full and name not in self._views:
            self.facts.grow()
            self.occupancy.grow(self.facts.capacity)
        old = self._views.get(name)
        before = old.pods if old is not None else {}
        row = self.facts.put(view.node)
        for uid, pod in before.items():
            if view.pods.get(uid) is not pod:
                self._move_pod(row, pod, -1)
        for uid, pod in view.pods.items():
            if before.get(uid) is not pod:
                self._move_pod(row, pod, +1)
        self.occupancy.put(row, view)
        self._views[name] = view

    def _remove(self, name: NodeName) -> None:
        row = self.facts.row_of[name]
        for pod in self._views.pop(name).pods.values():
            self._move_pod(row, pod, -1)
        self.occupancy.drop(row)
        self.facts.drop(name)

    def _move_pod(self, row: int, pod: Placed, sign: int) -> None:
        """Add what a pod means to others to a node, or take it away."""
        shape = pod.shape
        self.pod_groups.move(row, pod.namespace, pod.labels, sign, terminating=pod.terminating)
        if shape.host_ports:
            self.ports.move(row, shape.host_ports, sign)
        if shape.anti_affinity:
            self.anti_affinity_terms.move(row, [(term, 1) for term in shape.anti_affinity], sign)
        if shape.affinity or shape.preferred_affinity or shape.preferred_anti_affinity:
            self.scored_terms.move(row, scored_terms(shape), sign)
        if shape.claims or shape.ephemeral_claims or shape.disks:
            self.mounts.move(row, pod.namespace, pod.name, shape, sign)

    def _apply(self, change: Change) -> None:
        uid, spot, steps = self._consequence(change)
        for row, pod, sign in steps:
            self._step(row, pod, sign)
        self._changes.append(change)
        self._steps.append(steps)
        self._moved.append(uid)
        self._spots.setdefault(uid, []).append(spot)

    def _rewind(self, length: int) -> None:
        while len(self._changes) > length:
            self._changes.pop()
            self._take_back(self._moved.pop())
            for row, pod, sign in reversed(self._steps.pop()):
                self._step(row, pod, -sign)

    def _take_back(self, uid: PodUid) -> None:
        spots = self._spots[uid]
        spots.pop()
        if not spots:
            del self._spots[uid]

    def _step(self, row: int, pod: Placed, sign: int) -> None:
        self._move_pod(row, pod, sign)
        self.occupancy.charge(row, pod.shape, sign)

    def _consequence(self, change: Change) -> tuple[PodUid, Spot | None, list[Step]]:
        """Return the pod concerned, where it is afterwards, and what that moves."""
        if isinstance(change, Arrive):
            row = self.facts.row_of[change.node]
            return change.pod.uid, (row, change.pod), [(row, change.pod, +1)]
        spot = self._whereabouts(change.uid)
        if spot is None:
            return change.uid, None, []
        row, pod = spot
        if isinstance(change, Leave):
            return change.uid, None, [(row, pod, -1)]
        dying = _dying(pod)
        return change.uid, (row, dying), [(row, pod, -1), (row, dying, +1)]

    def _whereabouts(self, uid: PodUid) -> Spot | None:
        """Return where a pod is; a pod without a node, or on one we do not know, is nowhere."""
        if uid in self._spots:
            return self._spots[uid][-1]
        if self.snapshot is None:
            return None
        pod = self.snapshot.pods[uid]
        row = self.facts.row_of.get(pod.node)
        return None if row is None or pod.finished else (row, pod)


def scored_terms(shape: PodShape) -> list[Weighted]:
    """Return what draws pods to this one (positive) or keeps them away (negative)."""
    # hardPodAffinityWeight is 1 by default (apis/config/v1/defaults.go).
    return [
        *((term, 1) for term in shape.affinity),
        *((weighted.term, weighted.weight) for weighted in shape.preferred_affinity),
        *((weighted.term, -weighted.weight) for weighted in shape.preferred_anti_affinity),
    ]


def _dying(pod: Placed) -> Placed:
    if pod.terminating:
        return pod
    if isinstance(pod, Candidate):
        return msgspec.structs.replace(pod, terminating=True)
    assert isinstance(pod, PodRecord)
    return msgspec.structs.replace(pod, deleted_s=0.0)
