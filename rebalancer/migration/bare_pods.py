# SPDX-License-Identifier: Apache-2.0
"""Replaces pods that no controller would replace: a copy first, the eviction afterwards.

The copy has the name that the Migration gives it, so a repeated step finds it instead of
creating a second one; an annotation with the uid of the original proves that it is ours. It
is removed only while the original exists and stays: one of the two always remains.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

import msgspec
import structlog

from common.api.contract import COPY_OF
from common.api.migrations import Phase, Step, StepReason, migration_name
from common.cache.snapshot import Snapshot
from common.cache.state import ClusterState
from common.clock import Clock
from common.cluster.migrations import MigrationRecord
from common.cluster.records import FINISHED_PHASES, PodRecord, PodUid
from common.kube.api import KubeApi
from common.kube.errors import (
    FINAL,
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
)
from common.kube.resources import PODS
from common.metrics import Metrics
from rebalancer.migration.eviction import Stopped
from rebalancer.migration.pod_copy import Json, copy_of, is_copy_of, obstacles
from rebalancer.migration.verdicts import Fail, Proceed, Verdict, Wait
from rebalancer.migration.view import MigrationView
from rebalancer.refusals import Reason, Refusal

log: structlog.stdlib.BoundLogger = structlog.get_logger()

RETRY_S: Final = 5.0
SWEEP_EVERY_S: Final = 30.0


class _Pair(NamedTuple):
    """A copy and the original that it replaces."""

    namespace: str
    copy: str
    original: str
    uid: str
    """The original's."""


class BarePods:
    """Creates copies of bare pods, and removes those that are not needed."""

    def __init__(
        self, client: KubeApi, state: ClusterState, *, clock: Clock, metrics: Metrics
    ) -> None:
        self._client = client
        self._state = state
        self._clock = clock
        self._count = metrics.counter(
            "pod_copies_total",
            "Copies of bare pods: created, removed or failed.",
            ("result",),
        )

    async def replace(self, view: MigrationView, stopped: Stopped) -> Verdict:
        """Create the copy if it does not exist, unless `stopped`; Proceed once it exists."""
        migration = view.migration
        if not migration.done(Step.ACKNOWLEDGED):
            return Wait(Reason.NOT_ACKNOWLEDGED.refusal("copy"), RETRY_S)
        seen = view.snapshot.pods_by_name.get(_key(migration))
        if seen is not None:
            return _judge_watched(seen, migration)
        try:
            return await self._create(migration, stopped)
        except FINAL as error:
            return Fail(self._failed(Reason.COPY_REFUSED, error))
        except KubeError as error:
            return Wait(self._failed(Reason.COPY_UNAVAILABLE, error), RETRY_S)

    async def roll_back(self, migration: MigrationRecord) -> None:
        """Remove the copy if the original stays.

        Raises KubeError if that failed and may be repeated. A missing permission is only
        reported, because repeating would not help; the sweep tries again later.
        """
        if migration.replacement_name:
            await self._roll_back(_pair_of(migration))

    async def sweep(self, snapshot: Snapshot) -> None:
        """Remove copies of failed moves that were created after their rollback."""
        for migration in snapshot.migrations.values():
            if migration.phase == Phase.FAILED and _is_left_over(migration, snapshot):
                await self._sweep_pair(_pair_of(migration))

    async def sweep_strays(self, snapshot: Snapshot) -> None:
        """Remove copies that no Migration names any more.

        Migrations may be deleted while there is no leader, and a leader that hung may create a
        copy late.
        """
        for pair in await asyncio.to_thread(_strays, snapshot):
            await self._sweep_pair(pair)

    async def run(self) -> None:
        """Sweep periodically, forever."""
        while True:
            try:
                snapshot = self._state.snapshot()
                await self.sweep(snapshot)
                await self.sweep_strays(snapshot)
            except Exception:  # the next sweep may succeed
                log.exception("stale copies not removed")
            await self._clock.sleep(SWEEP_EVERY_S)

    async def _sweep_pair(self, pair: _Pair) -> None:
        try:
            await self._roll_back(pair)
        except KubeError as error:
            self._failed(Reason.COPY_STAYS, error)

    async def _roll_back(self, pair: _Pair) -> None:
        try:
            await self._remove_copy(pair)
        except Forbidden as error:
            self._failed(Reason.COPY_STAYS, error, "forbidden")

    async def _remove_copy(self, pair: _Pair) -> None:
        found = await self._read(pair.namespace, pair.copy)
        if found is None or not is_copy_of(found, pair.uid) or _ended_or_ending(found):
            return
        # Read last and from the API server: if the original is gone, the copy is all that is left.
        original = await self._read(pair.namespace, pair.original)
        if original is None or not _is_original(original, pair.uid):
            log.info("copy kept", pod=f"{pair.namespace}/{pair.copy}", why="the original is gone")
            return
        await self._delete(found)

    async def _create(self, migration: MigrationRecord, stopped: Stopped) -> Verdict:
        original = await self._read(migration.namespace, migration.pod_name)
        if original is None or not _is_original(original, migration.pod_uid):
            return Fail(Reason.ORIGINAL_GONE.refusal())
        found = ", ".join(obstacles(original))
        if found:
            return Fail(Reason.BARE_POD_NOT_COPYABLE.refusal(obstacles=found))
        # Asked last of all: reading takes time, in which moves may have been paused.
        if (why := stopped()) is not None:
            return Wait(Reason.COPY_STOPPED.refusal(cause=why))
        body = copy_of(original, migration.replacement_name)
        try:
            await self._client.create(PODS, body, namespace=migration.namespace)
        except AlreadyExists:
            # Most likely our own: the response to an earlier attempt may have been lost.
            return await self._judge_existing(migration)
        self._count.labels("created").inc()
        log.info("copy created", pod=_key(migration), original=migration.pod_name)
        return _proceed(migration)

    async def _judge_existing(self, migration: MigrationRecord) -> Verdict:
        """Judge a pod of the right name that the watch does not show."""
        found = await self._read(migration.namespace, migration.replacement_name)
        if found is None:
            return Wait(Reason.COPY_UNAVAILABLE.refusal("gone"))
        if not is_copy_of(found, migration.pod_uid):
            return Fail(_taken(migration))
        return Fail(_ended(migration)) if _ended_or_ending(found) else _proceed(migration)

    async def _delete(self, found: Json) -> None:
        metadata = found["metadata"]
        try:
            await self._client.delete(
                PODS,
                name=metadata["name"],
                namespace=metadata["namespace"],
                uid=metadata["uid"],
            )
        except (NotFound, Conflict):
            # Deleted, or replaced by another pod of that name.
            return
        self._count.labels("removed").inc()
        log.info("copy removed", pod=f"{metadata['namespace']}/{metadata['name']}")

    async def _read(self, namespace: str, name: str) -> Json | None:
        try:
            raw = await self._client.get(PODS.path(namespace=namespace, name=name))
        except NotFound:
            return None
        return msgspec.json.decode(raw, type=Json)

    def _failed(self, reason: Reason, error: KubeError, case: str = "") -> Refusal:
        self._count.labels("failed").inc()
        message = error.message if isinstance(error, ApiError) else str(error)
        log.warning("request for a copy failed", reason=reason.value, error=message)
        return reason.refusal(case, error=message)


def _judge_watched(seen: PodRecord, migration: MigrationRecord) -> Verdict:
    if seen.annotations.get(COPY_OF) != migration.pod_uid:
        return Fail(_taken(migration))
    return Fail(_ended(migration)) if seen.terminating or seen.finished else _proceed(migration)


def _is_left_over(migration: MigrationRecord, snapshot: Snapshot) -> bool:
    copy = snapshot.pods_by_name.get(_key(migration)) if migration.replacement_name else None
    if copy is None or copy.terminating or migration.evicted_s is not None:
        return False
    original = snapshot.pods.get(migration.pod_uid)
    return original is not None and not original.terminating


def _strays(snapshot: Snapshot) -> list[_Pair]:
    return [pair for pod in snapshot.pods.values() if (pair := _stray(pod, snapshot))]


def _stray(pod: PodRecord, snapshot: Snapshot) -> _Pair | None:
    """Return a copy with its original if the original stays and no Migration names the copy."""
    uid = PodUid(pod.annotations.get(COPY_OF, ""))
    original = snapshot.pods.get(uid) if uid else None
    if original is None or original.terminating or original.namespace != pod.namespace:
        return None
    migration = snapshot.migrations.get(migration_name(uid))
    if migration is not None and migration.replacement_name == pod.name:
        return None
    return _Pair(pod.namespace, pod.name, original.name, uid)


def _pair_of(migration: MigrationRecord) -> _Pair:
    copy, uid = migration.replacement_name, migration.pod_uid
    return _Pair(migration.namespace, copy, migration.pod_name, uid)


def _is_original(pod: Json, uid: str) -> bool:
    """Tell whether this is the pod that is to move, and it is not terminating."""
    return bool(pod["metadata"]["uid"] == uid) and not _ended_or_ending(pod)


def _ended_or_ending(pod: Json) -> bool:
    ended = pod.get("status", {}).get("phase") in FINISHED_PHASES
    return "deletionTimestamp" in pod["metadata"] or ended


def _key(migration: MigrationRecord) -> str:
    return f"{migration.namespace}/{migration.replacement_name}"


def _proceed(migration: MigrationRecord) -> Proceed:
    name = migration.replacement_name
    return Proceed(StepReason.COPY_CREATED, f"pod {name} stands in for it")


def _taken(migration: MigrationRecord) -> Refusal:
    return Reason.NAME_TAKEN.refusal(pod=migration.replacement_name)


def _ended(migration: MigrationRecord) -> Refusal:
    return Reason.COPY_ENDED.refusal(pod=migration.replacement_name)
