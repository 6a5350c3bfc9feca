"""What one Migration sees of the world at one moment.

A scene is a plain value made from the newest known Migration and a snapshot; whoever
decides about a move looks at nothing else. `snapshot.migrations` holds what this process
last wrote even if the watch has not shown it yet, so that what was started counts at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from common.cluster.migrations import MigrationRecord
from common.cluster.records import PodRecord, PodUid
from common.cluster.snapshot import Snapshot
from common.cluster.workloads import WorkloadRecord


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """One Migration and the cluster around it."""

    migration: MigrationRecord
    snapshot: Snapshot
    now_s: float

    @property
    def pod(self) -> PodRecord | None:
        """The pod that is to move; None once it is gone, or has ended."""
        return self.snapshot.pods.get(self.migration.pod_uid)

    @property
    def owner(self) -> WorkloadRecord | None:
        """Who makes the replacement; None if it is gone, or of a kind that is not read."""
        return self.snapshot.workload(self.migration.controller_id)

    @property
    def workload(self) -> WorkloadRecord | None:
        """What a person would name as the owner."""
        return self.snapshot.workload(self.migration.workload_id) or self.owner

    @property
    def replacement(self) -> PodRecord | None:
        """The pod that was noted as the replacement; None if there is none, or it is gone."""
        uid = self.migration.replacement_uid
        return self.snapshot.pods.get(uid) if uid else None

    @property
    def bare(self) -> bool:
        """Nobody else would replace the pod."""
        return not self.migration.controller_kind

    @property
    def alive(self) -> bool:
        """The pod is there and is not on its way out."""
        pod = self.pod
        return pod is not None and not pod.terminating

    @property
    def late(self) -> bool:
        """The deadline has passed; from the eviction on there is another."""
        return self.now_s >= self.migration.due_s

    def still_there(self) -> tuple[PodUid, ...]:
        """Return the pods that must be gone first and are not."""
        return tuple(uid for uid in self.migration.needs if uid in self.snapshot.pods)

    def scheduler(self) -> str:
        """Return the name of the scheduler that will place the replacement."""
        shown = self.replacement or self.pod
        if shown is not None:
            return shown.shape.scheduler_name
        return self.owner.template.scheduler_name if self.owner is not None else ""
