# SPDX-License-Identifier: Apache-2.0
"""Which pod is the replacement, and whether one will come at all.

Pods of a ReplicaSet are interchangeable, so several moves of one workload compete for the same
new pods. A pod belongs to the move whose target it runs on; the remaining pods are then
assigned, oldest move first. The result does not depend on which move asks. It does depend on
when, because a pod that comes later may be preferred; so a pod that was chosen stays chosen
while that is being written down. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from common.api.migrations import NotReplacedReason, Step
from common.cache.replacements import (
    ELSEWHERE,
    candidates,
    has_replaced,
    is_younger,
    key_of_migration,
    may_replace,
    maybe_younger,
    nearness,
)
from common.cluster.migrations import MigrationRecord
from common.cluster.records import PodRecord, PodUid
from common.cluster.workloads import WorkloadRecord
from rebalancer.migration.verdicts import NotReplaced
from rebalancer.migration.view import MigrationView

READ_KINDS: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "Job"})
"""Controllers whose objects are in the cache: if one is missing there, it was deleted."""
MOST_PRESENT: Final = 500
"""How many siblings fit into the status; the CRD has the same limit."""


def candidate(view: MigrationView) -> PodRecord | None:
    """Return the pod to record as the replacement; None while that is undecided."""
    found = _assigned(view).get(view.migration.name)
    if found is None:
        return None
    near = nearness(view.migration, found.node) < ELSEWHERE
    # A pod without a node may still be bound to the target.
    return found if near or not pending(view) else None


def pending(view: MigrationView) -> Sequence[PodRecord]:
    """Return pods that may become the replacement and have no node yet."""
    return [pod for pod in newcomers(view) if not pod.node]


def newcomers(view: MigrationView) -> Sequence[PodRecord]:
    """Return young siblings that no Migration has recorded as its replacement."""
    taken = _taken(view)
    return [
        pod
        for pod in _siblings(view)
        if pod.uid not in taken and not pod.terminating and may_replace(view.migration, pod)
    ]


def intruder(view: MigrationView) -> PodRecord | None:
    """Return a younger sibling on the target that no other move has brought there.

    It has most likely taken the room that the intent reserved, even if it is the replacement
    of a move with another target.
    """
    migration, expected = view.migration, _on_their_targets(view)
    for pod in _siblings(view):
        arrived = pod.node == migration.target and is_younger(migration, pod)
        if arrived and not pod.terminating and pod.uid not in expected:
            return pod
    return None


def _siblings(view: MigrationView) -> Iterable[PodRecord]:
    """Return the pods with the Migration's key; none if their controller was deleted."""
    migration = view.migration
    # Its pods keep their ownerReference until the garbage collector gets to them.
    gone = migration.controller_kind in READ_KINDS and view.owner is None
    return () if gone else candidates(migration, view.snapshot)


def _on_their_targets(view: MigrationView) -> set[PodUid]:
    """Return the replacements that are where their own moves planned them."""
    moves = view.snapshot.migrations
    found = [(name, pod.uid, pod.node) for name, pod in _assigned(view).items()]
    found += [(m.name, m.replacement_uid, m.replacement_node) for m in moves.values()]
    return {uid for name, uid, node in found if nearness(moves[name], node) < ELSEWHERE}


def present(view: MigrationView) -> tuple[PodUid, ...] | None:
    """Return the siblings that exist now and could be mistaken for the replacement later.

    None if they do not fit into the status; then creation times decide. The copy of a bare
    pod is known by its name.
    """
    if view.bare:
        return None
    siblings = _siblings(view)
    young = sorted(pod.uid for pod in siblings if maybe_younger(view.migration, pod))
    return tuple(young) if len(young) <= MOST_PRESENT else None


def why_not_replaced(view: MigrationView) -> NotReplaced | None:
    """Return why no replacement will be created, or is needed; None if one is expected."""
    migration, owner = view.migration, view.owner
    if migration.controller_kind not in READ_KINDS:
        return None
    if owner is None or owner.deleted_s is not None:
        message = f"its {migration.controller_kind} was deleted"
        return NotReplaced(NotReplacedReason.OWNER_DELETED, message)
    if owner.kind == "StatefulSet":
        return _beyond_replicas(view)
    if owner.kind == "Job" and (done := _work_done(view, owner)):
        return NotReplaced(NotReplacedReason.WORK_DONE, done)
    return _enough_pods(view)


def _work_done(view: MigrationView, owner: WorkloadRecord) -> str:
    """Return how the Job has done the pod's work; empty if it has not."""
    if view.alive:
        return ""
    if owner.complete:
        return f"Job {owner.name} is complete"
    index = view.migration.completion_index
    if index is None or not _among(index, owner.completed_indexes):
        return ""
    return f"index {index} of Job {owner.name} has succeeded"


def _among(index: int, intervals: str) -> bool:
    """Tell whether an index is in a Job's list of completed ones, such as `1,3-5,7`.

    The format is that of pkg/controller/job/indexed_job_utils.go; other clients may have
    written anything.
    """
    for interval in intervals.split(","):
        first, _, last = interval.partition("-")
        if (
            first.isdecimal()
            and len(interval) < 32
            and int(first) <= index <= int(last if last.isdecimal() else first)
        ):
            return True
    return False


def _enough_pods(view: MigrationView) -> NotReplaced | None:
    owner = view.owner
    if owner is None:
        return None
    evicted = view.migration.done(Step.EVICTED) or not view.alive
    # Pods and owners come from two watches, so before the eviction both must agree.
    surplus = owner.current > owner.desired
    living = _living(view)
    if not (evicted or surplus) or len(living) < owner.desired or newcomers(view):
        return None
    zero = owner.desired == 0
    reason = NotReplacedReason.SUPERSEDED if zero else NotReplacedReason.SCALED_DOWN
    message = f"{owner.kind} {owner.name} wants {owner.desired} pods and has them without it"
    return NotReplaced(reason, message)


def _beyond_replicas(view: MigrationView) -> NotReplaced | None:
    """Return that a StatefulSet was scaled below the ordinal of the pod.

    It scales down from the highest ordinal (pkg/controller/statefulset/stateful_set_utils.go,
    podInOrdinalRange). Its first ordinal is inferred from its pods: spec.ordinals is not cached.
    """
    owner, mine = view.owner, _ordinal(view.migration.pod_name)
    if owner is None:
        return None
    ordinals = [_ordinal(pod.name) for pod in view.snapshot.by_owner[owner.controller_id].values()]
    first = min((*ordinals, mine))
    if mine - first < owner.desired:
        return None
    message = f"StatefulSet {owner.name} wants {owner.desired} pods, not this one"
    return NotReplaced(NotReplacedReason.SCALED_DOWN, message)


def _living(view: MigrationView) -> Sequence[PodRecord]:
    mine, controller = view.migration.pod_uid, view.migration.controller_id
    found = view.snapshot.by_owner[controller].values() if controller is not None else ()
    return [pod for pod in found if not pod.terminating and not pod.finished and pod.uid != mine]


def _assigned(view: MigrationView) -> dict[str, PodRecord]:
    """Assign new pods to the moves that wait for one; by name of the Migration."""
    moves = _waiting(view)
    taken = _taken(view)
    pods = [pod for pod in _siblings(view) if pod.uid not in taken and not pod.terminating]
    pairs = [(move, pod) for move in moves for pod in pods if _may_have_replaced(view, move, pod)]
    waiting, there = {move.name for move in moves}, {pod.uid: pod for pod in pods}
    assigned = {
        name: there[uid] for name, uid in view.claims.items() if name in waiting and uid in there
    }
    used = {pod.uid for pod in assigned.values()}
    # A pod that was there before the other evictions can have replaced no other move.
    chances = Counter(pod.uid for _, pod in pairs)
    for move, pod in sorted(pairs, key=lambda pair: _preference(pair[0], pair[1], chances)):
        if move.name not in assigned and pod.uid not in used:
            assigned[move.name] = pod
            used.add(pod.uid)
    return assigned


def _waiting(view: MigrationView) -> Sequence[MigrationRecord]:
    """Return the moves that wait for a replacement with the same key."""
    key = key_of_migration(view.migration)
    return [
        move
        for move in view.snapshot.migrations.values()
        if not move.replacement_uid
        and move.open
        and move.controller_id == view.migration.controller_id
        and _may_be_replaced(view, move)
        and key_of_migration(move) == key
    ]


def _may_be_replaced(view: MigrationView, move: MigrationRecord) -> bool:
    """Tell whether the replacement of a move may exist already."""
    if not move.controller_kind or move.done(Step.EVICTED) or move.done(Step.RAISED):
        return True
    pod = view.snapshot.pods.get(move.pod_uid)
    return pod is None or pod.terminating


def _may_have_replaced(view: MigrationView, move: MigrationRecord, pod: PodRecord) -> bool:
    """Timestamps are whole seconds: a pod of the Migration's own second may be older.

    If the owner has all its pods, it is not.
    """
    if has_replaced(move, pod) or not pod.node or not may_replace(move, pod):
        return has_replaced(move, pod)
    owner = view.owner
    return owner is not None and len(_living(view)) >= owner.desired


def _taken(view: MigrationView) -> set[PodUid]:
    moves = view.snapshot.migrations.values()
    return {move.replacement_uid for move in moves if move.replacement_uid}


def _preference(
    move: MigrationRecord, pod: PodRecord, chances: Mapping[PodUid, int]
) -> tuple[int, float, str, bool, int, str]:
    unsure = not has_replaced(move, pod)
    near = nearness(move, pod.node)
    return near, move.created_s, move.name, unsure, chances[pod.uid], pod.uid


def _ordinal(name: str) -> int:
    last = name.rpartition("-")[2]
    return int(last) if last.isdecimal() else 0
