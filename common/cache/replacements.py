# SPDX-License-Identifier: Apache-2.0
"""Which pods can be the replacement that a Migration waits for.

Controllers make their replacements without saying what they replace, so a pod is
recognised by what it shares with the moved one: its controller, and where pods of a
controller are not alike, also its name or its index. Both programs go by the same rule;
otherwise one would steer a pod that the other does not look at.

A pod says itself who its controller is, and its author can write anything there. So a
controller is known by namespace, kind and uid together. That it exists is vouched for by
the Migration: it is written only for a pod whose controller was there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from common.api.contract import COMPLETION_INDEX
from common.cache.snapshot import Snapshot
from common.cluster.migrations import MigrationRecord
from common.cluster.records import ControllerId, PodRecord

Key = tuple[ControllerId, str] | tuple[str, str]
"""What a moved pod and its replacement have in common: a controller and a distinction among
its pods, or of bare pods namespace and name."""

ELSEWHERE: Final = 2
SKEW_S: Final = 60.0
"""The clocks of two API servers of one cluster do not differ by more."""
_ALIKE: Final = frozenset({"ReplicaSet", "ReplicationController"})


def key_of_migration(migration: MigrationRecord) -> Key | None:
    """Return what the replacement will be known by; None if it cannot be recognised."""
    controller = migration.controller_id
    if controller is None:
        name = migration.replacement_name
        return (migration.namespace, name) if name else None
    if controller.kind in _ALIKE:
        return controller, ""
    if controller.kind == "StatefulSet":
        return controller, migration.pod_name
    if controller.kind == "Job" and migration.completion_index is not None:
        return controller, str(migration.completion_index)
    return None


def key_of_pod(pod: PodRecord) -> Key | None:
    """Return what a pod would be recognised by as a replacement."""
    controller = pod.controller_id
    if controller is None:
        return pod.namespace, pod.name
    if controller.kind in _ALIKE:
        return controller, ""
    if controller.kind == "StatefulSet":
        return controller, pod.name
    if controller.kind == "Job":
        index = pod.annotations.get(COMPLETION_INDEX)
        return (controller, index) if index else None
    return None


def is_younger(migration: MigrationRecord, pod: PodRecord) -> bool:
    """Tell whether a pod of the same key says that it was made after, or in the same second."""
    return pod.uid != migration.pod_uid and pod.created_s >= migration.created_s


def may_replace(migration: MigrationRecord, pod: PodRecord) -> bool:
    """Tell whether a pod of the same key can have been made after the eviction.

    Each API server stamps with its own clock, so times alone do not tell. Where it was written
    down which pods were there before the eviction, that decides; times only tell which to write.
    """
    if not migration.controller_kind:
        # The copy of a bare pod has a name that was made up for it.
        return maybe_younger(migration, pod)
    if migration.present is None:
        return is_younger(migration, pod)
    return pod.uid not in migration.present and maybe_younger(migration, pod)


def maybe_younger(migration: MigrationRecord, pod: PodRecord) -> bool:
    """Tell whether a pod may be younger than the Migration, by whichever clocks."""
    return pod.uid != migration.pod_uid and pod.created_s >= migration.created_s - SKEW_S


def has_replaced(migration: MigrationRecord, pod: PodRecord) -> bool:
    """Tell whether a pod of the same key that has a node is to be taken for the replacement.

    Times are whole seconds. A pod of the same second may be the older one; only where it
    runs tells, or that it was not there before.
    """
    if not pod.node or not may_replace(migration, pod):
        return False
    known = migration.present is not None or not migration.controller_kind
    return known or pod.created_s > migration.created_s or nearness(migration, pod.node) < ELSEWHERE


def nearness(migration: MigrationRecord, node: str) -> int:
    """Return 0 for the target, 1 for an alternative, ELSEWHERE for any other node."""
    if node == migration.target:
        return 0
    return 1 if node in migration.alternatives else ELSEWHERE


def candidates(migration: MigrationRecord, cluster: Snapshot) -> Iterable[PodRecord]:
    """Return the pods with the Migration's key, whether they may replace or not."""
    key = key_of_migration(migration)
    controller = migration.controller_id
    if controller is not None:
        found = cluster.by_owner[controller].values()
        return [pod for pod in found if key_of_pod(pod) == key]
    named = cluster.pods_by_name.get(f"{migration.namespace}/{migration.replacement_name}")
    return [named] if named is not None and key_of_pod(named) == key else []
