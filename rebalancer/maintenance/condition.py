# SPDX-License-Identifier: Apache-2.0
"""The condition `evenkeel.io/Drained` of a node under maintenance: what it says, and how it is set.

`kubectl wait --for=condition=evenkeel.io/Drained node/n1` returns when no pod remains but those
that belong to the node. Until then the condition is False, from the moment on in which the label
is seen, with a reason and the names of pods that remain. It is True for as long as that holds,
and is removed with the label.

Conditions are merged by their type, so neither the kubelet's own nor ours are lost
(staging/src/k8s.io/api/core/v1/types.go, patchMergeKey of NodeStatus.conditions). Pure.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from common.api.contract import DRAINED_CONDITION
from common.cluster.records import ConditionRecord
from common.kube.events import cut
from common.kube.timestamps import to_the_second
from common.visible import visible
from rebalancer.maintenance.progress import Progress
from rebalancer.refusals import Reason

NAMED: Final = 20
"""Pods that are named at most."""
MESSAGE_BYTES: Final = 4096

Json = dict[str, Any]  # Any: a piece of JSON


class DrainedReason(StrEnum):
    """Why the condition is what it is; users filter by these."""

    DRAINED = "Drained"
    NOT_CORDONED = Reason.NOT_CORDONED.value
    DRAINING = "Draining"
    BLOCKED = "Blocked"
    PAUSED = Reason.PAUSED.value
    NOT_ACTING = "NotActing"


def drained(now: Progress, *, reason: DrainedReason) -> ConditionRecord:
    """Return the condition of a node with this progress; `reason` is why it is not drained."""
    if now.done and reason is not DrainedReason.NOT_CORDONED:
        return _condition("True", DrainedReason.DRAINED, now.text)
    names = f"; remaining: {now.named(NAMED)}" if now.remaining else ""
    return _condition("False", reason, f"{now.text}{names}")


def not_acting(why: str) -> ConditionRecord:
    """Return the condition of a node whose maintenance has begun and is not carried out now."""
    return _condition("Unknown", DrainedReason.NOT_ACTING, why)


def _condition(status: str, reason: DrainedReason, message: str) -> ConditionRecord:
    return ConditionRecord(status, reason.value, cut(visible(message), MESSAGE_BYTES))


def setting(new: ConditionRecord, old: ConditionRecord | None, now_s: float) -> Json:
    """Return the strategic merge patch of a node's status that sets the condition."""
    now = to_the_second(now_s)
    body = {
        "type": DRAINED_CONDITION,
        "status": new.status,
        "reason": new.reason,
        "message": new.message,
        "lastHeartbeatTime": now,
    }
    if old is None or old.status != new.status:
        body["lastTransitionTime"] = now
    return {"status": {"conditions": [body]}}


def removing() -> Json:
    """Return the patch that removes the condition."""
    return {"status": {"conditions": [{"$patch": "delete", "type": DRAINED_CONDITION}]}}
