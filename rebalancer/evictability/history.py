# SPDX-License-Identifier: Apache-2.0
"""When workloads and pods were moved last, as recorded by Migrations.

A lineage is a pod with its chain of replacements. The replacement of an ordinary pod has a
new uid, that of a StatefulSet's pod an old name: so a lineage is known by the uid of its
living pod, or by the set and the pod's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from common.api.migrations import Outcome, Phase
from common.cluster.migrations import MigrationRecord
from common.cluster.records import ControllerId, PodRecord

_STATEFUL_SET: Final = "StatefulSet"


class MoveHistory(msgspec.Struct, frozen=True):
    """When workloads and lineages were moved last, in seconds since the epoch."""

    workload_moved_s: Mapping[ControllerId, float] = msgspec.field(default_factory=dict)
    lineage_moved_s: Mapping[str, float] = msgspec.field(default_factory=dict)


NO_HISTORY: Final = MoveHistory()


def lineage_of(pod: PodRecord) -> str:
    """Return the key under which a pod's moves are recorded."""
    owner = pod.owner
    if owner is not None and owner.kind == _STATEFUL_SET:
        return f"{owner.uid}/{pod.name}"
    return pod.uid


def move_history(migrations: Iterable[MigrationRecord]) -> MoveHistory:
    """Return when workloads and lineages were moved last, from the moves that were carried out."""
    workloads: dict[ControllerId, float] = {}
    lineages: dict[str, float] = {}
    for migration in filter(was_carried_out, migrations):
        moved_s = migration.created_s if migration.finished_s is None else migration.finished_s
        workload, lineage = migration.workload_id, _lineage_after(migration)
        if workload is not None:
            workloads[workload] = max(moved_s, workloads.get(workload, moved_s))
        lineages[lineage] = max(moved_s, lineages.get(lineage, moved_s))
    return MoveHistory(workloads, lineages)


def was_carried_out(migration: MigrationRecord) -> bool:
    """Tell whether something was moved: the pod evicted, or a copy of it made."""
    if migration.evicted_s is not None or migration.replacement_uid:
        return True
    # A Migration whose workload was scaled down before the eviction completes as well, and
    # its pod may live on.
    return migration.phase == Phase.COMPLETED and migration.outcome != Outcome.NOT_REPLACED


def _lineage_after(migration: MigrationRecord) -> str:
    if migration.controller_kind == _STATEFUL_SET:
        return f"{migration.controller_uid}/{migration.pod_name}"
    return migration.replacement_uid or migration.pod_uid
