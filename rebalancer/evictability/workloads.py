"""Gates about the pod's workload: whether it can miss one pod just now."""

from __future__ import annotations

from typing import Final

from common.cluster.records import PodRecord
from common.cluster.workloads import WorkloadRecord
from common.config import SingleReplica
from rebalancer.evictability.context import JOB, STATEFUL_SET, Context
from rebalancer.reasons import Refusal

_ROLLED_OUT: Final = frozenset({"Deployment", "StatefulSet"})


def no_rollout_under_way(pod: PodRecord, context: Context) -> Refusal | None:
    """Bind load moves only: a node that is emptied waits for the budget alone."""
    standing = context.replacing(pod)
    workload = standing.workload if standing is not None else None
    if not context.for_load or workload is None:
        return None
    words = _rollout(workload)
    return Refusal("RolloutInProgress", words, for_good=False) if words else None


def _rollout(workload: WorkloadRecord) -> str:
    """Return in words how far a rollout is, as `kubectl rollout status` counts."""
    named, kind = f"{workload.kind} {workload.name}", workload.kind
    to_update, old = workload.desired - workload.partition, workload.current - workload.updated
    # A Job does not say which generation it has seen.
    if kind != "Job" and workload.observed_generation < workload.generation:
        return f"{named} was changed and its controller has not looked yet"
    if kind in _ROLLED_OUT and workload.updated < to_update:
        return f"{named} is being rolled out: {workload.updated} of {to_update} pods are updated"
    if kind == "Deployment" and old > 0:
        return f"{named} is being rolled out: {old} of {workload.current} pods are still old"
    return ""


def workload_is_healthy(pod: PodRecord, context: Context) -> Refusal | None:
    """Bind load moves only, as above; StatefulSets have a stricter gate of their own."""
    standing = context.replacing(pod)
    if not context.for_load or standing is None or standing.kind in (JOB, STATEFUL_SET):
        return None
    workload = standing.workload
    available = workload.available if workload is not None else standing.ready
    if available >= standing.replicas:
        return None
    named = workload if workload is not None else standing.owner
    words = f"{named.kind} {named.name} has {available} of {standing.replicas} pods available"
    return Refusal("WorkloadUnhealthy", words, for_good=False)


def stateful_set_is_complete(pod: PodRecord, context: Context) -> Refusal | None:
    """An ordered set does not recreate a pod behind one that is not ready."""
    standing = context.replacing(pod)
    if standing is None or standing.kind != STATEFUL_SET or standing.controller is None:
        return None
    found = standing.controller
    good = min(standing.ready, found.ready, found.available)
    if good >= found.desired:
        return None
    words = f"StatefulSet {found.name} has {good} of {found.desired} pods Ready and available"
    return Refusal("StatefulSetIncomplete", words, for_good=False)


def not_the_only_replica(pod: PodRecord, context: Context) -> Refusal | None:
    """Pods of Jobs serve nobody while they run; whether they move is said by `jobs`."""
    if context.config.single_replica is SingleReplica.ALLOW:
        return None
    standing = context.replacing(pod)
    if standing is None or standing.kind == JOB or standing.replicas > 1:
        return None
    return Refusal("SingleReplica", "it is the only replica: moving it means downtime")


def enough_replicas(pod: PodRecord, context: Context) -> Refusal | None:
    wanted = context.config.min_replicas
    if wanted <= 1:
        return None
    standing = context.replacing(pod)
    if standing is None or standing.replicas >= wanted:
        return None
    words = f"its workload has {standing.replicas} replicas, minReplicas is {wanted}"
    return Refusal("TooFewReplicas", words)
