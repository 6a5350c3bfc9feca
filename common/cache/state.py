# SPDX-License-Identifier: Apache-2.0
"""The cluster as the watches tell it: one writer, any number of readers.

Reflectors write into the tables; readers take a `snapshot()`, which never changes under
them and costs what changed since the last one, not what exists.
"""

from __future__ import annotations

from typing import Final

from common.api.migrations import Migration
from common.api.objects import (
    ConfigMap,
    DaemonSet,
    Deployment,
    HorizontalPodAutoscaler,
    Job,
    Lease,
    Namespace,
    PodDisruptionBudget,
    PodGroup,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)
from common.api.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from common.cache.cow_map import CowMap
from common.cache.snapshot import Snapshot
from common.cache.tables import (
    NodeTable,
    NodeViews,
    Oddity,
    PodTable,
    Table,
    VpaTable,
    WorkloadTable,
    ignore,
)
from common.cluster.interning import Interner
from common.cluster.migrations import MigrationRecord, migration_record
from common.cluster.pod_groups import PodGroupRecord, pod_group_record
from common.cluster.records import OwnerUid
from common.cluster.storage import (
    ClaimRecord,
    CsiNodeRecord,
    LeaseRecord,
    NamespaceRecord,
    PauseRecord,
    PriorityClassRecord,
    StorageClassRecord,
    VolumeRecord,
    claim_record,
    csi_node_record,
    lease_record,
    namespace_record,
    pause_record,
    priority_class_record,
    storage_class_record,
    volume_record,
)
from common.cluster.workloads import (
    AutoscalerRecord,
    BudgetRecord,
    WorkloadRecord,
    autoscaler_record,
    budget_record,
    daemon_set_record,
    deployment_record,
    job_record,
    replica_set_record,
    replication_controller_record,
    stateful_set_record,
)


class ClusterState:
    """Every kind's table, and the photograph of all of them."""

    def __init__(self, oddity: Oddity = ignore) -> None:
        self._version = 0
        self._photograph: Snapshot | None = None
        self.shared: Final = Interner()
        self._nodes = NodeViews()
        self._workloads: CowMap[OwnerUid, WorkloadRecord] = CowMap()
        shared, changed, uids = self.shared, self._changed, self._workloads
        self.nodes: Final = NodeTable(self._nodes, shared, changed, oddity)
        self.pods: Final = PodTable(self._nodes, shared, changed, oddity)
        self.deployments: Final = WorkloadTable[Deployment](
            deployment_record, shared, changed, oddity, uids
        )
        self.replica_sets: Final = WorkloadTable[ReplicaSet](
            replica_set_record, shared, changed, oddity, uids
        )
        self.stateful_sets: Final = WorkloadTable[StatefulSet](
            stateful_set_record, shared, changed, oddity, uids
        )
        self.daemon_sets: Final = WorkloadTable[DaemonSet](
            daemon_set_record, shared, changed, oddity, uids
        )
        self.jobs: Final = WorkloadTable[Job](job_record, shared, changed, oddity, uids)
        self.replication_controllers: Final = WorkloadTable[ReplicationController](
            replication_controller_record, shared, changed, oddity, uids
        )
        self.budgets: Final = Table[PodDisruptionBudget, BudgetRecord](
            budget_record, shared, changed, oddity
        )
        self.autoscalers: Final = Table[HorizontalPodAutoscaler, AutoscalerRecord](
            autoscaler_record, shared, changed, oddity
        )
        self.namespaces: Final = Table[Namespace, NamespaceRecord](
            namespace_record, shared, changed, oddity
        )
        self.claims: Final = Table[PersistentVolumeClaim, ClaimRecord](
            claim_record, shared, changed, oddity
        )
        self.volumes: Final = Table[PersistentVolume, VolumeRecord](
            volume_record, shared, changed, oddity
        )
        self.storage_classes: Final = Table[StorageClass, StorageClassRecord](
            storage_class_record, shared, changed, oddity
        )
        self.csi_nodes: Final = Table[CSINode, CsiNodeRecord](
            csi_node_record, shared, changed, oddity
        )
        self.priority_classes: Final = Table[PriorityClass, PriorityClassRecord](
            priority_class_record, shared, changed, oddity
        )
        self.vpas: Final = VpaTable(shared, changed, oddity)
        self.pod_groups: Final = Table[PodGroup, PodGroupRecord](
            pod_group_record, shared, changed, oddity
        )
        self.leases: Final = Table[Lease, LeaseRecord](lease_record, shared, changed, oddity)
        self.pauses: Final = Table[ConfigMap, PauseRecord](pause_record, shared, changed, oddity)
        self.migrations: Final = Table[Migration, MigrationRecord](
            migration_record, shared, changed, oddity
        )

    @property
    def version(self) -> int:
        """Counts the changes; equal versions mean equal states."""
        return self._version

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is now; the same object while nothing changes."""
        if self._photograph is None:
            self._photograph = self._develop()
        return self._photograph

    def _changed(self) -> None:
        self._version += 1
        self._photograph = None

    def _develop(self) -> Snapshot:
        pods = self.pods
        return Snapshot(
            version=self._version,
            nodes=self._nodes.freeze(),
            pods=pods.by_uid.freeze(),
            pods_by_name=pods.records.freeze(),
            pending=pods.pending.freeze(),
            stalled=pods.stalled.freeze(),
            resizing=pods.resizing.freeze(),
            by_owner=pods.by_owner.freeze(),
            by_namespace=pods.by_namespace.freeze(),
            by_nomination=pods.by_nomination.freeze(),
            workloads=self._workloads.freeze(),
            namespaces=self.namespaces.records.freeze(),
            budgets=self.budgets.records.freeze(),
            claims=self.claims.records.freeze(),
            volumes=self.volumes.records.freeze(),
            storage_classes=self.storage_classes.records.freeze(),
            csi_nodes=self.csi_nodes.records.freeze(),
            priority_classes=self.priority_classes.records.freeze(),
            vpas=self.vpas.by_target.freeze(),
            leases=self.leases.records.freeze(),
            autoscalers=self.autoscalers.records.freeze(),
            pod_groups=self.pod_groups.records.freeze(),
            migrations=self.migrations.records.freeze(),
            pauses=self.pauses.records.freeze(),
        )
