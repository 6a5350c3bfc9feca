"""Gates that wait: for a budget, for a young pod to settle, for a moved one to rest.

Only the budget binds the emptying of a node.
"""

from __future__ import annotations

import math

from common.cluster.records import PodRecord
from common.config import PodsWithoutPdb
from common.load import Basis
from rebalancer.evictability.context import Context
from rebalancer.evictability.past import lineage_of
from rebalancer.reasons import Refusal


def the_budget_allows_it(pod: PodRecord, context: Context) -> Refusal | None:
    return context.budgets.refusal(pod)


def covered_by_a_budget(pod: PodRecord, context: Context) -> Refusal | None:
    if context.config.pods_without_pdb is PodsWithoutPdb.ALLOW or context.budgets.matching(pod):
        return None
    return Refusal("NoPdb", "no PDB covers it, and podsWithoutPdb is refuse")


def old_enough(pod: PodRecord, context: Context) -> Refusal | None:
    if not context.for_load:
        return None
    since_s = pod.created_s if pod.scheduled_s is None else pod.scheduled_s
    age_s, wanted = context.now_s - since_s, context.config.min_pod_age
    if age_s >= wanted:
        return None
    words = f"it runs for {_told(age_s)}, minPodAge is {wanted:g}s"
    return Refusal("TooYoung", words, for_good=False)


def load_is_measured(pod: PodRecord, context: Context) -> Refusal | None:
    """Moving a pod for load needs to know its load: an estimate may be off by all of it."""
    if not context.for_load or context.load is None:
        return None
    match context.load.load_of(pod).basis:
        case Basis.MEASURED | Basis.REQUESTS:
            return None
        case Basis.NOTHING:
            words = "none of its containers runs, so moving it would relieve nothing"
        case _:
            words = "no fresh sample tells what it uses"
    return Refusal("NotMeasured", words, for_good=False)


def workload_has_rested(pod: PodRecord, context: Context) -> Refusal | None:
    moved = context.past.workload_moved_s
    standing = context.standing(pod) if moved and context.for_load else None
    moved_s = moved.get(standing.workload_id) if standing is not None else None
    if moved_s is None:
        return None
    ago_s, cooldown = context.now_s - moved_s, context.config.workload_cooldown
    if ago_s >= cooldown:
        return None
    words = f"its workload was moved {_told(ago_s)} ago, workloadCooldown is {cooldown:g}s"
    return Refusal("WorkloadCooldown", words, for_good=False)


def lineage_has_rested(pod: PodRecord, context: Context) -> Refusal | None:
    moved = context.past.lineage_moved_s
    moved_s = moved.get(lineage_of(pod)) if moved and context.for_load else None
    if moved_s is None:
        return None
    ago_s, cooldown = context.now_s - moved_s, context.config.lineage_cooldown
    if ago_s >= cooldown:
        return None
    ago = _told(ago_s)
    words = f"it or its predecessor was moved {ago} ago, lineageCooldown is {cooldown:g}s"
    return Refusal("LineageCooldown", words, for_good=False)


def _told(seconds: float) -> str:
    """Return whole seconds that are over: what is too short must not look long enough."""
    return f"{math.floor(seconds)}s"
