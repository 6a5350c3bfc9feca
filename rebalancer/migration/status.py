"""What is written into a Migration's status: conditions, phase, outcome, replacement.

Each function returns the part of the status that changes; `patch` makes the request of it,
with the version that it was decided on. A merge patch replaces lists whole, so without the
version one of two writers would lose a condition. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from common.cluster.migrations import (
    MigrationCondition,
    MigrationRecord,
    Outcome,
    Phase,
    ReplacementRef,
    Step,
)
from common.cluster.records import PodRecord
from common.kube.events import cut
from common.visible import visible

Change = dict[str, Any]  # Any: a piece of JSON
_MESSAGE_BYTES: Final = 1024


def patch(migration: MigrationRecord, change: Change) -> Change:
    """Return the merge patch for the status subresource."""
    version = str(migration.resource_version)
    return {"metadata": {"resourceVersion": version}, "status": change}


def condition(
    migration: MigrationRecord, step: Step, *, status: bool, reason: str, words: str, now_s: float
) -> Change:
    """Say of a step whether it is done and why; its time changes only when that changes."""
    old = migration.condition(step)
    value = "True" if status else "False"
    since = old.last_transition_time if old and old.status == value else _stamp(now_s)
    new = MigrationCondition(
        type=step.value,
        status=value,
        reason=reason,
        message=_told(words),
        last_transition_time=since,
    )
    return {"conditions": list(_in_order((*_others(migration, step), new)))}


def says(migration: MigrationRecord, step: Step, *, status: bool, reason: str) -> bool:
    """Tell whether the condition says this already; words may differ."""
    old = migration.condition(step)
    return old is not None and (old.status == "True", old.reason) == (status, reason)


def started(now_s: float) -> Change:
    return {"phase": Phase.IN_PROGRESS.value, "startedAt": _stamp(now_s)}


def present(uids: tuple[str, ...] | None) -> Change:
    return {"present": None if uids is None else list(uids)}


def evicted(now_s: float, due_s: float) -> Change:
    return {"evictedAt": _stamp(now_s), "replacementDeadline": _stamp(due_s)}


def replaced(pod: PodRecord) -> Change:
    return {"replacement": ReplacementRef(name=pod.name, uid=pod.uid, node=pod.node)}


def completed(outcome: Outcome, words: str, now_s: float) -> Change:
    return _closed(Phase.COMPLETED, words, now_s) | {"outcome": outcome.value}


def failed(reason: str, words: str, now_s: float) -> Change:
    return _closed(Phase.FAILED, f"{reason}: {words}", now_s)


def waiting(migration: MigrationRecord, words: str) -> Change:
    """Say what it waits for; one that has not begun is Pending from now on, for all to see."""
    return {"phase": migration.phase, **_message(words)}


def _message(words: str) -> Change:
    return {"message": _told(words)}


def _told(words: str) -> str:
    """Return what people will read on terminals: others write into it, names of owners say."""
    return cut(visible(words), _MESSAGE_BYTES)


def _closed(phase: Phase, words: str, now_s: float) -> Change:
    return {"phase": phase.value, "finishedAt": _stamp(now_s), **_message(words)}


def _others(migration: MigrationRecord, step: Step) -> Iterable[MigrationCondition]:
    return (c for c in migration.conditions if c.type != step)


def _in_order(conditions: Iterable[MigrationCondition]) -> Iterable[MigrationCondition]:
    order = [step.value for step in Step]
    return sorted(conditions, key=lambda found: order.index(found.type))


def _stamp(now_s: float) -> datetime:
    # Whole seconds, as the API server keeps them.
    return datetime.fromtimestamp(int(now_s), UTC)
