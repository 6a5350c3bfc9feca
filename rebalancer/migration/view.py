# SPDX-License-Identifier: Apache-2.0
"""The view of one Migration: itself and the cluster around it, at one moment.

A view is a plain value made from the newest known Migration and a snapshot; decisions about a
move read nothing else. `snapshot.migrations` contains what this process wrote last even if
the watch has not shown it yet, so that a move counts as soon as it has started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from common.cache.snapshot import Snapshot
from common.cluster.migrations import MigrationRecord
from common.cluster.records import PodRecord, PodUid
from common.cluster.workloads import WorkloadRecord


@dataclass(frozen=True, slots=True, eq=False)
class MigrationView:
    """One Migration and the cluster around it."""

    migration: MigrationRecord
    snapshot: Snapshot
    now_s: float
    claims: Mapping[str, PodUid] = field(default_factory=dict)
    """By Migration: the replacement that this process has chosen and is writing down."""

    @property
    def pod(self) -> PodRecord | None:
        """The pod that is to move; None once it is gone or has finished."""
        return self.snapshot.pods.get(self.migration.pod_uid)

    @property
    def owner(self) -> WorkloadRecord | None:
        """The controller that creates the replacement; None if gone or of an unknown kind."""
        return self.snapshot.workload(self.migration.controller_id)

    @property
    def workload(self) -> WorkloadRecord | None:
        """The topmost owner; None if it is gone or of an unknown kind."""
        return self.snapshot.workload(self.migration.workload_id)

    @property
    def replacement(self) -> PodRecord | None:
        """The pod that was recorded as the replacement; None if there is none or it is gone."""
        uid = self.migration.replacement_uid
        return self.snapshot.pods.get(uid) if uid else None

    @property
    def bare(self) -> bool:
        """No controller would replace the pod."""
        return not self.migration.controller_kind

    @property
    def alive(self) -> bool:
        """The pod exists and is not terminating."""
        pod = self.pod
        return pod is not None and not pod.terminating

    @property
    def late(self) -> bool:
        """The deadline has passed; from the eviction on there is another one."""
        return self.now_s >= self.migration.due_s

    def still_there(self) -> tuple[PodUid, ...]:
        """Return the pods that have to leave first and have not."""
        return tuple(uid for uid in self.migration.needs if uid in self.snapshot.pods)
