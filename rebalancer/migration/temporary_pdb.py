"""The guard of a workload that has no PodDisruptionBudget while its pods move.

One budget per workload, shared by all its open Migrations: whoever needs it first makes it,
whoever needs it still puts off its end, and it goes with the last of them or when its time
is over. Nothing is remembered that matters: what is ours stands in a label, so a new leader
takes over whatever an old one has left. An object without that label is never touched, also
if it has taken the label off a moment ago: what is deleted was read just before, and only
that version of it goes.

Which workloads get one and when it has to go is decided in `rebalancer.migration.guarding`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import structlog

from common.clock import Clock, within
from common.cluster.migrations import MigrationRecord
from common.cluster.objects import PodDisruptionBudget
from common.cluster.records import OwnerUid, PodRecord
from common.cluster.snapshot import Snapshot
from common.cluster.state import ClusterState
from common.cluster.workloads import BudgetRecord, WorkloadRecord
from common.config import RebalancerConfiguration, TemporaryPdb
from common.contract import EXPIRES, TEMPORARY_PDB_LABEL
from common.kube.client import KubeClient
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
from rebalancer.migration.guarding import (
    GUARDED,
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
from rebalancer.migration.names import temporary_pdb_name
from rebalancer.migration.scene import Scene
from rebalancer.migration.verdicts import Fail, Proceed, Verdict, Wait
from rebalancer.reasons import Refusal

log: structlog.stdlib.BoundLogger = structlog.get_logger()

SWEEP_EVERY_S: Final = 30.0
PAUSE_S: Final = 0.5
"""Between two sweeps, however much changes."""
RETRY_S: Final = 5.0
TRIES: Final = 3
"""How often a conflict is solved by reading again before somebody else is let to."""

_DECODER: Final = JsonDecoder(PodDisruptionBudget)

Configured = Callable[[], RebalancerConfiguration]
"""Returns the configuration in force; it may change while we run."""


class TemporaryPdbs:
    """Makes, shares, renews and removes temporary budgets."""

    def __init__(
        self,
        client: KubeClient,
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
        """Namespace and name of what we asked for: the watch may not show it yet."""
        self._changed = asyncio.Event()
        self._count = metrics.counter(
            "temporary_pdbs_total", "What was done with temporary budgets.", ("result",)
        )
        self._listen(state)

    async def protect(self, migration: MigrationRecord, scene: Scene) -> Verdict:
        """Return Proceed once the budget stands and lets the pod go, or is not wanted."""
        snapshot, settings = scene.snapshot, self._config().temporary_pdb
        workload = workload_of(migration, snapshot)
        unguarded = why_unguarded(workload, snapshot, settings)
        if unguarded is not None or workload is None or settings is None:
            reason = unguarded or Refusal("NothingToGuard", "it has no workload")
            return await self._without(migration, snapshot, reason)
        found = snapshot.budgets.get(f"{workload.namespace}/{temporary_pdb_name(workload.name)}")
        if found is None:
            return await self._create(workload, settings)
        if not guards(found, workload.uid):
            return _name_taken(found.name)
        trouble = await self._renew(found, settings)
        return trouble or _settled(found, scene.pod)

    async def release(self, migration: MigrationRecord, scene: Scene) -> Verdict:
        """Take the budget away unless another open Migration of the workload needs it."""
        uid = guarded_uid(migration, scene.snapshot)
        if not uid or uid in uids_in_use(scene.snapshot, besides=migration.name):
            return Proceed("Shared" if uid else "NothingToGuard")
        released = Refusal("Released", "the last move ended")
        return await self._without(migration, scene.snapshot, released)

    async def sweep(self, snapshot: Snapshot) -> None:
        """Remove what is expired, unused, or in the way of somebody else's budget."""
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
        """Sweep at once, whenever something changes that matters, and now and then."""
        while True:
            self._changed.clear()
            try:
                await self.sweep(self._state.snapshot())
            except Exception:  # one odd answer must not leave the others unguarded
                log.exception("temporary pdbs not swept")
            await self._clock.sleep(PAUSE_S)
            with suppress(TimeoutError):
                await within(self._clock, SWEEP_EVERY_S, self._changed.wait())

    def _listen(self, state: ClusterState) -> None:
        state.budgets.listen(self._noticed)
        state.migrations.listen(self._noticed)
        for table in (state.deployments, state.replica_sets, state.stateful_sets):
            table.listen(self._noticed)
        state.replication_controllers.listen(self._noticed)

    def _noticed(self, _old: object, _new: object) -> None:
        self._changed.set()

    async def _without(
        self, migration: MigrationRecord, snapshot: Snapshot, reason: Refusal
    ) -> Verdict:
        """Make sure that no budget of ours stands for the workload that is moved."""
        uid = guarded_uid(migration, snapshot)
        for namespace, name in self._standing(uid, migration.namespace, snapshot):
            trouble = await self._remove(namespace, name, reason)
            if trouble is not None:
                return Fail(trouble) if trouble.for_good else Wait(trouble, RETRY_S)
        self._made.pop(uid, None)
        return Proceed(reason.name, reason.words)

    def _standing(
        self, uid: OwnerUid, namespace: str, snapshot: Snapshot
    ) -> Iterable[tuple[str, str]]:
        """Return where our budget of a workload stands.

        In another namespace a budget with this label is not ours to wait for: anyone can
        write one that cannot be deleted.
        """
        near = (b for b in snapshot.budgets.values() if b.namespace == namespace)
        seen = {(b.namespace, b.name) for b in near if guards(b, uid)}
        made = self._made.get(uid)
        return sorted(seen if made is None else {*seen, made})

    async def _create(self, workload: WorkloadRecord, settings: TemporaryPdb) -> Verdict:
        body = budget_for(workload, settings, self._clock.now() + settings.expiry.seconds)
        namespace, name = workload.namespace, body["metadata"]["name"]
        # Noted first: an answer that is lost may still be a budget that stands.
        self._made[workload.uid] = namespace, name
        try:
            await self._client.create(PDBS, body, namespace=namespace)
        except AlreadyExists:
            return await self._adopt(workload, name)
        except FINAL as error:
            self._made.pop(workload.uid, None)
            return Fail(self._refused("TemporaryPdbRefused", error, for_good=True))
        except KubeError as error:
            return Wait(self._refused("TemporaryPdbUnavailable", error), RETRY_S)
        self._count.labels("created").inc()
        log.info("temporary pdb created", namespace=namespace, pdb=name)
        return _unsettled(name)

    async def _adopt(self, workload: WorkloadRecord, name: str) -> Verdict:
        """Take a budget of the right name for ours if it says so; the watch will show it."""
        try:
            found = await self._read(workload.namespace, name)
        except KubeError as error:
            return Wait(self._refused("TemporaryPdbUnavailable", error), RETRY_S)
        if found is None or _made_for(found) == workload.uid:
            return _unsettled(name)
        self._made.pop(workload.uid, None)
        return _name_taken(name)

    async def _renew(self, budget: BudgetRecord, settings: TemporaryPdb) -> Verdict | None:
        """Put off the end if more than half of the time is over."""
        now_s, length_s = self._clock.now(), settings.expiry.seconds
        if expires_s(budget) - now_s > length_s / 2:
            return None
        try:
            return await self._put_off(budget, micro_time(now_s + length_s))
        except KubeError as error:
            return Wait(self._refused("TemporaryPdbUnavailable", error), RETRY_S)

    async def _put_off(self, budget: BudgetRecord, ends: str) -> Verdict | None:
        found = await self._read(budget.namespace, budget.name)
        if found is None or _made_for(found) is None:
            # Not ours any more: the watch will show what is there.
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
        """Delete a budget if it is ours; return what went wrong."""
        try:
            for _ in range(TRIES):
                if await self._removed(namespace, name, why):
                    return None
        except KubeError as error:
            for_good = isinstance(error, FINAL)
            return self._refused("TemporaryPdbStays", error, for_good=for_good)
        return Refusal("TemporaryPdbStays", f"PDB {name} changes all the time", for_good=False)

    async def _removed(self, namespace: str, name: str, why: Refusal) -> bool:
        """Tell whether it is gone or none of our business; false after a conflict."""
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

    def _refused(self, name: str, error: KubeError, *, for_good: bool = False) -> Refusal:
        self._count.labels("failed").inc()
        words = error.message if isinstance(error, ApiError) else str(error)
        log.warning("temporary pdb", trouble=name, error=words)
        return Refusal(name, words, for_good=for_good)


def _made_for(budget: PodDisruptionBudget) -> str | None:
    return (budget.metadata.labels or {}).get(TEMPORARY_PDB_LABEL)


def _settled(budget: BudgetRecord, pod: PodRecord | None) -> Verdict:
    """Proceed once the disruption controller has counted and lets the pod go."""
    if budget.observed_generation < budget.generation:
        return _unsettled(budget.name)
    # A pod that is not ready is let go without being counted: our budgets say so.
    if budget.disruptions_allowed < 1 and (pod is None or pod.ready):
        words = (
            f"PDB {budget.name} allows no disruption: {budget.current_healthy} of "
            f"{budget.expected_pods} pods healthy, {budget.desired_healthy} needed"
        )
        return Wait(Refusal("PdbExhausted", words, for_good=False))
    return Proceed(GUARDED, f"PDB {budget.name} guards its workload")


def _unsettled(name: str) -> Wait:
    words = f"PDB {name} is new and nobody has counted its pods yet"
    return Wait(Refusal("PdbUnsettled", words, for_good=False), RETRY_S)


def _name_taken(name: str) -> Proceed:
    return Proceed("NameTaken", f"PDB {name} is somebody else's, so no guard is made")
