"""Which pod is the replacement, and whether one will come at all.

Pods of a ReplicaSet are alike, so several moves of one workload may look at the same new
pods. A pod belongs to the move whose target it runs on; only when that is settled the
others are shared out, oldest move first. The result is the same whichever move asks.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from common.cluster.migrations import MigrationRecord, Step
from common.cluster.records import PodRecord, PodUid
from common.cluster.replacing import (
    ELSEWHERE,
    candidates,
    has_replaced,
    is_younger,
    key_of_migration,
    may_replace,
    maybe_younger,
    nearness,
)
from common.cluster.workloads import WorkloadRecord
from rebalancer.migration.scene import Scene

READ_KINDS: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "Job"})
"""Controllers whose objects we read: if one is not there, it is gone."""
MOST_PRESENT: Final = 500
"""As many siblings the status has room for; the CRD says the same."""


def candidate(scene: Scene) -> PodRecord | None:
    """Return the pod that is to be noted as the replacement; None while that is open."""
    found = _shared_out(scene).get(scene.migration.name)
    if found is None:
        return None
    near = nearness(scene.migration, found.node) < ELSEWHERE
    # One without a node may still come to the target.
    return found if near or not pending(scene) else None


def pending(scene: Scene) -> Sequence[PodRecord]:
    """Return pods that may become the replacement and have no node yet."""
    return [pod for pod in newcomers(scene) if not pod.node]


def newcomers(scene: Scene) -> Sequence[PodRecord]:
    """Return young siblings that nobody has taken for a replacement."""
    taken = _taken(scene)
    return [
        pod
        for pod in _of_the_controller(scene)
        if pod.uid not in taken and not pod.terminating and may_replace(scene.migration, pod)
    ]


def intruder(scene: Scene) -> PodRecord | None:
    """Return a younger sibling on the target that no other move has brought there.

    It has most likely taken the place that the intent held, also if it is the replacement
    of a move that was meant to go elsewhere.
    """
    migration, brought = scene.migration, _brought(scene)
    for pod in _of_the_controller(scene):
        arrived = pod.node == migration.target and is_younger(migration, pod)
        if arrived and not pod.terminating and pod.uid not in brought:
            return pod
    return None


def _of_the_controller(scene: Scene) -> Iterable[PodRecord]:
    """Return the pods with the Migration's key; of a controller that is gone, none is left."""
    migration = scene.migration
    gone = migration.controller_kind in READ_KINDS and scene.owner is None
    return () if gone else candidates(migration, scene.snapshot)


def _brought(scene: Scene) -> set[PodUid]:
    """Return the replacements that are where their own moves wanted them."""
    moves = scene.snapshot.migrations
    found = [(name, pod.uid, pod.node) for name, pod in _shared_out(scene).items()]
    found += [(m.name, m.replacement_uid, m.replacement_node) for m in moves.values()]
    return {uid for name, uid, node in found if nearness(moves[name], node) < ELSEWHERE}


def present(scene: Scene) -> tuple[PodUid, ...] | None:
    """Return the siblings that are there and might be taken for the replacement later.

    None if they are too many to be written down; then times have to tell. A copy of a bare
    pod is known by its name.
    """
    if scene.bare:
        return None
    siblings = _of_the_controller(scene)
    young = sorted(pod.uid for pod in siblings if maybe_younger(scene.migration, pod))
    return tuple(young) if len(young) <= MOST_PRESENT else None


def why_not_replaced(scene: Scene) -> tuple[str, str] | None:
    """Return reason and words if nobody will make a replacement, or needs one."""
    migration, owner = scene.migration, scene.owner
    if migration.controller_kind not in READ_KINDS:
        return None
    if owner is None or owner.deleted_s is not None:
        return "OwnerDeleted", f"its {migration.controller_kind} was deleted"
    if owner.kind == "StatefulSet":
        return _beyond_the_set(scene)
    if owner.kind == "Job" and (done := _work_done(scene, owner)):
        return "WorkDone", done
    return _enough_pods(scene)


def _work_done(scene: Scene, owner: WorkloadRecord) -> str:
    """Say that the Job has done what the pod was there for; empty if it has not."""
    if scene.alive:
        return ""
    if owner.complete:
        return f"Job {owner.name} is complete"
    index = scene.migration.completion_index
    if index is None or not _among(index, owner.completed_indexes):
        return ""
    return f"index {index} of Job {owner.name} has succeeded"


def _among(index: int, intervals: str) -> bool:
    """Tell whether an index is in a list as a Job writes it: `1,3-5,7`."""
    for interval in intervals.split(","):
        first, _, last = interval.partition("-")
        if (
            first.isdecimal()
            and len(interval) < 32
            and int(first) <= index <= int(last if last.isdecimal() else first)
        ):
            return True
    return False


def _enough_pods(scene: Scene) -> tuple[str, str] | None:
    owner = scene.owner
    if owner is None:
        return None
    evicted = scene.migration.done(Step.EVICTED) or not scene.alive
    # Both are watched apart, so before the eviction they must agree.
    surplus = owner.current > owner.desired
    living = _living(scene)
    if not (evicted or surplus) or len(living) < owner.desired or newcomers(scene):
        return None
    why = "Superseded" if owner.desired == 0 else "ScaledDown"
    return why, f"{owner.kind} {owner.name} wants {owner.desired} pods and has them without it"


def _beyond_the_set(scene: Scene) -> tuple[str, str] | None:
    """A set gives up its highest ordinals; where it begins is told by its pods only."""
    owner, mine = scene.owner, _ordinal(scene.migration.pod_name)
    if owner is None:
        return None
    ordinals = [_ordinal(pod.name) for pod in scene.snapshot.by_owner[owner.controller_id].values()]
    first = min((*ordinals, mine))
    if mine - first < owner.desired:
        return None
    return "ScaledDown", f"StatefulSet {owner.name} wants {owner.desired} pods, not this one"


def _living(scene: Scene) -> Sequence[PodRecord]:
    mine, controller = scene.migration.pod_uid, scene.migration.controller_id
    found = scene.snapshot.by_owner[controller].values() if controller is not None else ()
    return [pod for pod in found if not pod.terminating and not pod.finished and pod.uid != mine]


def _shared_out(scene: Scene) -> dict[str, PodRecord]:
    """Give new pods to the moves that wait for one; by name of the Migration."""
    moves = _waiting(scene)
    taken = _taken(scene)
    pods = [
        pod for pod in _of_the_controller(scene) if pod.uid not in taken and not pod.terminating
    ]
    pairs = [(move, pod) for move in moves for pod in pods if _may_have_replaced(scene, move, pod)]
    shared: dict[str, PodRecord] = {}
    given: set[PodUid] = set()
    for move, pod in sorted(pairs, key=_closeness):
        if move.name not in shared and pod.uid not in given:
            shared[move.name] = pod
            given.add(pod.uid)
    return shared


def _waiting(scene: Scene) -> Sequence[MigrationRecord]:
    """Return the moves that look for a replacement of the same key."""
    key = key_of_migration(scene.migration)
    return [
        move
        for move in scene.snapshot.migrations.values()
        if move.controller_id == scene.migration.controller_id
        and move.open
        and not move.replacement_uid
        and _looks(scene, move)
        and key_of_migration(move) == key
    ]


def _looks(scene: Scene, move: MigrationRecord) -> bool:
    """Tell whether a move has come so far that its replacement may be there."""
    if not move.controller_kind or move.done(Step.EVICTED):
        return True
    pod = scene.snapshot.pods.get(move.pod_uid)
    return pod is None or pod.terminating


def _may_have_replaced(scene: Scene, move: MigrationRecord, pod: PodRecord) -> bool:
    """A pod of the Migration's own second may be older; if no pod is missing, it is not."""
    if has_replaced(move, pod) or not pod.node or not may_replace(move, pod):
        return has_replaced(move, pod)
    owner = scene.owner
    return owner is not None and len(_living(scene)) >= owner.desired


def _taken(scene: Scene) -> set[PodUid]:
    moves = scene.snapshot.migrations.values()
    return {move.replacement_uid for move in moves if move.replacement_uid}


def _closeness(pair: tuple[MigrationRecord, PodRecord]) -> tuple[int, float, str, bool, str]:
    move, pod = pair
    unsure = not has_replaced(move, pod)
    return nearness(move, pod.node), move.created_s, move.name, unsure, pod.uid


def _ordinal(name: str) -> int:
    last = name.rpartition("-")[2]
    return int(last) if last.isdecimal() else 0
