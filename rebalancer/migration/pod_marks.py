# SPDX-License-Identifier: Apache-2.0
"""The labels and annotations that tell of a move: on the pod that is to go, and on its replacement.

The pod that is to go says which move that is and that it is in progress; a pod that stays loses
that again. The replacement says where it came from, why and when, for as long as it lives, so
that `kubectl get pods -l scheduler.alpha.kubernetes.io/migrated-from` shows what was moved.

They are best effort: a pod is moved even if they may not be set, or setting them fails. A
merge patch changes only these keys, so no other writer's change is lost, and its uid makes
sure that the right pod gets them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from common.api.contract import (
    MIGRATED_FROM_LABEL,
    MIGRATION_ID_LABEL,
    MIGRATION_REASON_LABEL,
    MIGRATION_STATUS_LABEL,
    MIGRATION_TIME,
    ORIGINAL_POD,
    ORIGINAL_POD_NAME,
)
from common.api.migrations import Phase
from common.cluster.migrations import MigrationRecord
from common.cluster.records import PodRecord
from common.kube.api import KubeApi
from common.kube.errors import FINAL, KubeError, NotFound
from common.kube.resources import PODS
from common.kube.timestamps import to_the_second
from rebalancer.migration.names import label_value

ORIGINAL_LABELS: Final = (MIGRATION_ID_LABEL, MIGRATION_STATUS_LABEL)
"""Those of the pod that is to go."""

# apimachinery, pkg/util/validation/validation.go, IsValidLabelValue.
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)


class MarkStatus(StrEnum):
    """The values of the label `migration-status`."""

    IN_PROGRESS = "in-progress"
    COMPLETED = "completed"
    FAILED = "failed"

    @classmethod
    def of(cls, phase: str) -> MarkStatus:
        """Return what a pod says while its Migration is in this phase."""
        ended = {Phase.COMPLETED.value: cls.COMPLETED, Phase.FAILED.value: cls.FAILED}
        return ended.get(phase, cls.IN_PROGRESS)


class MarkResult(StrEnum):
    """How an attempt ended."""

    DONE = "done"
    GONE = "gone"
    """There is no such pod to mark."""
    REFUSED = "refused"
    """It would be refused again."""
    FAILED = "failed"
    """It may be tried again."""


class MarkAttempt(msgspec.Struct, frozen=True):
    """The result of one attempt, with the API server's message."""

    result: MarkResult
    message: str = ""


class PodMeta(NamedTuple):
    """Which pod to patch."""

    name: str
    uid: str


class PodMarker:
    """Sets and removes the marks of pods."""

    def __init__(self, client: KubeApi) -> None:
        self._client = client

    async def mark(self, migration: MigrationRecord) -> MarkAttempt:
        """Mark the pod that is to go."""
        metadata = {"uid": migration.pod_uid, "labels": labels_of_original(migration)}
        return await self._patch(migration.namespace, migration.pod_name, metadata)

    async def mark_replacement(self, migration: MigrationRecord, pod: PodMeta) -> MarkAttempt:
        """Mark the replacement with where it comes from, and how far the move is."""
        metadata = {
            "uid": pod.uid,
            "labels": labels_of_replacement(migration),
            "annotations": annotations_of_replacement(migration),
        }
        return await self._patch(migration.namespace, pod.name, metadata)

    async def unmark(
        self, namespace: str, name: str, uid: str, before: Mapping[str, str] | None = None
    ) -> MarkAttempt:
        """Remove the marks of a pod that was to go and stays.

        `before` is what the same labels said of the move that brought the pod where it is.
        """
        labels = {**dict.fromkeys(ORIGINAL_LABELS), **(before or {})}
        return await self._patch(namespace, name, {"uid": uid, "labels": labels})

    async def _patch(self, namespace: str, name: str, metadata: dict[str, Any]) -> MarkAttempt:
        # Another pod of this name has another uid, which is immutable: 422 (apimachinery,
        # pkg/api/validation/objectmeta.go, ValidateObjectMetaAccessorUpdate).
        try:
            await self._client.patch(PODS, {"metadata": metadata}, name=name, namespace=namespace)
        except NotFound:
            return MarkAttempt(MarkResult.GONE)
        except FINAL as error:
            return MarkAttempt(MarkResult.REFUSED, str(error))
        except KubeError as error:
            return MarkAttempt(MarkResult.FAILED, str(error))
        return MarkAttempt(MarkResult.DONE)


def labels_of_original(migration: MigrationRecord) -> dict[str, str]:
    """Return the labels of the pod that is to go."""
    return {
        MIGRATION_ID_LABEL: label_value(migration.name),
        MIGRATION_STATUS_LABEL: MarkStatus.IN_PROGRESS.value,
    }


def labels_of_replacement(migration: MigrationRecord) -> dict[str, str]:
    """Return the labels of the pod that comes instead; every value is a valid one."""
    return {
        MIGRATION_ID_LABEL: label_value(migration.name),
        MIGRATION_STATUS_LABEL: MarkStatus.of(migration.phase).value,
        MIGRATED_FROM_LABEL: label_value(migration.source),
        MIGRATION_REASON_LABEL: label_value(migration.strategy),
    }


def annotations_of_replacement(migration: MigrationRecord) -> dict[str, str]:
    """Return its annotations: when the move began, and which pod it replaces."""
    began_s = migration.created_s if migration.started_s is None else migration.started_s
    return {
        MIGRATION_TIME: to_the_second(began_s),
        ORIGINAL_POD: migration.pod_uid,
        ORIGINAL_POD_NAME: migration.pod_name,
    }


def marks_before(
    pod: PodRecord | None, known: Mapping[str, MigrationRecord]
) -> dict[str, str] | None:
    """Return what the labels of a pod said before it was to go; None if it had none.

    A replacement that was to move on and stays is still the replacement of an earlier pod. Its
    annotations name that pod, and with it the Migration. Anyone who may write pods may have
    written them, so what is no label value counts as nothing.
    """
    if pod is None or MIGRATED_FROM_LABEL not in pod.labels:
        return None
    original = pod.annotations.get(ORIGINAL_POD, "")
    if not _LABEL_VALUE.fullmatch(label_value(original)):
        return None
    earlier = known.get(original)
    phase = Phase.COMPLETED.value if earlier is None else earlier.phase
    return {
        MIGRATION_ID_LABEL: label_value(original),
        MIGRATION_STATUS_LABEL: MarkStatus.of(phase).value,
    }
