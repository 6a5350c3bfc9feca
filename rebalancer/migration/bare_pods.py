"""Replaces pods that no controller would replace: a copy first, the eviction afterwards.

The copy has the name that the Migration gives it, so whoever looks again finds it instead
of making a second one; that it is ours it says itself, by the uid of the original. It is
taken back only while the original is there and stays: of the two one always remains.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

import msgspec
import structlog

from common.clock import Clock
from common.cluster.migrations import MigrationRecord, Phase, Step, migration_name
from common.cluster.records import FINISHED_PHASES, PodRecord, PodUid
from common.cluster.snapshot import Snapshot
from common.cluster.state import ClusterState
from common.contract import COPY_OF
from common.kube.client import KubeClient
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
from rebalancer.migration.pod_copy import Json, copy_of, hindrances, is_copy_of
from rebalancer.migration.scene import Scene
from rebalancer.migration.verdicts import Fail, Proceed, Verdict, Wait
from rebalancer.reasons import Refusal

log: structlog.stdlib.BoundLogger = structlog.get_logger()

RETRY_S: Final = 5.0
SWEEP_EVERY_S: Final = 30.0

_EARLY: Final = Refusal(
    "NotAcknowledged", "not every extender knows yet where the copy belongs", for_good=False
)
_GONE: Final = Refusal("OriginalGone", "the pod is not there any more, or ends")


def _never() -> str | None:
    return None


class _Pair(NamedTuple):
    """A copy and the pod that it stands in for."""

    namespace: str
    copy: str
    original: str
    uid: str
    """The original's."""


class BarePods:
    """Makes copies of bare pods, and takes them back."""

    def __init__(
        self, client: KubeClient, state: ClusterState, *, clock: Clock, metrics: Metrics
    ) -> None:
        self._client = client
        self._state = state
        self._clock = clock
        self._count = metrics.counter(
            "pod_copies_total", "What was done with copies of bare pods.", ("result",)
        )

    async def replace(
        self, migration: MigrationRecord, scene: Scene, stopped: Stopped = _never
    ) -> Verdict:
        """Create the copy if it is not there, unless it is `stopped`; Proceed once it is."""
        if not migration.done(Step.ACKNOWLEDGED):
            return Wait(_EARLY, RETRY_S)
        seen = scene.snapshot.pods_by_name.get(_key(migration))
        if seen is not None:
            return _judge_seen(seen, migration)
        try:
            return await self._create(migration, stopped)
        except FINAL as error:
            return Fail(self._failed("CopyRefused", error, for_good=True))
        except KubeError as error:
            return Wait(self._failed("CopyUnavailable", error), RETRY_S)

    async def roll_back(self, migration: MigrationRecord, scene: Scene) -> None:
        """Remove the copy if the original stays.

        Raises KubeError when that could not be done now; asked again, it goes on. Who is not
        allowed to is not helped by asking: that is told, and left to the sweep.
        """
        if migration.replacement_name:
            await self._roll_back(_pair_of(migration))

    async def sweep(self, snapshot: Snapshot) -> None:
        """Take back copies of failed moves that came into being after their roll-back."""
        for migration in snapshot.migrations.values():
            if migration.phase == Phase.FAILED and _left_over(migration, snapshot):
                await self._swept(_pair_of(migration))

    async def sweep_strays(self, snapshot: Snapshot) -> None:
        """Take back copies that no Migration tells of any more.

        Migrations may vanish while nobody leads, and a leader that hung may make a copy late.
        """
        for pair in await asyncio.to_thread(_strays, snapshot):
            await self._swept(pair)

    async def run(self) -> None:
        """Sweep now and then, for ever."""
        while True:
            try:
                snapshot = self._state.snapshot()
                await self.sweep(snapshot)
                await self.sweep_strays(snapshot)
            except Exception:  # the next sweep may go well
                log.exception("copies not swept")
            await self._clock.sleep(SWEEP_EVERY_S)

    async def _swept(self, pair: _Pair) -> None:
        try:
            await self._roll_back(pair)
        except KubeError as error:
            self._failed("CopyStays", error)

    async def _roll_back(self, pair: _Pair) -> None:
        try:
            await self._take_back(pair)
        except Forbidden as error:
            self._failed("CopyStays", error, for_good=True)

    async def _take_back(self, pair: _Pair) -> None:
        found = await self._read(pair.namespace, pair.copy)
        if found is None or not is_copy_of(found, pair.uid) or _ending(found):
            return
        original = await self._read(pair.namespace, pair.original)
        if original is None or not _is_the_one(original, pair.uid):
            log.info("copy kept", pod=f"{pair.namespace}/{pair.copy}", why="the original is gone")
            return
        await self._delete(found)

    async def _create(self, migration: MigrationRecord, stopped: Stopped) -> Verdict:
        original = await self._read(migration.namespace, migration.pod_name)
        if original is None or not _is_the_one(original, migration.pod_uid):
            return Fail(_GONE)
        against = ", ".join(hindrances(original))
        if against:
            return Fail(Refusal("BarePodNotCopyable", f"no copy can stand in: {against}"))
        # Asked last of all: reading takes time, and someone may have paused meanwhile.
        if (why := stopped()) is not None:
            return Wait(Refusal("CopyStopped", f"no copy is made: {why}", for_good=False))
        body = copy_of(original, migration.replacement_name)
        try:
            await self._client.create(PODS, body, namespace=migration.namespace)
        except AlreadyExists:
            return await self._judge_existing(migration)
        self._count.labels("created").inc()
        log.info("copy created", pod=_key(migration), original=migration.pod_name)
        return _proceed(migration)

    async def _judge_existing(self, migration: MigrationRecord) -> Verdict:
        """Tell what a pod of the right name is that the watch does not show."""
        found = await self._read(migration.namespace, migration.replacement_name)
        if found is None:
            return Wait(Refusal("CopyUnavailable", "it was there and is not", for_good=False))
        if not is_copy_of(found, migration.pod_uid):
            return Fail(_taken(migration))
        return Fail(_ended(migration)) if _ending(found) else _proceed(migration)

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
            # Gone, or another pod by now.
            return
        self._count.labels("removed").inc()
        log.info("copy removed", pod=f"{metadata['namespace']}/{metadata['name']}")

    async def _read(self, namespace: str, name: str) -> Json | None:
        try:
            raw = await self._client.get(PODS.path(namespace=namespace, name=name))
        except NotFound:
            return None
        return msgspec.json.decode(raw, type=Json)

    def _failed(self, name: str, error: KubeError, *, for_good: bool = False) -> Refusal:
        self._count.labels("failed").inc()
        words = error.message if isinstance(error, ApiError) else str(error)
        log.warning("copy of a bare pod", trouble=name, error=words)
        return Refusal(name, words, for_good=for_good)


def _judge_seen(seen: PodRecord, migration: MigrationRecord) -> Verdict:
    if seen.annotations.get(COPY_OF) != migration.pod_uid:
        return Fail(_taken(migration))
    return Fail(_ended(migration)) if seen.terminating or seen.finished else _proceed(migration)


def _left_over(migration: MigrationRecord, snapshot: Snapshot) -> bool:
    copied = snapshot.pods_by_name.get(_key(migration)) if migration.replacement_name else None
    if copied is None or copied.terminating or migration.evicted_s is not None:
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
    told = snapshot.migrations.get(migration_name(uid))
    if told is not None and told.replacement_name == pod.name:
        return None
    return _Pair(pod.namespace, pod.name, original.name, uid)


def _pair_of(migration: MigrationRecord) -> _Pair:
    copied, uid = migration.replacement_name, migration.pod_uid
    return _Pair(migration.namespace, copied, migration.pod_name, uid)


def _is_the_one(pod: Json, uid: str) -> bool:
    """Tell whether this is the pod that is to move, and it is not on its way out."""
    return bool(pod["metadata"]["uid"] == uid) and not _ending(pod)


def _ending(pod: Json) -> bool:
    ended = pod.get("status", {}).get("phase") in FINISHED_PHASES
    return "deletionTimestamp" in pod["metadata"] or ended


def _key(migration: MigrationRecord) -> str:
    return f"{migration.namespace}/{migration.replacement_name}"


def _proceed(migration: MigrationRecord) -> Proceed:
    return Proceed("CopyCreated", f"pod {migration.replacement_name} stands in for it")


def _taken(migration: MigrationRecord) -> Refusal:
    return Refusal("NameTaken", f"pod {migration.replacement_name} is somebody else's")


def _ended(migration: MigrationRecord) -> Refusal:
    return Refusal("CopyEnded", f"its copy {migration.replacement_name} ended or was deleted")
