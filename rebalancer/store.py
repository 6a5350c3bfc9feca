# SPDX-License-Identifier: Apache-2.0
"""The newest that this process knows of each Migration, and the only writer of Migrations.

A watch shows our own writes late. Until it does, the answer to the write stands in for the
cache. Without it the next plan would use room and limits that a new Migration takes, a step
would be taken twice, and two moves would each believe that the other has not begun.

An own write gives way as soon as the watch shows the same or a newer version of it. One of a
Migration that was deleted gives way too: what the watch has shown once and shows no longer is
gone. A Migration that was created and never shown stays until its deadline, also while the
watch still shows the failed one in whose place it was created.

Every change of a status carries the resourceVersion that it was decided on. If another writer
was faster, the API server refuses it with a Conflict, and the decision is made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from common.api.contract import GUIDE_LABEL, PREDICTED_USE, SURGE_FINALIZER, SURGE_REVERTED
from common.api.migrations import Migration, MigrationSpec, Uses, new_migration
from common.cache.snapshot import Snapshot
from common.cache.state import ClusterState
from common.clock import Clock
from common.cluster.migrations import MigrationRecord, migration_record
from common.cluster.records import PodUid
from common.config import Guide
from common.kube.api import KubeApi
from common.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from common.kube.resources import MIGRATIONS
from common.kube.timestamps import to_the_second
from common.load import Load
from common.metrics import Metrics
from common.null_json import UNDECODABLE, JsonDecoder

log: structlog.stdlib.BoundLogger = structlog.get_logger()

StatusChange = dict[str, Any]  # Any: a piece of JSON


class CreateResult(StrEnum):
    """What became of a Migration that was to be created."""

    CREATED = "created"
    EXISTS = "exists"
    FAILED = "failed"


class Creation(NamedTuple):
    """The result, and the Migration as the API server keeps it."""

    result: CreateResult
    record: MigrationRecord | None = None


class _OwnWrite(NamedTuple):
    """The answer to a write of ours."""

    record: MigrationRecord
    shown: bool
    """The watch has shown this Migration, if not this version of it."""

    def superseded_by(self, seen: MigrationRecord | None, now_s: float) -> bool:
        """Tell whether what the watch shows is at least as new as this write."""
        mine = self.record
        if seen is not None and seen.uid == mine.uid:
            # Versions of one resource are comparable numbers (KEP-5504, CompareResourceVersion in
            # apimachinery/pkg/util/resourceversion/resourceversion.go).
            return seen.resource_version >= mine.resource_version
        if self.shown:
            # Deleted, or deleted and created again: another uid is another Migration.
            return True
        # The watch may still show the failed Migration that this one was created in place of.
        replaced = seen is not None and seen.created_s > mine.created_s
        return replaced or now_s >= mine.deadline_s


class MigrationStore:
    """Reads and writes Migrations, and keeps places for those that may begin."""

    def __init__(
        self, client: KubeApi, state: ClusterState, *, clock: Clock, metrics: Metrics
    ) -> None:
        self._client = client
        self.state: Final = state
        self._clock = clock
        self._own: dict[str, _OwnWrite] = {}
        self._reserved: set[str] = set()
        self._decoder = JsonDecoder(Migration)
        self._total = metrics.counter(
            "migrations_written_total", "Migrations created for plans, by result.", ("result",)
        )
        state.migrations.listen(self._on_migration)

    @property
    def reserved(self) -> frozenset[str]:
        """The uids of open Migrations that were allowed to begin and may not show it yet."""
        return frozenset(self._reserved)

    def reserve(self, uid: str) -> None:
        """Keep a place in all limits for a Migration that may begin."""
        self._reserved.add(uid)

    def release(self, uid: str) -> None:
        """Give up the place of a Migration that may not begin or go on."""
        self._reserved.discard(uid)

    def current(self, name: str) -> MigrationRecord | None:
        """Return the newest version of a Migration; None if there is none."""
        seen, own = self.state.migrations.records.get(name), self._own.get(name)
        if own is None or own.superseded_by(seen, self._clock.now()):
            return seen
        return own.record

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is known, with own writes in it."""
        return self.overlay(self.state.snapshot())

    def overlay(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot with the own writes that it does not show yet."""
        seen, now_s = snapshot.migrations, self._clock.now()
        newer = {
            name: own.record
            for name, own in self._own.items()
            if not own.superseded_by(seen.get(name), now_s)
        }
        if not newer:
            return snapshot
        return msgspec.structs.replace(snapshot, migrations={**seen, **newer})

    def predecessors(self) -> Mapping[PodUid, Load]:
        """Return what pods used that were replaced, by the uid of the replacement."""
        return {
            migration.replacement_uid: Load(migration.load_cpu_milli, migration.load_mem_bytes)
            for migration in self.state.snapshot().migrations.values()
            if migration.replacement_uid and migration.load_cpu_milli > 0.0
        }

    async def create(
        self, spec: MigrationSpec, predicted: Uses, before: MigrationRecord | None = None
    ) -> Creation:
        """Create a Migration, in place of an earlier one of the pod that has failed.

        An error is a value: the next cycle plans again anyway.
        """
        created = await self._create(spec, predicted, before)
        self._total.labels(created.result.value).inc()
        if created.record is not None:
            self._forget_overdue()
            self._keep(created.record, shown=False)
        return created

    async def update_status(
        self, migration: MigrationRecord, change: StatusChange
    ) -> MigrationRecord:
        """Change the status; raise Conflict if the Migration is not what it was."""
        # A merge patch replaces lists as a whole: without the version one of two writers would
        # lose a condition.
        version = {"resourceVersion": str(migration.resource_version)}
        answer = await self._client.patch(
            MIGRATIONS,
            {"metadata": version, "status": change},
            name=migration.name,
            subresource="status",
        )
        return self._answered(answer)

    async def read(self, name: str) -> MigrationRecord:
        """Ask the API server for a Migration as it is now."""
        return self._answered(await self._client.get(MIGRATIONS.path(name=name)))

    async def hold(self, migration: MigrationRecord) -> MigrationRecord:
        """Add our finalizer: what is about to be done may have to be undone."""
        return await self._finalize(migration, [SURGE_FINALIZER])

    async def let_go(self, migration: MigrationRecord) -> MigrationRecord:
        """Remove our finalizer: nothing is left that would have to be undone."""
        return await self._finalize(migration, [])

    async def guide(self, migration: MigrationRecord) -> MigrationRecord:
        """Let the API server send the replacement to its target."""
        return await self._label(migration, Guide.ADMISSION)

    async def unguide(self, migration: MigrationRecord) -> MigrationRecord:
        """Let the API server no longer look at a Migration that is over."""
        return await self._label(migration, None)

    async def _label(self, migration: MigrationRecord, value: str | None) -> MigrationRecord:
        changed = {"uid": migration.uid, "labels": {GUIDE_LABEL: value}}
        answer = await self._client.patch(MIGRATIONS, {"metadata": changed}, name=migration.name)
        return self._answered(answer)

    async def _finalize(self, migration: MigrationRecord, ours: list[str]) -> MigrationRecord:
        found = self._decoder.decode(await self._client.get(MIGRATIONS.path(name=migration.name)))
        meta = found.metadata
        others = [each for each in meta.finalizers or () if each != SURGE_FINALIZER]
        # A merge patch replaces the list as a whole, so it is conditional on what was read.
        changed = {"resourceVersion": meta.resource_version, "finalizers": [*others, *ours]}
        answer = await self._client.patch(MIGRATIONS, {"metadata": changed}, name=migration.name)
        return self._answered(answer)

    async def remove(self, migration: MigrationRecord) -> None:
        """Delete exactly this Migration."""
        # With the uid as a precondition, one that was created again in its place stays.
        await self._client.delete(MIGRATIONS, name=migration.name, uid=migration.uid)

    async def _create(
        self, spec: MigrationSpec, predicted: Uses, before: MigrationRecord | None
    ) -> Creation:
        body = new_migration(spec)
        body["metadata"]["annotations"] = {
            PREDICTED_USE: msgspec.json.encode(predicted).decode(),
            **_remembered(before),
        }
        try:
            if before is not None:
                # If it is gone already, creating shows whether another one is in its place.
                with suppress(NotFound, Conflict):
                    await self.remove(before)
            created = self._decoder.decode(await self._client.create(MIGRATIONS, body))
        except AlreadyExists:
            return Creation(CreateResult.EXISTS)
        except (KubeError, *UNDECODABLE) as error:
            pod = f"{spec.pod.namespace}/{spec.pod.name}"
            log.warning("migration not created", pod=pod, plan_id=spec.plan_id, error=str(error))
            return Creation(CreateResult.FAILED)
        return Creation(CreateResult.CREATED, migration_record(created, self.state.shared))

    def _answered(self, answer: bytes) -> MigrationRecord:
        record = migration_record(self._decoder.decode(answer), self.state.shared)
        own = self._own.get(record.name)
        # An answer does not prove that the watch has shown a Migration that we created.
        unseen = own is not None and own.record.uid == record.uid and not own.shown
        self._keep(record, shown=not unseen)
        if not record.open:
            self.release(record.uid)
        return record

    def _keep(self, record: MigrationRecord, *, shown: bool) -> None:
        own = _OwnWrite(record, shown)
        if own.superseded_by(self.state.migrations.records.get(record.name), self._clock.now()):
            self._own.pop(record.name, None)
        else:
            self._own[record.name] = own

    def _forget_overdue(self) -> None:
        """Forget Migrations that the watch never showed and whose deadline has passed."""
        now_s = self._clock.now()
        for name, own in tuple(self._own.items()):
            if not own.shown and now_s >= own.record.deadline_s:
                del self._own[name]

    def _on_migration(self, old: MigrationRecord | None, new: MigrationRecord | None) -> None:
        """Forget own writes that the watch shows, and places of Migrations that are over."""
        shown = {record.uid: record.name for record in (old, new) if record is not None}
        still_open = {new.uid} if new is not None and new.open else set()
        self._reserved -= shown.keys() - still_open
        for name in set(shown.values()):
            if (own := self._own.get(name)) is not None:
                self._keep(own.record, shown=own.shown or own.record.uid in shown)


def _remembered(before: MigrationRecord | None) -> dict[str, str]:
    """Return what has to be known of the Migration that a new one of the pod replaces."""
    reverted_s = before.raise_reverted_s if before is not None else None
    return {} if reverted_s is None else {SURGE_REVERTED: to_the_second(reverted_s)}
