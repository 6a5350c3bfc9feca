"""The labels and annotations that show on a pod that it is being moved.

They are a courtesy: who may not set them, or cannot, moves the pod all the same. They are
merged in by key, so nobody else's change is lost, and only into the pod that is meant. A pod
that stays loses them again.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from common.cluster.migrations import MigrationRecord, Phase
from common.contract import (
    MIGRATED_FROM_LABEL,
    MIGRATION_ID_LABEL,
    MIGRATION_REASON_LABEL,
    MIGRATION_STATUS_LABEL,
    MIGRATION_TIME,
    ORIGINAL_POD,
    ORIGINAL_POD_NAME,
)
from common.kube.errors import FINAL, KubeError, NotFound
from common.kube.resources import PODS, Resource
from common.kube.timestamps import micro_time

LABELS: Final = (
    MIGRATION_ID_LABEL,
    MIGRATION_STATUS_LABEL,
    MIGRATED_FROM_LABEL,
    MIGRATION_REASON_LABEL,
)
ANNOTATIONS: Final = (MIGRATION_TIME, ORIGINAL_POD, ORIGINAL_POD_NAME)
_LONGEST: Final = 63
_HASH: Final = 8


class Marking(StrEnum):
    """What came of an attempt."""

    DONE = "done"
    GONE = "gone"
    """There is no such pod to mark."""
    REFUSED = "refused"
    """It would be refused again."""
    FAILED = "failed"
    """It may be tried again."""


class Marked(msgspec.Struct, frozen=True):
    """The result of one attempt, with the API's words."""

    result: Marking
    words: str = ""


class MarkClient(Protocol):
    """The part of `KubeClient` that marking needs."""

    async def patch(self, resource: Resource, body: Any, *, name: str, namespace: str) -> bytes: ...


class Marks:
    """Sets and removes marks, as far as it is let."""

    def __init__(self, client: MarkClient) -> None:
        self._client = client

    async def put(self, migration: MigrationRecord, now_s: float) -> Marked:
        """Mark the pod that is to move."""
        metadata = {
            "uid": migration.pod_uid,
            "labels": labels_of(migration),
            "annotations": annotations_of(migration, now_s),
        }
        return await self._patch(migration.namespace, migration.pod_name, metadata)

    async def take_away(self, namespace: str, name: str, uid: str) -> Marked:
        """Remove the marks from a pod that stays; it need not have any."""
        metadata = {"labels": dict.fromkeys(LABELS), "annotations": dict.fromkeys(ANNOTATIONS)}
        return await self._patch(namespace, name, {"uid": uid, **metadata})

    async def _patch(self, namespace: str, name: str, metadata: dict[str, Any]) -> Marked:
        # Another pod of this name has another uid, which no patch can change: 422.
        where = {"name": name, "namespace": namespace}
        body = {"metadata": metadata}
        try:
            await self._client.patch(PODS, body, **where)
        except NotFound:
            return Marked(Marking.GONE)
        except FINAL as error:
            return Marked(Marking.REFUSED, str(error))
        except KubeError as error:
            return Marked(Marking.FAILED, str(error))
        return Marked(Marking.DONE)


def labels_of(migration: MigrationRecord) -> dict[str, Any]:
    """Return the labels of a pod that is being moved; every value is a valid one."""
    return {
        MIGRATION_ID_LABEL: shortened(migration.name),
        MIGRATION_STATUS_LABEL: Phase.IN_PROGRESS.value,
        MIGRATED_FROM_LABEL: shortened(migration.source),
        MIGRATION_REASON_LABEL: migration.reason,
    }


def annotations_of(migration: MigrationRecord, now_s: float) -> dict[str, Any]:
    """Return its annotations, which hold what labels have no room for."""
    return {
        MIGRATION_TIME: micro_time(now_s),
        ORIGINAL_POD: f"{migration.namespace}/{migration.pod_name}",
        ORIGINAL_POD_NAME: migration.pod_name,
    }


def shortened(name: str) -> str:
    """Return a name as a label value: as it is, or its beginning and a hash of all of it."""
    if len(name) <= _LONGEST:
        return name
    ending = hashlib.sha256(name.encode()).hexdigest()[:_HASH]
    return f"{name[: _LONGEST - _HASH - 1].rstrip('-.')}-{ending}"
