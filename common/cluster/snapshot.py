"""The cluster at one moment: immutable, shared by whoever looks at it.

A `NodeView` is a new object exactly when something about that node or its pods changed,
so readers can keep what they computed for a node as long as the view is the same object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from common.cluster.migrations import MigrationRecord
from common.cluster.records import (
    ControllerId,
    NodeName,
    NodeRecord,
    Owner,
    OwnerUid,
    PodRecord,
    PodUid,
)
from common.cluster.resources import Resources
from common.cluster.shelf import FrozenGroups
from common.cluster.storage import (
    ClaimRecord,
    CsiNodeRecord,
    LeaseRecord,
    NamespaceRecord,
    PriorityClassRecord,
    StorageClassRecord,
    VolumeRecord,
)
from common.cluster.workloads import BudgetRecord, WorkloadRecord

MAX_OWNERS: Final = 8
"""Longest chain of owners that is followed; Kubernetes itself builds chains of two.

The API server lets anyone with write access to a ReplicaSet make it own itself, so chains of
owners can be endless.
"""


class NodeView(msgspec.Struct, frozen=True, eq=False):
    """A node with the pods that hold resources on it, and their sums."""

    node: NodeRecord
    pods: Mapping[PodUid, PodRecord]
    requested: Resources
    scored_cpu_milli: int
    scored_mem_bytes: int


class Snapshot(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Everything we know of the cluster, at one version of the state."""

    version: int
    nodes: Mapping[NodeName, NodeView]
    pods: Mapping[PodUid, PodRecord]
    pending: Mapping[PodUid, PodRecord]
    """Pods without a node that are neither finished nor terminating."""
    stalled: Mapping[PodUid, PodRecord]
    """Pods with a node of which a container does not run, neither finished nor terminating."""
    workloads: Mapping[OwnerUid, WorkloadRecord]
    namespaces: Mapping[str, NamespaceRecord]
    budgets: Mapping[str, BudgetRecord]
    claims: Mapping[str, ClaimRecord]
    volumes: Mapping[str, VolumeRecord]
    storage_classes: Mapping[str, StorageClassRecord]
    csi_nodes: Mapping[str, CsiNodeRecord]
    priority_classes: Mapping[str, PriorityClassRecord]
    leases: Mapping[str, LeaseRecord]
    migrations: Mapping[str, MigrationRecord] = msgspec.field(default_factory=dict)
    """Empty where nobody reads them."""
    by_owner: FrozenGroups[ControllerId, PodUid, PodRecord]
    by_namespace: FrozenGroups[str, PodUid, PodRecord]
    by_nomination: FrozenGroups[NodeName, PodUid, PodRecord]
    pods_by_name: Mapping[str, PodRecord]

    def siblings(self, pod: PodRecord) -> Mapping[PodUid, PodRecord]:
        """Return all pods of this pod's controller, itself included."""
        found = pod.controller_id
        return self.by_owner[found] if found is not None else {pod.uid: pod}

    def workload(self, wanted: ControllerId | None) -> WorkloadRecord | None:
        """Return a controller if it exists: of this kind, in this namespace."""
        found = self.workloads.get(wanted.uid) if wanted is not None else None
        return found if found is not None and found.controller_id == wanted else None

    def controller(self, pod: PodRecord) -> WorkloadRecord | None:
        """Return the controller that replaces this pod, if it exists and we read its kind."""
        return self.workload(pod.controller_id)

    def top_owner(self, pod: PodRecord) -> Owner | None:
        """Return the last owner that we read: of a ReplicaSet, its Deployment.

        Where the owners form a loop, none of them is the last: then it is the pod's own.
        """
        owner = pod.owner
        for _ in range(MAX_OWNERS):
            above = self._above(owner, pod.namespace)
            if above is None:
                return owner
            owner = above
        return pod.owner

    def top_workload(self, pod: PodRecord) -> WorkloadRecord | None:
        """Return what a person would name as the owner: of a ReplicaSet, its Deployment."""
        owner = self.top_owner(pod)
        return self.workload(owner.within(pod.namespace)) if owner is not None else None

    def owners_loop(self, pod: PodRecord) -> bool:
        """Tell whether the chain of owners has no end, or one too far away to look for."""
        owner = pod.owner
        for _ in range(MAX_OWNERS):
            owner = self._above(owner, pod.namespace)
            if owner is None:
                return False
        return True

    def _above(self, owner: Owner | None, namespace: str) -> Owner | None:
        """Return the owner of an owner, if we read both and both exist in this namespace."""
        found = self.workload(owner.within(namespace)) if owner is not None else None
        above = found.owner if found is not None else None
        exists = above is not None and self.workload(above.within(namespace)) is not None
        return above if exists else None
