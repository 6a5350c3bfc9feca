# SPDX-License-Identifier: Apache-2.0
"""What is written into a Migration's status: conditions, phase, outcome, replacement.

Each function returns the part of the status that changes; `MigrationStore.update_status` sends
it, with the resourceVersion that the decision was based on. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from common.api.migrations import (
    MigrationCondition,
    Outcome,
    Phase,
    ReplacementRef,
    Step,
    SurgeState,
)
from common.cluster.migrations import MigrationRecord
from common.cluster.records import PodRecord
from common.kube.events import cut
from common.visible import visible
from rebalancer.store import StatusChange

_MESSAGE_BYTES: Final = 1024


def condition(
    migration: MigrationRecord, step: Step, *, status: bool, reason: str, message: str, now_s: float
) -> StatusChange:
    """Set the condition of a step; its transition time changes only with its status."""
    old = migration.condition(step)
    value = "True" if status else "False"
    since = old.last_transition_time if old and old.status == value else _stamp(now_s)
    new = MigrationCondition(
        type=step.value,
        status=value,
        reason=reason,
        message=_printable(message),
        last_transition_time=since,
    )
    return {"conditions": list(_in_order((*_others(migration, step), new)))}


def has_condition(migration: MigrationRecord, step: Step, *, status: bool, reason: str) -> bool:
    """Tell whether the condition has this status and reason already; its message may differ."""
    old = migration.condition(step)
    return old is not None and (old.status == "True", old.reason) == (status, reason)


def started(now_s: float) -> StatusChange:
    return {"phase": Phase.IN_PROGRESS.value, "startedAt": _stamp(now_s)}


def present(uids: tuple[str, ...] | None) -> StatusChange:
    return {"present": None if uids is None else list(uids)}


def counted(surge: SurgeState) -> StatusChange:
    return {"surge": surge}


def raised(surge: SurgeState, now_s: float, due_s: float) -> StatusChange:
    return {"surge": surge, "raisedAt": _stamp(now_s), "replacementDeadline": _stamp(due_s)}


def evicted(now_s: float, due_s: float) -> StatusChange:
    return {"evictedAt": _stamp(now_s), "replacementDeadline": _stamp(due_s)}


def replaced(pod: PodRecord) -> StatusChange:
    return {"replacement": ReplacementRef(name=pod.name, uid=pod.uid, node=pod.node)}


def completed(outcome: Outcome, message: str, now_s: float) -> StatusChange:
    return _closed(Phase.COMPLETED, message, now_s) | {"outcome": outcome.value}


def failed(reason: str, message: str, now_s: float) -> StatusChange:
    return _closed(Phase.FAILED, f"{reason}: {message}", now_s)


def waiting(migration: MigrationRecord, message: str) -> StatusChange:
    """Set what the Migration waits for, and Pending as the phase of one that has none yet."""
    return {"phase": migration.phase, **_message(message)}


def _message(message: str) -> StatusChange:
    return {"message": _printable(message)}


def _printable(message: str) -> str:
    """Return a message that is safe on a terminal: it may quote names that tenants chose."""
    return cut(visible(message), _MESSAGE_BYTES)


def _closed(phase: Phase, message: str, now_s: float) -> StatusChange:
    return {"phase": phase.value, "finishedAt": _stamp(now_s), **_message(message)}


def _others(migration: MigrationRecord, step: Step) -> Iterable[MigrationCondition]:
    return (c for c in migration.conditions if c.type != step)


def _in_order(conditions: Iterable[MigrationCondition]) -> Iterable[MigrationCondition]:
    order = [step.value for step in Step]
    return sorted(conditions, key=lambda found: order.index(found.type))


def _stamp(now_s: float) -> datetime:
    # Whole seconds: metav1.Time has no fraction (apimachinery, pkg/apis/meta/v1/time.go).
    return datetime.fromtimestamp(int(now_s), UTC)
