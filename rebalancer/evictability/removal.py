# SPDX-License-Identifier: Apache-2.0
"""Which pods may be removed without a target: those that have ended, or are not Ready.

Opt-outs hold as for moves. A pod that has ended takes nothing along: neither its storage nor a
PodDisruptionBudget matters. One that still runs is removed only if its controller replaces it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from common.cluster.records import PodRecord
from rebalancer.evictability import opt_outs, owners, pod_state, storage, timing, workloads
from rebalancer.evictability.context import Context
from rebalancer.refusals import Reason, Refusal

_BARE: Final = Reason.BARE_POD.refusal()
_LOOSELY_OWNED: Final = Reason.OWNER_WITHOUT_CONTROL.refusal()


def has_a_controller(pod: PodRecord, _: Context) -> Refusal | None:
    """Even where bare pods are copied: nothing is copied here."""
    if pod.owner is not None:
        return None
    return _LOOSELY_OWNED if pod.owned else _BARE


def pdb_allows_removal(pod: PodRecord, context: Context) -> Refusal | None:
    return context.budgets.refusal(pod)


Gate = Callable[[PodRecord, Context], Refusal | None]

REMOVAL_GATES: tuple[Gate, ...] = (
    pod_state.not_terminating,
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
    has_a_controller,
)
"""Gates for every pod that is removed."""

UNFINISHED_GATES: tuple[Gate, ...] = (
    owners.job_tolerates_disruption,
    owners.owner_replaces_its_pods,
    owners.owner_chain_ends,
    owners.owner_exists,
    owners.replacement_not_gated,
    owners.not_in_a_foreign_group,
    owners.group_allows_it_to_leave,
    storage.no_local_storage,
    storage.no_local_volume,
    storage.no_resource_claims,
    workloads.no_rollout_under_way,
    timing.covered_by_a_pdb,
    timing.old_enough,
    pdb_allows_removal,
)
"""Gates for those that have not ended."""


def judge_removal(pod: PodRecord, context: Context) -> tuple[Refusal, ...]:
    """Return every reason against removing a pod."""
    gates = REMOVAL_GATES if pod.finished else (*REMOVAL_GATES, *UNFINISHED_GATES)
    return tuple(found for gate in gates if (found := gate(pod, context)) is not None)
