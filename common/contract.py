"""Names that other programs and people rely on: labels, annotations, reasons.

Once only: whoever reads or writes one of these keys takes it from here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

GROUP: Final = "evenkeel.io"
API_VERSION: Final = f"{GROUP}/v1alpha1"

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
    }
)


def is_read(annotation: str) -> bool:
    """Tell whether the cache keeps this annotation; all others are dropped on arrival."""
    return annotation in _READ_ANNOTATIONS or annotation.startswith(f"{GROUP}/")


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
