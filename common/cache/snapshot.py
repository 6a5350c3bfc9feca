# SPDX-License-Identifier: Apache-2.0
"""The cluster at one moment: immutable, shared by all readers.

A `NodeView` is a new object exactly when something about that node or its pods changed,
so readers can keep what they computed for a node as long as the view is the same object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from common.cache.cow_map import FrozenCowGroups
from common.cluster.autoscalers import VpaRecord, target_key
from common.cluster.migrations import MigrationRecord
from common.cluster.pod_groups import PodGroupRecord
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
from common.cluster.storage import (
    ClaimRecord,
    CsiNodeRecord,
    LeaseRecord,
    NamespaceRecord,
    PauseRecord,
    PriorityClassRecord,
    StorageClassRecord,
    VolumeRecord,
)
from common.cluster.workloads import AutoscalerRecord, BudgetRecord, WorkloadRecord

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
    resizing: Mapping[PodUid, PodRecord]
    """Pods with a node whose resize in place waits or is not possible there."""
    workloads: Mapping[OwnerUid, WorkloadRecord]
    namespaces: Mapping[str, NamespaceRecord]
    budgets: Mapping[str, BudgetRecord]
    claims: Mapping[str, ClaimRecord]
    volumes: Mapping[str, VolumeRecord]
    storage_classes: Mapping[str, StorageClassRecord]
    csi_nodes: Mapping[str, CsiNodeRecord]
    priority_classes: Mapping[str, PriorityClassRecord]
    leases: Mapping[str, LeaseRecord]
    vpas: Mapping[str, VpaRecord] = msgspec.field(default_factory=dict)
    """By their target (`target_key`); empty where they are not read."""
    autoscalers: Mapping[str, AutoscalerRecord] = msgspec.field(default_factory=dict)
    """Empty where they are not read."""
    pod_groups: Mapping[str, PodGroupRecord] = msgspec.field(default_factory=dict)
    """Empty where they are not served, or not read."""
    migrations: Mapping[str, MigrationRecord] = msgspec.field(default_factory=dict)
    """Empty where they are not read."""
    pauses: Mapping[str, PauseRecord] = msgspec.field(default_factory=dict)
    """At most one; empty where it is not read."""
    by_owner: FrozenCowGroups[ControllerId, PodUid, PodRecord]
    by_namespace: FrozenCowGroups[str, PodUid, PodRecord]
    by_nomination: FrozenCowGroups[NodeName, PodUid, PodRecord]
    pods_by_name: Mapping[str, PodRecord]

    def pause(self, now_s: float) -> PauseRecord | None:
        """Return what stops all moves at a time, besides the configuration."""
        return next((each for each in self.pauses.values() if each.holds(now_s)), None)

    def siblings(self, pod: PodRecord) -> Mapping[PodUid, PodRecord]:
        """Return all pods of this pod's controller, itself included."""
        found = pod.controller_id
        return self.by_owner[found] if found is not None else {pod.uid: pod}

    def workload(self, wanted: ControllerId | None) -> WorkloadRecord | None:
        """Return a controller if it exists: of this kind, in this namespace."""
        found = self.workloads.get(wanted.uid) if wanted is not None else None
        if found is None or wanted is None:
            return None
        same = found.kind == wanted.kind and found.namespace == wanted.namespace
        return found if same else None

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

    def vpa_of(self, pod: PodRecord) -> VpaRecord | None:
        """Return the VPA that sets the requests of this pod's successor, if one does."""
        if not self.vpas:
            return None
        for found in (self.top_workload(pod), self.controller(pod)):
            if found is not None:
                key = target_key(found.namespace, found.kind, found.name)
                vpa = self.vpas.get(key)
                if vpa is not None and vpa.acts and vpa.recommended:
                    return vpa
        return None

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
