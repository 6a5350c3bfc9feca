"""Tells people what happens to their pods: Events on pods, and on nodes that are emptied."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol

from common.cluster.migrations import MigrationRecord, NodeUse, Outcome, Step, Uses
from common.config import Strategy
from common.kube.events import EventType, ObjectRef

_ACTION: Final = "Migrating"


class Happened(StrEnum):
    """The reasons of our Events."""

    STARTED = "MigrationStarted"
    EVICTED = "MigrationEvicted"
    COMPLETED = "MigrationCompleted"
    FAILED = "MigrationFailed"
    NOT_REPLACED = "MigrationNotReplaced"
    MARK_REFUSED = "MigrationMarkRefused"
    CLEANUP_FAILED = "MigrationCleanupFailed"
    MEASURED = "MigrationMeasured"


class EventRecorder(Protocol):
    """The part of `Recorder` that is needed here."""

    def record(
        self,
        *,
        regarding: ObjectRef,
        type_: EventType,
        reason: str,
        note: str,
        action: str,
        related: ObjectRef | None = None,
    ) -> None: ...


class Announcer:
    """Words for the steps of a move."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def step_taken(self, migration: MigrationRecord, step: Step, words: str) -> None:
        """Tell of the two steps that people notice."""
        where = f"{migration.source} for {migration.target}"
        if step is Step.BUDGET_CHECKED:
            self._on_pod(migration, Happened.STARTED, f"To leave {where}: {migration.reason}")
        elif step is Step.EVICTED:
            self._on_pod(migration, Happened.EVICTED, f"Leaves {where}: {words}")

    def completed(self, migration: MigrationRecord, outcome: Outcome, words: str) -> None:
        """Tell it of the replacement, for the moved pod is gone."""
        note = f"Replaces {migration.pod_name} of {migration.source}, {outcome.value}: {words}"
        self._say(_replacement(migration), Happened.COMPLETED, note, related=_pod(migration))

    def measured(self, migration: MigrationRecord, predicted: Uses, actual: Uses) -> None:
        """Tell of the replacement what the move was to do to both nodes, and what it did."""
        nodes = (
            _compared(migration.source, predicted.source, actual.source),
            _compared(migration.target, predicted.target, actual.target),
        )
        note = "; ".join(filter(None, nodes))
        self._say(_replacement(migration), Happened.MEASURED, note, related=_pod(migration))

    def not_replaced(self, migration: MigrationRecord, words: str) -> None:
        self._on_pod(migration, Happened.NOT_REPLACED, f"Needs no replacement: {words}")

    def failed(self, migration: MigrationRecord, reason: str, words: str) -> None:
        note = f"Not moved from {migration.source} to {migration.target}: {reason}: {words}"
        self._on_pod(migration, Happened.FAILED, note, type_="Warning")
        if migration.evicted_s is not None and migration.replacement_node:
            there = ObjectRef(kind="Node", name=migration.replacement_node)
            name = f"{migration.namespace}/{migration.replacement_pod}"
            note = f"{name}, which was moved here, is not Ready: {words}"
            self._say(there, Happened.FAILED, note, type_="Warning")
        if migration.strategy == Strategy.NODE_MAINTENANCE:
            node = ObjectRef(kind="Node", name=migration.source)
            name = f"{migration.namespace}/{migration.pod_name}"
            self._say(node, Happened.FAILED, f"{name} stays: {words}", type_="Warning")

    def mark_refused(self, migration: MigrationRecord, words: str) -> None:
        note = f"The marks of the move were refused, which does not stop it: {words}"
        self._on_pod(migration, Happened.MARK_REFUSED, note, type_="Warning")

    def cleanup_failed(self, migration: MigrationRecord, words: str) -> None:
        note = f"Something of the move stays behind: {words}"
        self._on_pod(migration, Happened.CLEANUP_FAILED, note, type_="Warning")

    def _on_pod(
        self, migration: MigrationRecord, reason: Happened, note: str, type_: EventType = "Normal"
    ) -> None:
        self._say(_pod(migration), reason, note, type_=type_)

    def _say(
        self,
        regarding: ObjectRef,
        reason: Happened,
        note: str,
        *,
        type_: EventType = "Normal",
        related: ObjectRef | None = None,
    ) -> None:
        self._recorder.record(
            regarding=regarding,
            type_=type_,
            reason=reason.value,
            note=note,
            action=_ACTION,
            related=related,
        )


def _compared(node: str, expected: NodeUse | None, found: NodeUse | None) -> str:
    if expected is None or found is None:
        return ""
    return (
        f"{node} uses {found.cpu_percent:.0f} % CPU and {found.memory_percent:.0f} % memory, "
        f"expected were {expected.cpu_percent:.0f} % and {expected.memory_percent:.0f} %"
    )


def _replacement(migration: MigrationRecord) -> ObjectRef:
    return ObjectRef(
        kind="Pod",
        namespace=migration.namespace,
        name=migration.replacement_pod,
        uid=migration.replacement_uid,
    )


def _pod(migration: MigrationRecord) -> ObjectRef:
    return ObjectRef(
        kind="Pod",
        namespace=migration.namespace,
        name=migration.pod_name,
        uid=migration.pod_uid,
    )
