"""Which pods may be moved, and for every other one all the reasons why not.

A gate is a small function that answers with a named reason or nothing. Gates look at the
cluster as it is and judge one pod by itself: whether its replacement fits anywhere, and what
several moves do together, is the planner's business. `docs/evictability.md` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from common.cluster.records import PodRecord
from rebalancer.evictability import life, owners, storage, timing, wishes, workloads
from rebalancer.evictability.budgets import Budgets, Ledger
from rebalancer.evictability.context import Context, Purpose
from rebalancer.evictability.owners import group_words
from rebalancer.evictability.past import NO_PAST, Past, lineage_of, past_of, took_place
from rebalancer.evictability.wishes import OPT_OUTS
from rebalancer.reasons import Refusal

__all__ = [
    "GATES",
    "NO_PAST",
    "OPT_OUTS",
    "POD_GATES",
    "TEMPLATE_GATES",
    "Budgets",
    "Context",
    "Gate",
    "Ledger",
    "Past",
    "Purpose",
    "group_words",
    "judge",
    "lineage_of",
    "past_of",
    "took_place",
]

Gate = Callable[[PodRecord, Context], Refusal | None]

TEMPLATE_GATES: Final[tuple[Gate, ...]] = (
    life.not_a_mirror_pod,
    life.not_a_daemon_set_pod,
    life.not_our_own,
    wishes.below_system_priority,
    wishes.not_in_an_excluded_namespace,
    wishes.in_a_selected_namespace,
    wishes.not_an_excluded_pod,
    wishes.a_selected_pod,
    wishes.rescheduling_enabled,
    wishes.safe_to_evict,
    wishes.may_be_disrupted,
    wishes.eviction_not_unwanted,
    wishes.below_the_priority_threshold,
    wishes.guided_by_our_extender,
    owners.replaceable_if_bare,
    owners.movable_if_of_a_job,
    owners.owner_replaces_its_pods,
    owners.replacement_can_be_steered,
    owners.owners_have_an_end,
    owners.owner_is_there,
    owners.not_surplus,
    owners.replacement_not_gated,
    owners.few_enough_terms,
    owners.not_in_a_pod_group,
    storage.no_local_storage,
    storage.no_resource_claims,
    workloads.not_the_only_replica,
    workloads.enough_replicas,
    workloads.no_rollout_under_way,
    workloads.workload_is_healthy,
    workloads.stateful_set_is_complete,
    timing.workload_has_rested,
    timing.covered_by_a_budget,
)
"""Gates that see of a pod only what all replicas of its template share.

That is its shape, labels, annotations, namespace and owner; they are asked once for all.
"""

POD_GATES: Final[tuple[Gate, ...]] = (
    life.not_terminating,
    life.not_finished,
    life.placed,
    storage.no_local_volume,
    storage.no_protected_storage_class,
    storage.no_volume_shared_on_the_node,
    timing.the_budget_allows_it,
    timing.old_enough,
    timing.load_is_measured,
    timing.lineage_has_rested,
)
"""Gates that look at the single pod."""

GATES: Final = (*TEMPLATE_GATES, *POD_GATES)


def judge(pod: PodRecord, context: Context) -> tuple[Refusal, ...]:
    """Return every reason against moving a pod, in the order of the gates; none allows it."""
    own = [found for gate in POD_GATES if (found := gate(pod, context)) is not None]
    shared = context.once(pod, _judge_template)
    return (*shared, *own) if own else shared


def _judge_template(pod: PodRecord, context: Context) -> tuple[Refusal, ...]:
    return tuple([found for gate in TEMPLATE_GATES if (found := gate(pod, context)) is not None])
