# SPDX-License-Identifier: Apache-2.0
"""Gates that pass with time: a PDB, the age of the pod, its samples, the cooldowns.

Only the PDB binds the emptying of a node.
"""

from __future__ import annotations

import math
from typing import Final

from common.cluster.records import PodRecord
from common.config import PodsWithoutPdb
from common.load import Basis
from rebalancer.evictability.context import Context
from rebalancer.evictability.history import lineage_of
from rebalancer.evictability.surge import will_surge
from rebalancer.refusals import Reason, Refusal

_NO_PDB: Final = Reason.NO_PDB.refusal()
_NOT_MEASURED: Final = Reason.NOT_MEASURED.refusal()
_NOT_RUNNING: Final = Reason.NOT_MEASURED.refusal("not running")


def pdb_allows_eviction(pod: PodRecord, context: Context) -> Refusal | None:
    """A surge is judged as if the workload had its one more replica already."""
    found = context.budgets.refusal(pod)
    surges = found is not None and context.surge is not False and will_surge(pod, context)
    return context.budgets.refusal_after_surge(pod) if surges else found


def covered_by_a_pdb(pod: PodRecord, context: Context) -> Refusal | None:
    if context.config.pods_without_pdb is PodsWithoutPdb.ALLOW or context.budgets.matching(pod):
        return None
    return _NO_PDB


def old_enough(pod: PodRecord, context: Context) -> Refusal | None:
    if not context.for_load:
        return None
    age_s, wanted = context.now_s - pod.placed_s, context.config.min_pod_age
    if age_s >= wanted:
        return None
    return Reason.TOO_YOUNG.refusal(age=_whole_seconds(age_s), wanted=wanted)


def window_is_open(pod: PodRecord, context: Context) -> Refusal | None:
    """That of its namespace; a move that has begun goes on when it closes."""
    if not context.for_load or context.begun:
        return None
    closed = context.scope.closed_namespace(pod.namespace)
    return None if closed is None else Reason.WINDOW_CLOSED.refusal(schedule=closed.words)


def load_is_measured(pod: PodRecord, context: Context) -> Refusal | None:
    """A pod moves for load only if its load is measured: an estimate may be off by all of it."""
    if not context.for_load or context.load is None:
        return None
    match context.load.load_of(pod).basis:
        case Basis.MEASURED | Basis.REQUESTS:
            return None
        case Basis.NOTHING:
            return _NOT_RUNNING
    return _NOT_MEASURED


def workload_cooldown_is_over(pod: PodRecord, context: Context) -> Refusal | None:
    moved = context.history.workload_moved_s
    owner = context.owner_status(pod) if moved and context.for_load else None
    moved_s = moved.get(owner.workload_id) if owner is not None else None
    if moved_s is None:
        return None
    ago_s, cooldown = context.now_s - moved_s, context.config.workload_cooldown
    if ago_s >= cooldown:
        return None
    return Reason.WORKLOAD_COOLDOWN.refusal(ago=_whole_seconds(ago_s), cooldown=cooldown)


def lineage_cooldown_is_over(pod: PodRecord, context: Context) -> Refusal | None:
    moved = context.history.lineage_moved_s
    moved_s = moved.get(lineage_of(pod)) if moved and context.for_load else None
    if moved_s is None:
        return None
    ago_s, cooldown = context.now_s - moved_s, context.config.lineage_cooldown
    if ago_s >= cooldown:
        return None
    return Reason.LINEAGE_COOLDOWN.refusal(ago=_whole_seconds(ago_s), cooldown=cooldown)


def _whole_seconds(seconds: float) -> str:
    """Return the whole seconds that have passed: what is too short must not look long enough."""
    return f"{math.floor(seconds)}s"
