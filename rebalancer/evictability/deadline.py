# SPDX-License-Identifier: Apache-2.0
"""What no longer keeps a pod on a node under maintenance once the deadline has passed.

People may wish that a pod is not moved; a node that has to go down goes down nevertheless, and
then the pod is killed without a replacement that was planned. So after `maintenance.deadline`
wishes, the only replica, a surge that waits and an emptyDir no longer hold. What protects data
or other people still does: PodDisruptionBudgets, bare pods, volumes and files of the node,
excluded namespaces.

Nothing is forced before that was announced: the maintenance controller writes the time into an
annotation of the node together with the announcement. Annotations of a node are written by
everyone who may change nodes, so a time that cannot be read counts as none. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from common.api.contract import (
    MAINTENANCE_FORCED_FROM,
    MAINTENANCE_SINCE,
    under_maintenance,
)
from common.cluster.records import NodeRecord, PodRecord
from common.config import RebalancerConfiguration
from common.kube.timestamps import parse_time
from rebalancer.refusals import Reason, Refusal

HELD_UNTIL_DEADLINE: Final = frozenset(
    {
        Reason.EXCLUDED_POD,
        Reason.RESCHEDULING_DISABLED,
        Reason.NOT_SAFE_TO_EVICT,
        Reason.DO_NOT_DISRUPT,
        Reason.PREFER_NO_EVICTION,
        Reason.SINGLE_REPLICA,
        Reason.WORKLOAD_NOT_AT_REST,
        Reason.LOCAL_STORAGE,
    }
)
"""Reasons that hold until then."""


def deadline_s(node: NodeRecord, config: RebalancerConfiguration) -> float | None:
    """Return when the deadline of a node passes; None if there is none, or no beginning."""
    since_s, given = moment_of(node, MAINTENANCE_SINCE), config.maintenance.deadline
    if given is None or since_s is None or not under_maintenance(node.labels):
        return None
    return since_s + given.seconds


def is_forced(node: NodeRecord, config: RebalancerConfiguration, now_s: float) -> bool:
    """Tell whether the deadline of a node has passed, and was announced in time."""
    due_s, announced_s = deadline_s(node, config), moment_of(node, MAINTENANCE_FORCED_FROM)
    return due_s is not None and announced_s is not None and now_s >= max(due_s, announced_s)


def moment_of(node: NodeRecord, annotation: str) -> float | None:
    """Return the time in an annotation; None if there is none that can be read."""
    try:
        return parse_time(node.annotations.get(annotation, ""))
    except (ValueError, OverflowError):
        return None


def holds(refusal: Refusal, pod: PodRecord) -> bool:
    """Tell whether a reason keeps a pod on its node even after the deadline."""
    if refusal.name == Reason.LOCAL_STORAGE:
        return pod.shape.host_path
    return refusal.name not in HELD_UNTIL_DEADLINE


def after_deadline(refusals: Sequence[Refusal], pod: PodRecord) -> tuple[Refusal, ...]:
    """Return what still holds."""
    return tuple(refusal for refusal in refusals if holds(refusal, pod))
