"""Which workloads a temporary PodDisruptionBudget guards, and when it has to go.

Two budgets on one pod make the Eviction API answer 500, to us and to everybody else
(pkg/registry/core/pod/storage/eviction.go). So ours stands only where no other budget
covers any pod that it would cover, and never where it would itself forbid the eviction.
Pure: from a snapshot to a reason or an object.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any, Final

from common.cluster.disruption import ALWAYS_ALLOW, desired_healthy
from common.cluster.migrations import MigrationRecord
from common.cluster.records import OwnerUid
from common.cluster.selectors import Operator, Requirement, Selector
from common.cluster.snapshot import Snapshot
from common.cluster.workloads import BudgetRecord, WorkloadRecord
from common.config import TemporaryPdb
from common.contract import EXPIRES, PRODUCT, PRODUCT_LABEL, TEMPORARY_PDB_LABEL
from common.kube.resources import PDBS
from common.kube.timestamps import micro_time, parse_time
from rebalancer.migration.names import PDB_ENDING, temporary_pdb_name
from rebalancer.reasons import Refusal

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects

API_VERSIONS: Final = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicationController": "v1",
}
"""Kinds whose number of pods the disruption controller can ask for; others are not guarded."""

GUARDED: Final = "TemporaryPdb"
"""What a move says that has such a guard."""

_OFF: Final = Refusal("TemporaryPdbOff", "temporaryPdb is off")
_NOBODY: Final = Refusal("NothingToGuard", "no workload of a kind that can be guarded owns it")
_SINGLE: Final = Refusal("SingleReplica", "a budget for the only replica would forbid its move")


def workload_of(migration: MigrationRecord, snapshot: Snapshot) -> WorkloadRecord | None:
    """Return the top-level workload of the pod; what the Migration says of it comes last."""
    pod = snapshot.pods.get(migration.pod_uid)
    if pod is not None and (found := snapshot.top_workload(pod)) is not None:
        return found
    controller = snapshot.workload(migration.controller_id)
    above = controller.owner if controller is not None else None
    if above is not None and (top := snapshot.workload(above.within(migration.namespace))):
        return top
    return controller or snapshot.workload(migration.workload_id)


def guarded_uid(migration: MigrationRecord, snapshot: Snapshot) -> OwnerUid:
    """Return whose budget a Migration would need; known also after the workload is gone."""
    found = workload_of(migration, snapshot)
    return found.uid if found is not None else migration.workload_uid


def uids_in_use(snapshot: Snapshot, *, besides: str = "") -> frozenset[OwnerUid]:
    """Return the workloads of all open Migrations, besides the one of this name."""
    others = (m for m in snapshot.migrations.values() if m.open and m.name != besides)
    return frozenset(guarded_uid(migration, snapshot) for migration in others)


def is_ours(budget: BudgetRecord) -> bool:
    """Tell whether we made a budget; no other is ever touched.

    The label alone says nothing: anybody can set it on a budget of theirs, which the API server
    does not let us touch then (deploy/base/guards/pdb-guard.yaml).
    """
    named = budget.name.endswith(PDB_ENDING)
    return named and TEMPORARY_PDB_LABEL in budget.labels


def guarded_by(budget: BudgetRecord) -> OwnerUid:
    """Return the workload that a budget of ours was made for."""
    return OwnerUid(budget.labels.get(TEMPORARY_PDB_LABEL, ""))


def guards(budget: BudgetRecord, uid: OwnerUid) -> bool:
    """Tell whether a budget is the one that we made for this workload."""
    return is_ours(budget) and guarded_by(budget) == uid


def why_unguarded(
    workload: WorkloadRecord | None, snapshot: Snapshot, settings: TemporaryPdb | None
) -> Refusal | None:
    """Return why a workload gets no temporary budget; None if it is to have one."""
    if settings is None:
        return _OFF
    if workload is None or workload.kind not in API_VERSIONS or _selects_too_much(workload):
        return _NOBODY
    if workload.desired <= 1:
        return _SINGLE
    return _would_forbid(workload, settings) or _covered(workload, snapshot)


def why_to_be_removed(
    budget: BudgetRecord,
    snapshot: Snapshot,
    settings: TemporaryPdb | None,
    *,
    used: Container[OwnerUid],
    now_s: float,
) -> Refusal | None:
    """Return why one of our budgets has to go now; None lets it stand."""
    uid = guarded_by(budget)
    workload = snapshot.workloads.get(uid)
    # Anyone can put our label, with any uid, on a budget of their own.
    if workload is None or workload.namespace != budget.namespace:
        return Refusal("WorkloadGone", "the workload that it guarded is not there")
    unguarded = why_unguarded(workload, snapshot, settings)
    if unguarded is not None:
        return unguarded
    if expires_s(budget) <= now_s:
        return Refusal("Expired", "its time is over")
    if uid not in used:
        return Refusal("Unused", "no pod of its workload moves any more")
    return None


def expires_s(budget: BudgetRecord) -> float:
    """Return when a budget of ours goes; one that does not say is over already."""
    try:
        return parse_time(budget.annotations.get(EXPIRES, ""))
    except ValueError:
        return 0.0


def budget_for(workload: WorkloadRecord, settings: TemporaryPdb, ends_s: float) -> Json:
    """Return the temporary budget of a workload."""
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
            "ownerReferences": [_reference(workload)],
        },
        "spec": {
            "selector": _wire(workload.selector),
            # A pod that does not work is no reason to keep it where it is.
            "unhealthyPodEvictionPolicy": ALWAYS_ALLOW,
            **{key: value for key, value in limits.items() if value is not None},
        },
    }


def _selects_too_much(workload: WorkloadRecord) -> bool:
    """A budget without requirements covers the whole namespace."""
    return workload.selector.never or not workload.selector.requirements


def _would_forbid(workload: WorkloadRecord, settings: TemporaryPdb) -> Refusal | None:
    wanted = workload.desired
    kept = desired_healthy(settings.min_available, settings.max_unavailable, wanted)
    if kept < wanted:
        return None
    words = f"{workload.kind} {workload.name} wants {wanted} pods and temporaryPdb keeps {kept}"
    return Refusal("WouldForbid", f"{words}: none could move")


def _covered(workload: WorkloadRecord, snapshot: Snapshot) -> Refusal | None:
    found = next(_covering(workload, snapshot), None)
    return None if found is None else Refusal("CoveredByPdb", f"PDB {found.name} covers its pods")


def _covering(workload: WorkloadRecord, snapshot: Snapshot) -> Iterator[BudgetRecord]:
    """Yield the other budgets that cover a pod, now or next, which ours would cover too."""
    others = list(_others(workload, snapshot))
    if not others:
        return
    pods = snapshot.by_namespace[workload.namespace].values()
    # Replicas share their labels, as one object: each kind of pod is asked about once.
    labels = {id(pod.labels): pod.labels for pod in pods}.values()
    ours = [found for found in labels if workload.selector.matches(found)]
    for budget in others:
        if any(map(budget.selector.matches, (workload.template_labels, *ours))):
            yield budget


def _others(workload: WorkloadRecord, snapshot: Snapshot) -> Iterator[BudgetRecord]:
    """Yield the budgets of the namespace that ours would have to give way to."""
    near = [b for b in snapshot.budgets.values() if b.namespace == workload.namespace]
    standing = [budget.name for budget in near if guards(budget, workload.uid)]
    for budget in near:
        # Of two of ours that overlap the same one always stays; otherwise both would go.
        stays_below = standing and is_ours(budget) and budget.name > min(standing)
        if not guards(budget, workload.uid) and not stays_below:
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
    others = [r for r in selector.requirements if not _said(r, plain)]
    made: Json = {"matchLabels": plain} if plain else {}
    return made | ({"matchExpressions": list(map(_expression, others))} if others else {})


def _said(requirement: Requirement, plain: Mapping[str, str]) -> bool:
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
