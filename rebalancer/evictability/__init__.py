# SPDX-License-Identifier: Apache-2.0
"""Which pods may be moved, and for every other one all the reasons why not.

A gate is a small function that returns a reason against moving a pod, or nothing. Gates judge
one pod by itself in the cluster as it is: whether its replacement fits anywhere, and what
several moves do together, is the planner's business. `docs/evictability.md` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from common.cluster.records import PodRecord
from rebalancer.evictability import (
    opt_outs,
    owners,
    pod_state,
    storage,
    surge,
    timing,
    workloads,
)
from rebalancer.evictability.budgets import Budgets, Ledger
from rebalancer.evictability.context import Context
from rebalancer.evictability.deadline import after_deadline, is_forced
from rebalancer.evictability.history import (
    NO_HISTORY,
    MoveHistory,
    lineage_of,
    move_history,
    was_carried_out,
)
from rebalancer.evictability.opt_outs import OPT_OUTS
from rebalancer.evictability.owners import in_a_pod_group
from rebalancer.evictability.removal import judge_removal
from rebalancer.evictability.surge import will_surge
from rebalancer.refusals import Refusal

__all__ = [
    "GATES",
    "NO_HISTORY",
    "OPT_OUTS",
    "POD_GATES",
    "TEMPLATE_GATES",
    "Budgets",
    "Context",
    "Gate",
    "Ledger",
    "MoveHistory",
    "in_a_pod_group",
    "judge",
    "judge_removal",
    "lineage_of",
    "move_history",
    "was_carried_out",
    "will_surge",
]

Gate = Callable[[PodRecord, Context], Refusal | None]

TEMPLATE_GATES: Final[tuple[Gate, ...]] = (
    pod_state.not_a_mirror_pod,
    pod_state.not_a_daemon_set_pod,
    pod_state.not_our_own,
    opt_outs.below_system_priority,
    opt_outs.not_in_an_excluded_namespace,
    opt_outs.in_a_selected_namespace,
    opt_outs.not_an_excluded_pod,
    opt_outs.selected_pod,
    opt_outs.rescheduling_enabled,
    opt_outs.safe_to_evict,
    opt_outs.may_be_disrupted,
    opt_outs.eviction_not_discouraged,
    opt_outs.below_the_priority_threshold,
    opt_outs.scheduler_calls_our_extender,
    owners.replaceable_if_bare,
    owners.job_tolerates_disruption,
    owners.owner_replaces_its_pods,
    owners.replacement_can_be_steered,
    owners.owner_chain_ends,
    owners.owner_exists,
    owners.not_surplus,
    owners.replacement_not_gated,
    owners.not_too_many_affinity_terms,
    owners.not_in_a_foreign_group,
    storage.no_local_storage,
    storage.no_resource_claims,
    workloads.not_the_only_replica,
    surge.surge_is_possible,
    workloads.enough_replicas,
    workloads.no_rollout_under_way,
    workloads.workload_is_healthy,
    workloads.stateful_set_is_complete,
    timing.workload_cooldown_is_over,
    timing.covered_by_a_pdb,
)
"""Gates that depend only on what all replicas of a template share.

That is the shape, labels, annotations, namespace and owner, so one answer serves them all.
"""

POD_GATES: Final[tuple[Gate, ...]] = (
    pod_state.not_terminating,
    pod_state.not_finished,
    pod_state.bound_to_a_node,
    opt_outs.namespace_acts,
    owners.group_allows_it_to_leave,
    storage.no_local_volume,
    storage.no_protected_storage_class,
    storage.no_volume_shared_on_the_node,
    timing.pdb_allows_eviction,
    timing.old_enough,
    timing.window_is_open,
    timing.load_is_measured,
    timing.lineage_cooldown_is_over,
)
"""Gates that depend on the single pod."""

GATES: Final = (*TEMPLATE_GATES, *POD_GATES)


def judge(pod: PodRecord, context: Context) -> tuple[Refusal, ...]:
    """Return every reason against moving a pod, in the order of the gates; none allows it."""
    own = [found for gate in POD_GATES if (found := gate(pod, context)) is not None]
    shared = context.judged_once(pod, _judge_template)
    every = (*shared, *own) if own else shared
    return after_deadline(every, pod) if every and _is_forced(pod, context) else every


def _is_forced(pod: PodRecord, context: Context) -> bool:
    """Tell whether the pod's node is past the deadline of its maintenance."""
    view = None if context.for_load else context.snapshot.nodes.get(pod.node)
    return view is not None and is_forced(view.node, context.config, context.now_s)


def _judge_template(pod: PodRecord, context: Context) -> tuple[Refusal, ...]:
    return tuple([found for gate in TEMPLATE_GATES if (found := gate(pod, context)) is not None])
