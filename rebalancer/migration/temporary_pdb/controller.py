# SPDX-License-Identifier: Apache-2.0
"""Temporary PodDisruptionBudgets for workloads that have none while their pods move.

One PDB per workload, shared by all its open Migrations: the first that needs it creates it,
each one that still needs it postpones its expiry, and it is removed with the last of them or
when it expires. No state is kept that matters: a label marks the PDBs that are ours, so a new
leader takes over what an old one has left. An object without that label is never touched,
even if the label was removed a moment ago: a deletion names the version that was read just
before.

Which workloads get one, and when it has to go, is decided in `rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import structlog

from common.api.contract import EXPIRES, TEMPORARY_PDB_LABEL
from common.api.migrations import StepReason
from common.api.objects import PodDisruptionBudget
from common.cache.snapshot import Snapshot
from common.cache.state import ClusterState
from common.clock import Clock
from common.cluster.migrations import MigrationRecord
from common.cluster.records import OwnerUid, PodRecord
from common.cluster.workloads import BudgetRecord, WorkloadRecord
from common.config import RebalancerConfiguration, TemporaryPdb
from common.kube.api import KubeApi
from common.kube.errors import (
    FINAL,
    AlreadyExists,
    ApiError,
    Conflict,
    KubeError,
    NotFound,
)
from common.kube.resources import PDBS
from common.kube.timestamps import micro_time
from common.metrics import Metrics
from common.null_json import JsonDecoder
from rebalancer.migration.names import temporary_pdb_name
from rebalancer.migration.temporary_pdb.rules import (
    budget_for,
    expires_s,
    guarded_by,
    guarded_uid,
    guards,
    is_ours,
    uids_in_use,
    why_to_be_removed,
    why_unguarded,
    workload_of,
)
from rebalancer.migration.verdicts import Fail, Proceed, Wait
from rebalancer.migration.view import MigrationView
from rebalancer.passes import Passes
from rebalancer.refusals import Reason, Refusal

log: structlog.stdlib.BoundLogger = structlog.get_logger()

SWEEP_EVERY_S: Final = 30.0
PAUSE_S: Final = 0.5
"""Between two sweeps, however much changes."""
RETRY_S: Final = 5.0
TRIES: Final = 3
"""How often a conflict is resolved by reading again, before the next reconciliation does it."""

_DECODER: Final = JsonDecoder(PodDisruptionBudget)

Protection = Proceed | Wait | Fail
"""What protecting a workload comes to."""
Configured = Callable[[], RebalancerConfiguration]
"""Returns the current configuration, which may be reloaded."""


class TemporaryPdbs:
    """Creates, shares, renews and removes temporary PDBs."""

    def __init__(
        self,
        client: KubeApi,
        state: ClusterState,
        *,
        config: Configured,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._client = client
        self._state = state
        self._config = config
        self._clock = clock
        self._made: dict[OwnerUid, tuple[str, str]] = {}
        """Namespace and name of what was created: the watch may not show it yet."""
        self._passes = Passes(clock, pause_s=PAUSE_S, every_s=SWEEP_EVERY_S)
        self._count = metrics.counter(
            "temporary_pdbs_total",
            "Temporary PDBs: created, renewed, removed or failed.",
            ("result",),
        )
        self._listen(state)

    async def protect(self, view: MigrationView) -> Protection:
        """Return Proceed once the PDB exists and allows the eviction, or is not wanted."""
        migration, snapshot = view.migration, view.snapshot
        settings = self._config().temporary_pdb
        workload = workload_of(migration, snapshot)
        unguarded = why_unguarded(workload, snapshot, settings)
        if unguarded is not None or workload is None or settings is None:
            reason = unguarded or Reason.NOTHING_TO_GUARD.refusal()
            return await self._without(migration, snapshot, reason)
        found = snapshot.budgets.get(f"{workload.namespace}/{temporary_pdb_name(workload.name)}")
        if found is None:
            return await self._create(workload, settings)
        if not guards(found, workload.uid):
            return _name_taken(found.name)
        trouble = await self._renew(found, settings)
        return trouble or _settled(found, view.pod)

    async def release(self, view: MigrationView) -> Protection:
        """Remove the PDB unless another open Migration of the workload needs it.

        Called after the Migration has ended, until it returns Proceed.
        """
        migration = view.migration
        uid = guarded_uid(migration, view.snapshot)
        if not uid or uid in uids_in_use(view.snapshot, besides=migration.name):
            return Proceed(StepReason.SHARED if uid else Reason.NOTHING_TO_GUARD)
        return await self._without(migration, view.snapshot, Reason.RELEASED.refusal())

    async def sweep(self, snapshot: Snapshot) -> None:
        """Remove what is expired, unused, or conflicts with another PDB."""
        settings, now_s = self._config().temporary_pdb, self._clock.now()
        ours = [budget for budget in snapshot.budgets.values() if is_ours(budget)]
        used = uids_in_use(snapshot) if ours else frozenset()
        for budget in ours:
            why = why_to_be_removed(budget, snapshot, settings, used=used, now_s=now_s)
            if why is None:
                continue
            if await self._remove(budget.namespace, budget.name, why) is None:
                self._made.pop(guarded_by(budget), None)

    async def run(self) -> None:
        """Sweep at once, whenever something relevant changes, and periodically."""
        await self._passes.run(
            lambda: self.sweep(self._state.snapshot()), "stale temporary pdbs not removed"
        )

    def _listen(self, state: ClusterState) -> None:
        state.budgets.listen(self._passes.on_change)
        state.migrations.listen(self._passes.on_change)
        for table in (state.deployments, state.replica_sets, state.stateful_sets):
            table.listen(self._passes.on_change)
        state.replication_controllers.listen(self._passes.on_change)

    async def _without(
        self, migration: MigrationRecord, snapshot: Snapshot, reason: Refusal
    ) -> Protection:
        """Make sure that no temporary PDB exists for the workload that is moved."""
        uid = guarded_uid(migration, snapshot)
        for namespace, name in self._standing(uid, migration.namespace, snapshot):
            trouble = await self._remove(namespace, name, reason)
            if trouble is not None:
                return Wait(trouble, RETRY_S) if trouble.for_now() else Fail(trouble)
        self._made.pop(uid, None)
        return Proceed(reason.name, reason.message)

    def _standing(
        self, uid: OwnerUid, namespace: str, snapshot: Snapshot
    ) -> Iterable[tuple[str, str]]:
        """Return where the temporary PDB of a workload is.

        In another namespace a PDB with this label is not ours to wait for: a tenant could
        create one that cannot be deleted.
        """
        near = (b for b in snapshot.budgets.values() if b.namespace == namespace)
        seen = {(b.namespace, b.name) for b in near if guards(b, uid)}
        made = self._made.get(uid)
        return sorted(seen if made is None else {*seen, made})

    async def _create(self, workload: WorkloadRecord, settings: TemporaryPdb) -> Protection:
        body = budget_for(workload, settings, self._clock.now() + settings.expiry.seconds)
        namespace, name = workload.namespace, body["metadata"]["name"]
        # Recorded first: the PDB may exist although its response was lost.
        self._made[workload.uid] = namespace, name
        try:
            await self._client.create(PDBS, body, namespace=namespace)
        except AlreadyExists:
            return await self._adopt(workload, name)
        except FINAL as error:
            # The API server has refused it, so nothing can exist.
            self._made.pop(workload.uid, None)
            return Fail(self._refused(Reason.TEMPORARY_PDB_REFUSED, error))
        except KubeError as error:
            return Wait(self._refused(Reason.TEMPORARY_PDB_UNAVAILABLE, error), RETRY_S)
        self._count.labels("created").inc()
        log.info("temporary pdb created", namespace=namespace, pdb=name)
        return _unsettled(name)

    async def _adopt(self, workload: WorkloadRecord, name: str) -> Protection:
        """Use a PDB of the right name if it has our label; the watch will show it."""
        try:
            found = await self._read(workload.namespace, name)
        except KubeError as error:
            return Wait(self._refused(Reason.TEMPORARY_PDB_UNAVAILABLE, error), RETRY_S)
        if found is None or _made_for(found) == workload.uid:
            return _unsettled(name)
        self._made.pop(workload.uid, None)
        return _name_taken(name)

    async def _renew(self, budget: BudgetRecord, settings: TemporaryPdb) -> Wait | None:
        """Postpone the expiry if more than half of the time is over."""
        now_s, length_s = self._clock.now(), settings.expiry.seconds
        if expires_s(budget) - now_s > length_s / 2:
            return None
        try:
            return await self._postpone(budget, micro_time(now_s + length_s))
        except KubeError as error:
            return Wait(self._refused(Reason.TEMPORARY_PDB_UNAVAILABLE, error), RETRY_S)

    async def _postpone(self, budget: BudgetRecord, ends: str) -> Wait | None:
        found = await self._read(budget.namespace, budget.name)
        if found is None or _made_for(found) is None:
            # Not ours any more: the watch will show what exists.
            return _unsettled(budget.name)
        body = {
            "metadata": {
                "resourceVersion": found.metadata.resource_version,
                "annotations": {EXPIRES: ends},
            }
        }
        try:
            await self._client.patch(PDBS, body, name=budget.name, namespace=budget.namespace)
        except (NotFound, Conflict):
            return _unsettled(budget.name)
        self._count.labels("renewed").inc()
        return None

    async def _remove(self, namespace: str, name: str, why: Refusal) -> Refusal | None:
        """Delete a PDB if it is ours; return what went wrong."""
        try:
            for _ in range(TRIES):
                if await self._removed(namespace, name, why):
                    return None
        except KubeError as error:
            case = "forbidden" if isinstance(error, FINAL) else ""
            return self._refused(Reason.TEMPORARY_PDB_STAYS, error, case)
        return Reason.TEMPORARY_PDB_STAYS.refusal("conflicts", pdb=name)

    async def _removed(self, namespace: str, name: str, why: Refusal) -> bool:
        """Tell whether it is gone or not ours; False after a conflict."""
        # Read from the API server, not from the cache: the label may be gone by now.
        found = await self._read(namespace, name)
        if found is None or _made_for(found) is None:
            return True
        meta = found.metadata
        try:
            await self._client.delete(
                PDBS,
                name=name,
                namespace=namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
            )
        except NotFound:
            return True
        except Conflict:
            return False
        self._count.labels("removed").inc()
        log.info("temporary pdb removed", namespace=namespace, pdb=name, reason=why.name)
        return True

    async def _read(self, namespace: str, name: str) -> PodDisruptionBudget | None:
        try:
            return _DECODER.decode(
                await self._client.get(PDBS.path(namespace=namespace, name=name))
            )
        except NotFound:
            return None

    def _refused(self, reason: Reason, error: KubeError, case: str = "") -> Refusal:
        self._count.labels("failed").inc()
        message = error.message if isinstance(error, ApiError) else str(error)
        log.warning("request for a temporary pdb failed", reason=reason.value, error=message)
        return reason.refusal(case, error=message)


def _made_for(budget: PodDisruptionBudget) -> str | None:
    return (budget.metadata.labels or {}).get(TEMPORARY_PDB_LABEL)


def _settled(budget: BudgetRecord, pod: PodRecord | None) -> Protection:
    """Proceed once the disruption controller has counted the pods and allows the eviction."""
    # Until then the Eviction API answers 429 anyway (eviction.go, checkAndDecrement).
    if budget.observed_generation < budget.generation:
        return _unsettled(budget.name)
    # A pod that is not Ready does not count: our PDBs have AlwaysAllow (eviction.go).
    if budget.disruptions_allowed < 1 and (pod is None or pod.ready):
        return Wait(
            Reason.PDB_EXHAUSTED.refusal(
                pdb=budget.name,
                left=0,
                healthy=budget.current_healthy,
                expected=budget.expected_pods,
                desired=budget.desired_healthy,
            )
        )
    return Proceed(StepReason.TEMPORARY_PDB, f"PDB {budget.name} guards its workload")


def _unsettled(name: str) -> Wait:
    return Wait(Reason.PDB_UNSETTLED.refusal("new", pdb=name), RETRY_S)


def _name_taken(name: str) -> Proceed:
    message = f"PDB {name} is not ours, so no temporary PDB is created"
    return Proceed(Reason.NAME_TAKEN, message)
