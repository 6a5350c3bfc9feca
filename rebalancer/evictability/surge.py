# SPDX-License-Identifier: Apache-2.0
"""Whether a pod moves by surge: one more replica is Ready on the target before the pod goes.

A surge raises the count of the workload by one and lowers it again, so it is possible only
where nothing else writes the count, two pods may run side by side, and the workload is at
rest. What is not possible has a name. The only replica of a workload then stays, unless
`singleReplica` allows to move it with a gap; pods of other workloads are evicted as usual.
A workload that will be at rest soon is waited for, because an eviction would leave a gap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from common.api.contract import SURGE
from common.cluster.disruption import AmountError, scaled
from common.cluster.migrations import MigrationRecord
from common.cluster.records import PodRecord
from common.cluster.workloads import WorkloadRecord
from common.config import SingleReplica, Surge
from rebalancer.evictability.context import Context, OwnerStatus
from rebalancer.evictability.storage import claim_on_one_node
from rebalancer.refusals import Reason, Refusal

REVERTED_S: Final = 86_400.0
"""A workload whose raise was reverted has an owner that insists on its count."""
SOON_S: Final = 600.0
"""How long a rollout without progress or a pod that starts is waited for.

That is the default of `progressDeadlineSeconds` of a Deployment.
"""
_OFF: Final = Reason.SURGE_OFF.refusal()
_REPLICA_SET: Final = "ReplicaSet.apps"


def will_surge(pod: PodRecord, context: Context) -> bool:
    """Tell whether the pod would move by surge."""
    return why_no_surge(pod, context) is None


def surge_is_possible(pod: PodRecord, context: Context) -> Refusal | None:
    """The gate of a Migration that asks for a surge, and of a pod that should wait for one.

    An eviction while a workload is rolled out or scaled would leave a gap. It is waited for only
    as long as that goes on, so that a broken workload does not keep a node from being emptied.
    """
    if context.surge is False:
        return None
    refusal = why_no_surge(pod, context)
    return refusal if refusal is None or context.surge else _if_worth_waiting(refusal, pod, context)


def _if_worth_waiting(refusal: Refusal, pod: PodRecord, context: Context) -> Refusal | None:
    owner = context.replacing_owner(pod)
    if refusal.name != Reason.WORKLOAD_NOT_AT_REST or owner is None or owner.workload is None:
        return None
    # Otherwise the only replica has a gate of its own.
    may_be_evicted = owner.replicas != 1 or context.config.single_replica is SingleReplica.ALLOW
    soon = may_be_evicted and _rests_soon(owner.workload, owner, context)
    return refusal if soon else None


def why_no_surge(pod: PodRecord, context: Context) -> Refusal | None:
    """Return why the pod does not move by surge; `SurgeOff` if it is not wanted."""
    owner = context.replacing_owner(pod)
    workload = owner.workload if owner is not None else None
    if owner is None or workload is None or not _is_scaled(owner, workload):
        return _OFF
    found = _mode(workload, context)
    if isinstance(found, Refusal):
        return found
    if found is Surge.NEVER or (found is Surge.SINGLE_REPLICA and owner.replicas != 1):
        return _OFF
    against = (obstacle(pod, workload, context) for obstacle in OBSTACLES)
    return next((refusal for refusal in against if refusal is not None), None)


def _rests_soon(workload: WorkloadRecord, owner: OwnerStatus, context: Context) -> bool:
    if workload.observed_generation < workload.generation:
        return True
    if workload.progressed_s is not None and context.now_s < workload.progressed_s + SOON_S:
        return True
    since_s = context.now_s - SOON_S - workload.min_ready_s
    young = context.snapshot.by_owner[owner.controller_id].values()
    return any(p.placed_s > since_s and not (p.terminating or p.finished) for p in young)


def _is_scaled(owner: OwnerStatus, workload: WorkloadRecord) -> bool:
    """A Deployment is scaled, never its ReplicaSet; a ReplicaSet only if it says so itself."""
    if owner.kind != _REPLICA_SET:
        return False
    bare = workload.kind == "ReplicaSet" and workload.owner is None
    return workload.kind == "Deployment" or (bare and SURGE in workload.annotations)


def _mode(workload: WorkloadRecord, context: Context) -> Surge | Refusal:
    text = workload.annotations.get(SURGE)
    if text is None:
        return context.config.surge
    # `surge: Never` also takes away the permission, so no annotation can turn it on.
    if context.config.surge is Surge.NEVER:
        return Surge.NEVER
    try:
        return Surge(text)
    except ValueError:
        return Reason.SURGE_UNKNOWN.refusal(annotation=SURGE, value=text)


def may_run_twice(_: PodRecord, workload: WorkloadRecord, __: Context) -> Refusal | None:
    """Recreate and maxSurge 0 mean that no two of its pods may run for one replica."""
    if workload.kind != "Deployment" or _allows_one_more(workload):
        return None
    return Reason.SURGE_FORBIDDEN.refusal(name=workload.name)


def _allows_one_more(workload: WorkloadRecord) -> bool:
    try:
        # Rounded up as ResolveFenceposts does (pkg/controller/deployment/util).
        return scaled(workload.max_surge, max(workload.desired, 1)) >= 1
    except AmountError:
        return False


def not_paused(_: PodRecord, workload: WorkloadRecord, __: Context) -> Refusal | None:
    return Reason.ROLLOUT_PAUSED.refusal(name=workload.name) if workload.paused else None


def not_autoscaled(_: PodRecord, workload: WorkloadRecord, context: Context) -> Refusal | None:
    found = context.autoscaler_of(workload)
    return None if found is None else Reason.AUTOSCALED.refusal(autoscaler=found)


def no_volume_on_one_node(pod: PodRecord, _: WorkloadRecord, context: Context) -> Refusal | None:
    claim = claim_on_one_node(pod, context.snapshot)
    if claim is not None:
        return Reason.VOLUME_ON_ONE_NODE.refusal(volume=f"claim {claim}")
    if any(not disk.read_only for disk in pod.shape.disks):
        return Reason.VOLUME_ON_ONE_NODE.refusal(volume="disk")
    return None


def no_host_port(pod: PodRecord, _: WorkloadRecord, __: Context) -> Refusal | None:
    return Reason.HOST_PORT.refusal() if pod.shape.host_ports else None


def not_reverted_lately(_: PodRecord, workload: WorkloadRecord, context: Context) -> Refusal | None:
    ago_s = _since(context, workload, lambda m: m.raise_reverted_s)
    if ago_s is None or ago_s >= REVERTED_S:
        return None
    return Reason.SURGE_REVERTED.refusal(name=workload.name, hours=ago_s / 3600.0)


def no_wrong_pod_lately(_: PodRecord, workload: WorkloadRecord, context: Context) -> Refusal | None:
    cooldown_s = context.config.workload_cooldown.seconds
    ago_s = _since(context, workload, _wrong_pod_s)
    if ago_s is None or ago_s >= cooldown_s:
        return None
    return Reason.WRONG_POD_REMOVED.refusal("lately", name=workload.name)


def _since(
    context: Context, workload: WorkloadRecord, moment: Callable[[MigrationRecord], float | None]
) -> float | None:
    found = (moment(m) for m in context.surges_of(workload.controller_id))
    latest = max((at for at in found if at is not None), default=None)
    return None if latest is None else context.now_s - latest


def _wrong_pod_s(migration: MigrationRecord) -> float | None:
    return migration.finished_s if migration.has_reason(Reason.WRONG_POD_REMOVED) else None


def at_rest(_: PodRecord, workload: WorkloadRecord, context: Context) -> Refusal | None:
    """Binds maintenance as well: a rollout and a surge would fight for the same pods."""
    unrest = _unrest(workload, context.wanted_replicas(workload))
    named = f"{workload.kind} {workload.name}"
    return Reason.WORKLOAD_NOT_AT_REST.refusal(workload=named, unrest=unrest) if unrest else None


def _unrest(workload: WorkloadRecord, wanted: int) -> str:
    if workload.observed_generation < workload.generation:
        return "its controller has not seen its last change"
    updated = workload.updated if workload.kind == "Deployment" else workload.current
    if updated < wanted or workload.current > updated:
        return f"{updated} of {wanted} pods are updated, {workload.current} exist"
    if workload.available < wanted:
        return f"{workload.available} of {wanted} pods are available"
    return ""


Obstacle = Callable[[PodRecord, WorkloadRecord, Context], Refusal | None]

OBSTACLES: Final[tuple[Obstacle, ...]] = (
    may_run_twice,
    not_paused,
    not_autoscaled,
    no_volume_on_one_node,
    no_host_port,
    not_reverted_lately,
    no_wrong_pod_lately,
    at_rest,
)
"""What stands against a surge, what lasts longest first."""
