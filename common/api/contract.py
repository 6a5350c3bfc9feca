# SPDX-License-Identifier: Apache-2.0
"""Names that other programs and people rely on: labels, annotations, reasons.

Each is defined once, here, for all code that reads or writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

GROUP: Final = "evenkeel.io"
API_VERSION: Final = f"{GROUP}/v1alpha1"

INSTALL_CRD: Final = "kubectl apply --server-side -k deploy/crds"
"""The command that installs the Migration CRD, from a checkout of the project."""

_SCHEDULER: Final = "scheduler.alpha.kubernetes.io"

MAINTENANCE_LABEL: Final = f"{_SCHEDULER}/maintenance"
RESCHEDULING_LABEL: Final = f"{_SCHEDULER}/rescheduling"

MIGRATION_ID_LABEL: Final = f"{_SCHEDULER}/migration-id"
MIGRATION_STATUS_LABEL: Final = f"{_SCHEDULER}/migration-status"
MIGRATED_FROM_LABEL: Final = f"{_SCHEDULER}/migrated-from"
MIGRATION_REASON_LABEL: Final = f"{_SCHEDULER}/migration-reason"
MIGRATION_TIME: Final = f"{_SCHEDULER}/migration-time"
ORIGINAL_POD: Final = f"{_SCHEDULER}/original-pod"
ORIGINAL_POD_NAME: Final = f"{_SCHEDULER}/original-pod-name"

MIRROR_POD: Final = "kubernetes.io/config.mirror"
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
PREFER_NO_EVICTION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
SCALE_DOWN_DISABLED: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"

PRODUCT_LABEL: Final = "app.kubernetes.io/name"
PRODUCT: Final = "evenkeel"
INSTALLED_IN: Final = "evenkeel"
"""The namespace that the manifests install into by default: Leases of both programs are there."""
COMPONENT_LABEL: Final = "app.kubernetes.io/component"

PAUSE: Final = "evenkeel-pause"
"""The ConfigMap in Evenkeel's namespace that stops all moves while it exists: an object of its
own, so that no tool that applies the configuration takes it away."""
PAUSED_BY: Final = "by"
PAUSED_BECAUSE: Final = "why"
PAUSED_SINCE: Final = "since"
PAUSED_UNTIL: Final = "until"

EXTENDER: Final = "extender"
"""The component that an extender's Lease is labelled with."""
EXTENDER_LEASE_PREFIX: Final = "evenkeel-extender-"
SEEN_MIGRATIONS: Final = f"{GROUP}/seen-migrations"
"""On an extender's Lease: the resourceVersion up to which it knows all Migrations."""
FILTER_CALLS: Final = f"{GROUP}/filter-calls"
"""On an extender's Lease, as JSON: schedulerName -> {last: time, share: of the nodes shown}."""
LOAD_SETTINGS: Final = f"{GROUP}/load-settings"
"""On an extender's Lease: the hash of what it takes for load."""

GROUP_LABELS: Final = frozenset(
    {
        "kueue.x-k8s.io/managed",
        "kueue.x-k8s.io/pod-group-name",
        "kueue.x-k8s.io/podset",
        "kueue.x-k8s.io/queue-name",
        "leaderworkerset.sigs.k8s.io/name",
        "pod-group.scheduling.sigs.k8s.io",
        "scheduling.x-k8s.io/pod-group",
        "volcano.sh/job-name",
    }
)
"""Labels of pods that are admitted or placed together with others."""
GROUP_ANNOTATIONS: Final = frozenset(
    {"scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"}
)
"""The same as annotations; both are Volcano's."""
_GROUP_SYSTEMS: Final = (
    ("kueue.x-k8s.io/", "Kueue"),
    ("leaderworkerset.sigs.k8s.io/", "LeaderWorkerSet"),
    ("pod-group.scheduling.sigs.k8s.io", "Coscheduling"),
    ("scheduling.x-k8s.io/", "Coscheduling"),
)


def group_system(key: str) -> str:
    """Return the program that places pods with this label or annotation together."""
    return next((name for prefix, name in _GROUP_SYSTEMS if key.startswith(prefix)), "Volcano")


GUIDE_LABEL: Final = f"{GROUP}/guide"
"""On a Migration whose replacement the API server sends to its target: `admission`."""
GUIDED_BY: Final = f"{GROUP}/guided-by"
"""On a pod that the API server has sent to its target: the uid of the Migration."""
PREDICTED_USE: Final = f"{GROUP}/predicted-use"
"""On a Migration, as JSON: what both nodes are expected to use after it."""
TOLERATE_MAINTENANCE: Final = f"{GROUP}/tolerate-maintenance"
"""On a pod: `true` lets it go to nodes under maintenance."""

TEMPORARY_PDB_LABEL: Final = f"{GROUP}/temporary-pdb"
"""On a PodDisruptionBudget of ours: the uid of the workload that it guards."""
EXPIRES: Final = f"{GROUP}/expires"
"""On a PodDisruptionBudget of ours: when it is removed, whether it is still needed or not."""
COPY_OF: Final = f"{GROUP}/copy-of"
"""On a copy that stands in for a bare pod: the uid of the original."""
SURGE: Final = f"{GROUP}/surge"
"""On a Deployment or a ReplicaSet: `Never`, `SingleReplica` or `Always`."""
RANKED_BY: Final = f"{GROUP}/ranked-by"
"""On a pod whose deletion cost we have set: the name of the Migration."""
OWN_DELETION_COST: Final = f"{GROUP}/own-deletion-cost"
"""On the same pod: the deletion cost that its user had set; empty for none."""
SURGE_FINALIZER: Final = f"{GROUP}/surge"
"""On a Migration that may have raised a count: it stays until that is undone."""
SURGE_REVERTED: Final = f"{GROUP}/surge-reverted"
"""On a Migration: when a raise of its workload was reverted, from an earlier Migration."""
FIELD_MANAGER: Final = "evenkeel-rebalancer"
"""Who owns `spec.replicas` after a write of ours (metadata.managedFields)."""
CORDONED_BY: Final = f"{GROUP}/cordoned-by"
"""On a node: who made it unschedulable, and will undo that."""
MAINTENANCE_PROGRESS: Final = f"{GROUP}/maintenance-progress"
"""On a node under maintenance: how far it is emptied, in words."""
MAINTENANCE_PODS: Final = f"{GROUP}/maintenance-pods"
"""On a node under maintenance: how many pods there were to move, at most."""
MAINTENANCE_SINCE: Final = f"{GROUP}/maintenance-since"
"""On a node under maintenance: when its label was first seen; the deadline counts from then."""
MAINTENANCE_FORCED_FROM: Final = f"{GROUP}/maintenance-forced-from"
"""On a node under maintenance whose deadline was announced: from when on opt-outs do not hold."""
DRAINED_CONDITION: Final = f"{GROUP}/Drained"
"""A condition of a node under maintenance: whether all pods that can leave a node have left."""

CONSOLIDATION_SINCE: Final = f"{GROUP}/consolidation-since"
"""On a node that `Consolidation` empties and keeps empty: since when. Both programs read it;
autoscalers do not."""

_READ_ANNOTATIONS: Final = frozenset(
    {
        MIGRATION_TIME,
        ORIGINAL_POD,
        ORIGINAL_POD_NAME,
        MIRROR_POD,
        SAFE_TO_EVICT,
        DO_NOT_DISRUPT,
        PREFER_NO_EVICTION,
        DELETION_COST,
        SCALE_DOWN_DISABLED,
        SELECTED_NODE,
        COMPLETION_INDEX,
        *GROUP_ANNOTATIONS,
    }
)


def is_read(annotation: str) -> bool:
    """Tell whether the cache keeps this annotation; all others are dropped on arrival."""
    return annotation in _READ_ANNOTATIONS or annotation.startswith(f"{GROUP}/")


def under_maintenance(labels: Mapping[str, str]) -> bool:
    """Tell whether a node with these labels is to be emptied and to receive nothing."""
    return labels.get(MAINTENANCE_LABEL) == "true"


def kept_empty(annotations: Mapping[str, str]) -> bool:
    """Tell whether a node with these annotations is emptied for an autoscaler to remove it."""
    return CONSOLIDATION_SINCE in annotations


class Unknown(StrEnum):
    """Why a node's load is not known."""

    NO_ALLOCATABLE = "NoAllocatable"
    """The node does not say how much CPU or memory it has."""
    NO_SAMPLE = "NoSample"
    """It was never measured."""
    STALE_SAMPLE = "StaleSample"
    """Its last measurement is too old."""
    FUTURE_SAMPLE = "FutureSample"
    """Its measurement ends later than clocks may differ: one of them is wrong."""
    ABSURD_SAMPLE = "AbsurdSample"
    """Its measurement is no possible amount."""
