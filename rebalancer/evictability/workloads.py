# SPDX-License-Identifier: Apache-2.0
"""Gates about the pod's workload: whether it can do without one pod just now."""

from __future__ import annotations

from typing import Final

from common.cluster.records import PodRecord
from common.cluster.workloads import WorkloadRecord
from common.config import SingleReplica
from rebalancer.evictability.context import JOB, STATEFUL_SET, Context
from rebalancer.evictability.surge import why_no_surge
from rebalancer.refusals import Reason, Refusal

_SINGLE_REPLICA: Final = Reason.SINGLE_REPLICA.refusal()
_SURGE_OFF: Final = Reason.SURGE_OFF.refusal()
_ROLLED_OUT: Final = frozenset({"Deployment", "StatefulSet"})


def no_rollout_under_way(pod: PodRecord, context: Context) -> Refusal | None:
    """Binds load moves only: the emptying of a node waits for the PDB alone."""
    owner = context.replacing_owner(pod)
    workload = owner.workload if owner is not None else None
    if not context.for_load or workload is None:
        return None
    return _rollout(workload)


def _rollout(workload: WorkloadRecord) -> Refusal | None:
    """Return how far a rollout is, counted as `kubectl rollout status` does.

    See k8s.io/kubectl/pkg/polymorphichelpers/rollout_status.go.
    """
    named, kind = f"{workload.kind} {workload.name}", workload.kind
    to_update, old = workload.desired - workload.partition, workload.current - workload.updated
    # A Job has no status.observedGeneration.
    if kind != "Job" and workload.observed_generation < workload.generation:
        return Reason.ROLLOUT_IN_PROGRESS.refusal(workload=named)
    if kind in _ROLLED_OUT and workload.updated < to_update:
        updated = workload.updated
        return Reason.ROLLOUT_IN_PROGRESS.refusal(
            "updating", workload=named, updated=updated, wanted=to_update
        )
    if kind == "Deployment" and old > 0:
        return Reason.ROLLOUT_IN_PROGRESS.refusal(
            "replacing", workload=named, old=old, current=workload.current
        )
    return None


def workload_is_healthy(pod: PodRecord, context: Context) -> Refusal | None:
    """Binds load moves only, as above; StatefulSets have a stricter gate of their own."""
    owner = context.replacing_owner(pod)
    if not context.for_load or owner is None or owner.kind in (JOB, STATEFUL_SET):
        return None
    workload = owner.workload
    available = workload.available if workload is not None else owner.ready
    if available >= owner.replicas:
        return None
    named = workload if workload is not None else owner.reference
    return Reason.WORKLOAD_UNHEALTHY.refusal(
        workload=f"{named.kind} {named.name}", available=available, replicas=owner.replicas
    )


def stateful_set_is_complete(pod: PodRecord, context: Context) -> Refusal | None:
    """An ordered set does not recreate a pod while one with a lower ordinal is not ready.

    See updateStatefulSet in pkg/controller/statefulset/stateful_set_control.go.
    """
    owner = context.replacing_owner(pod)
    if owner is None or owner.kind != STATEFUL_SET or owner.controller is None:
        return None
    found = owner.controller
    good = min(owner.ready, found.ready, found.available)
    if good >= found.desired:
        return None
    return Reason.STATEFUL_SET_INCOMPLETE.refusal(
        name=found.name, ready=good, desired=found.desired
    )


def not_the_only_replica(pod: PodRecord, context: Context) -> Refusal | None:
    """Pods of Jobs serve no traffic; whether they move is configured by `jobs`.

    A surge leaves no gap; whether it is possible has a gate of its own.
    """
    if context.config.single_replica is SingleReplica.ALLOW or context.surge:
        return None
    owner = context.replacing_owner(pod)
    if owner is None or owner.kind == JOB or owner.replicas > 1:
        return None
    cause = why_no_surge(pod, context) if context.surge is None else _SURGE_OFF
    if cause is None or cause == _SURGE_OFF:
        return None if cause is None else _SINGLE_REPLICA
    case = "no surge" if cause.permanent else "no surge now"
    return Reason.SINGLE_REPLICA.refusal(case, cause=f"{cause.name}, {cause.message}")


def enough_replicas(pod: PodRecord, context: Context) -> Refusal | None:
    wanted = context.config.min_replicas
    if wanted <= 1:
        return None
    owner = context.replacing_owner(pod)
    if owner is None or owner.replicas >= wanted:
        return None
    return Reason.TOO_FEW_REPLICAS.refusal(replicas=owner.replicas, wanted=wanted)
