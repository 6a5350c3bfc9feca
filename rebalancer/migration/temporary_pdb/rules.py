# SPDX-License-Identifier: Apache-2.0
"""Which workloads a temporary PodDisruptionBudget guards, and when it has to go.

If two PDBs cover a pod, the Eviction API answers 500 to every client
(pkg/registry/core/pod/storage/eviction.go). So ours exists only where no other PDB covers
any pod that it would cover, and never where it would itself forbid the eviction.
Pure: from a snapshot to a reason or an object.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any, Final

from common.api.contract import EXPIRES, PRODUCT, PRODUCT_LABEL, TEMPORARY_PDB_LABEL
from common.cache.snapshot import Snapshot
from common.cluster.disruption import ALWAYS_ALLOW, desired_healthy
from common.cluster.migrations import MigrationRecord
from common.cluster.records import OwnerUid
from common.cluster.selectors import Operator, Requirement, Selector
from common.cluster.workloads import BudgetRecord, WorkloadRecord
from common.config import TemporaryPdb
from common.kube.resources import PDBS
from common.kube.timestamps import micro_time, parse_time
from rebalancer.migration.names import PDB_ENDING, temporary_pdb_name
from rebalancer.refusals import Reason, Refusal

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects

API_VERSIONS: Final = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicationController": "v1",
}
"""Kinds whose scale the disruption controller reads itself (pkg/controller/disruption, finders).
Others would need a scale subresource, and are not guarded."""


def workload_of(migration: MigrationRecord, snapshot: Snapshot) -> WorkloadRecord | None:
    """Return the top-level workload of the pod; the Migration's own claim comes last."""
    pod = snapshot.pods.get(migration.pod_uid)
    if pod is not None and (found := snapshot.top_workload(pod)) is not None:
        return found
    controller = snapshot.workload(migration.controller_id)
    above = controller.owner if controller is not None else None
    if above is not None and (top := snapshot.workload(above.within(migration.namespace))):
        return top
    return controller or snapshot.workload(migration.workload_id)


def guarded_uid(migration: MigrationRecord, snapshot: Snapshot) -> OwnerUid:
    """Return the workload whose PDB a Migration needs, even after the workload is gone."""
    found = workload_of(migration, snapshot)
    return found.uid if found is not None else migration.workload_uid


def uids_in_use(snapshot: Snapshot, *, besides: str = "") -> frozenset[OwnerUid]:
    """Return the workloads of all open Migrations except the one of this name."""
    others = (m for m in snapshot.migrations.values() if m.open and m.name != besides)
    return frozenset(guarded_uid(migration, snapshot) for migration in others)


def is_ours(budget: BudgetRecord) -> bool:
    """Tell whether a PDB is a temporary one of ours; no other is ever touched.

    The label alone proves nothing: any user can set it on another PDB, which the API server
    then does not let us touch (deploy/base/guards/pdb-guard.yaml).
    """
    named = budget.name.endswith(PDB_ENDING)
    return named and TEMPORARY_PDB_LABEL in budget.labels


def guarded_by(budget: BudgetRecord) -> OwnerUid:
    """Return the workload that a temporary PDB was created for."""
    return OwnerUid(budget.labels.get(TEMPORARY_PDB_LABEL, ""))


def guards(budget: BudgetRecord, uid: OwnerUid) -> bool:
    """Tell whether a PDB is the temporary one of this workload."""
    return is_ours(budget) and guarded_by(budget) == uid


def why_unguarded(
    workload: WorkloadRecord | None, snapshot: Snapshot, settings: TemporaryPdb | None
) -> Refusal | None:
    """Return why a workload gets no temporary PDB; None if it gets one."""
    if settings is None:
        return Reason.TEMPORARY_PDB_OFF.refusal()
    if workload is None or workload.kind not in API_VERSIONS or _selects_too_much(workload):
        return Reason.NOTHING_TO_GUARD.refusal()
    if workload.desired <= 1:
        return Reason.SINGLE_REPLICA.refusal("temporary PDB")
    return _would_forbid(workload, settings) or _covered(workload, snapshot)


def why_to_be_removed(
    budget: BudgetRecord,
    snapshot: Snapshot,
    settings: TemporaryPdb | None,
    *,
    used: Container[OwnerUid],
    now_s: float,
) -> Refusal | None:
    """Return why a temporary PDB has to be removed now; None keeps it."""
    uid = guarded_by(budget)
    workload = snapshot.workloads.get(uid)
    # Any user can put our label, with any uid, on a PDB.
    if workload is None or workload.namespace != budget.namespace:
        return Reason.WORKLOAD_GONE.refusal()
    unguarded = why_unguarded(workload, snapshot, settings)
    if unguarded is not None:
        return unguarded
    if expires_s(budget) <= now_s:
        return Reason.EXPIRED.refusal()
    if uid not in used:
        return Reason.UNUSED.refusal()
    return None


def expires_s(budget: BudgetRecord) -> float:
    """Return when a temporary PDB expires; one without a valid time has expired already."""
    try:
        return parse_time(budget.annotations.get(EXPIRES, ""))
    except ValueError:
        return 0.0


def budget_for(workload: WorkloadRecord, settings: TemporaryPdb, ends_s: float) -> Json:
    """Return the temporary PDB of a workload."""
    limits = {
        "minAvailable": settings.min_available,
        "maxUnavailable": settings.max_unavailable,
    }
    return {
        "apiVersion": PDBS.api_version,
        "kind": PDBS.kind,
        "metadata": {
            "name": temporary_pdb_name(workload.name),
            "namespace": workload.namespace,
            "labels": {PRODUCT_LABEL: PRODUCT, TEMPORARY_PDB_LABEL: workload.uid},
            "annotations": {EXPIRES: micro_time(ends_s)},
            # The garbage collector removes the PDB with its workload, even if we are gone.
            "ownerReferences": [_reference(workload)],
        },
        "spec": {
            "selector": _wire(workload.selector),
            # An unhealthy pod may leave: staying where it is does not help it.
            "unhealthyPodEvictionPolicy": ALWAYS_ALLOW,
            **{key: value for key, value in limits.items() if value is not None},
        },
    }


def _selects_too_much(workload: WorkloadRecord) -> bool:
    """A PDB without requirements would cover the whole namespace."""
    return workload.selector.never or not workload.selector.requirements


def _would_forbid(workload: WorkloadRecord, settings: TemporaryPdb) -> Refusal | None:
    wanted = workload.desired
    kept = desired_healthy(settings.min_available, settings.max_unavailable, wanted)
    if kept < wanted:
        return None
    name = f"{workload.kind} {workload.name}"
    return Reason.WOULD_FORBID.refusal(workload=name, desired=wanted, kept=kept)


def _covered(workload: WorkloadRecord, snapshot: Snapshot) -> Refusal | None:
    found = next(_covering(workload, snapshot), None)
    return None if found is None else Reason.COVERED_BY_PDB.refusal(pdb=found.name)


def _covering(workload: WorkloadRecord, snapshot: Snapshot) -> Iterator[BudgetRecord]:
    """Yield the other PDBs that cover a pod, existing or new, which ours would cover too."""
    others = list(_others(workload, snapshot))
    if not others:
        return
    pods = snapshot.by_namespace[workload.namespace].values()
    # Replicas share their labels as one object, so each set of labels is matched once.
    labels = {id(pod.labels): pod.labels for pod in pods}.values()
    ours = [found for found in labels if workload.selector.matches(found)]
    for budget in others:
        if any(map(budget.selector.matches, (workload.template_labels, *ours))):
            yield budget


def _others(workload: WorkloadRecord, snapshot: Snapshot) -> Iterator[BudgetRecord]:
    """Yield the PDBs of the namespace that ours would have to give way to."""
    near = [b for b in snapshot.budgets.values() if b.namespace == workload.namespace]
    standing = [budget.name for budget in near if guards(budget, workload.uid)]
    for budget in near:
        # Of two of ours that overlap, the first by name stays; otherwise both would go.
        gives_way = standing and is_ours(budget) and budget.name > min(standing)
        if not guards(budget, workload.uid) and not gives_way:
            yield budget


def _reference(workload: WorkloadRecord) -> Json:
    return {
        "apiVersion": API_VERSIONS[workload.kind],
        "kind": workload.kind,
        "name": workload.name,
        "uid": workload.uid,
    }


def _wire(selector: Selector) -> Json:
    plain = {r.key: value for r in selector.requirements if (value := _only_value(r)) is not None}
    others = [r for r in selector.requirements if not _in_match_labels(r, plain)]
    made: Json = {"matchLabels": plain} if plain else {}
    return made | ({"matchExpressions": list(map(_expression, others))} if others else {})


def _in_match_labels(requirement: Requirement, plain: Mapping[str, str]) -> bool:
    value = _only_value(requirement)
    return value is not None and plain[requirement.key] == value


def _only_value(requirement: Requirement) -> str | None:
    if requirement.operator is not Operator.IN or len(requirement.values) != 1:
        return None
    return next(iter(requirement.values))


def _expression(requirement: Requirement) -> Json:
    values = sorted(requirement.values)
    made: Json = {"key": requirement.key, "operator": str(requirement.operator)}
    return {**made, "values": values} if values else made
