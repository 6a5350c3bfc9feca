# SPDX-License-Identifier: Apache-2.0
"""The Events about moves: on the pod, its replacement, its workload, and both nodes.

Each Event is a whole sentence with its figures, because people read it where they look: at the
pod, at the Deployment, or at the node. `kubectl describe node` shows only Events that carry the
uid of the node (k8s.io/kubectl/pkg/describe/describe.go), so nodes are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final, Protocol

from common.api.migrations import NodeUse, Outcome, Step, Uses
from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName
from common.config import Strategy
from common.kube.events import EventType, ObjectRef

_ACTION: Final = "Migrating"
_MIB: Final = 1024.0 * 1024.0


class EventReason(StrEnum):
    """The reasons of the Events; users filter by them."""

    STARTED = "MigrationStarted"
    EVICTED = "MigrationEvicted"
    COMPLETED = "MigrationCompleted"
    FAILED = "MigrationFailed"
    NOT_REPLACED = "MigrationNotReplaced"
    MARK_REFUSED = "MigrationMarkRefused"
    CLEANUP_FAILED = "MigrationCleanupFailed"
    MEASURED = "MigrationMeasured"


class EventRecorder(Protocol):
    """Records Events in the background: `Recorder`, or a list in tests."""

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


class Announcer(EventRecorder, Protocol):
    """Records Events, and some before anything else happens."""

    async def record_now(
        self,
        *,
        regarding: ObjectRef,
        type_: EventType,
        reason: str,
        note: str,
        action: str,
        related: ObjectRef | None = None,
    ) -> None: ...


def _no_uid(_: NodeName) -> str:
    return ""


class MigrationEvents:
    """Records Events about the progress of Migrations."""

    def __init__(
        self, recorder: EventRecorder, node_uid: Callable[[NodeName], str] = _no_uid
    ) -> None:
        self._recorder = recorder
        self._node_uid = node_uid

    def step_taken(self, migration: MigrationRecord, step: Step, message: str) -> None:
        """Record the two steps that users notice."""
        if step is Step.BUDGET_CHECKED:
            note = (
                f"Moving {_amounts_and_way(migration)}{_expected(migration.predicted, migration)}"
            )
            for about in (_pod(migration), *self._around(migration)):
                self._record(about, EventReason.STARTED, note, related=_other(about, migration))
        elif step is Step.EVICTED:
            note = f"{_left(migration)}: {message}"
            self._on_pod(migration, EventReason.EVICTED, note)

    def completed(
        self, migration: MigrationRecord, outcome: Outcome, message: str, now_s: float
    ) -> None:
        """Record it on the replacement, because the moved pod is gone, and around it."""
        began_s = migration.created_s if migration.started_s is None else migration.started_s
        took = f"{max(0.0, now_s - began_s):.0f} s"
        note = f"Moved {_way(migration)} in {took}, {outcome.value}: {message}"
        for about in (_replacement(migration), *self._around(migration)):
            self._record(about, EventReason.COMPLETED, note, related=_pod(migration))

    def measured(self, migration: MigrationRecord, predicted: Uses, actual: Uses) -> None:
        """Record on the replacement the expected and the actual use of both nodes."""
        nodes = (
            _compared(migration.source, predicted.source, actual.source),
            _compared(migration.target, predicted.target, actual.target),
        )
        note = "; ".join(filter(None, nodes))
        self._record(_replacement(migration), EventReason.MEASURED, note, related=_pod(migration))

    def not_replaced(self, migration: MigrationRecord, message: str) -> None:
        self._on_pod(migration, EventReason.NOT_REPLACED, f"Needs no replacement: {message}")

    def failed(self, migration: MigrationRecord, reason: str, message: str) -> None:
        """Record it on the pod, on a node where its replacement fails, and on a drained one."""
        note = f"Not moved: {_way(migration)}: {reason}: {message}"
        self._on_pod(migration, EventReason.FAILED, note, type_="Warning")
        for about in _workload(migration):
            self._record(about, EventReason.FAILED, note, type_="Warning", related=_pod(migration))
        if migration.evicted_s is not None and migration.replacement_node:
            there = self._node(migration.replacement_node)
            name = f"{migration.namespace}/{migration.replacement_pod}"
            note = f"{name}, which was moved here, is not Ready: {message}"
            self._record(there, EventReason.FAILED, note, type_="Warning")
        if migration.strategy == Strategy.NODE_MAINTENANCE:
            node = self._node(migration.source)
            name = f"{migration.namespace}/{migration.pod_name}"
            self._record(node, EventReason.FAILED, f"{name} stays: {message}", type_="Warning")

    def mark_refused(self, migration: MigrationRecord, message: str) -> None:
        note = f"Moving it without the labels that mark the move: {message}"
        self._on_pod(migration, EventReason.MARK_REFUSED, note, type_="Warning")

    def cleanup_failed(self, migration: MigrationRecord, message: str) -> None:
        note = f"Cleanup after the move is incomplete: {message}"
        self._on_pod(migration, EventReason.CLEANUP_FAILED, note, type_="Warning")

    def _around(self, migration: MigrationRecord) -> Iterator[ObjectRef]:
        """Yield what else a move concerns: the workload and both nodes."""
        yield from _workload(migration)
        yield self._node(migration.source)
        yield self._node(migration.replacement_node or migration.target)

    def _node(self, name: NodeName) -> ObjectRef:
        return ObjectRef(kind="Node", name=name, uid=self._node_uid(name))

    def _on_pod(
        self,
        migration: MigrationRecord,
        reason: EventReason,
        note: str,
        type_: EventType = "Normal",
    ) -> None:
        self._record(_pod(migration), reason, note, type_=type_)

    def _record(
        self,
        regarding: ObjectRef,
        reason: EventReason,
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


def _way(migration: MigrationRecord, uses: str = "") -> str:
    key = f"{migration.namespace}/{migration.pod_name}"
    return f"{key}{uses} from {migration.source} to {migration.target}"


def _left(migration: MigrationRecord) -> str:
    """Return how a pod went: a surge evicts nothing."""
    if not migration.surge:
        return f"Evicted {_way(migration)}"
    return f"Removed {migration.namespace}/{migration.pod_name} from {migration.source}"


def _amounts_and_way(migration: MigrationRecord) -> str:
    """Return what moves where, what it uses, and why."""
    cpu, memory = migration.load_cpu_milli, migration.load_mem_bytes / _MIB
    uses = f", which uses {cpu:.0f}m CPU and {memory:.0f} MiB,"
    why = migration.explanation or migration.reason
    return f"{_way(migration, uses)} for {migration.strategy}: {why}"


def _expected(predicted: Uses | None, migration: MigrationRecord) -> str:
    """Return what both nodes are expected to use afterwards, where that is known."""
    if predicted is None:
        return ""
    nodes = ((migration.source, predicted.source), (migration.target, predicted.target))
    known = [
        f"{name} {use.cpu_percent:.0f} % CPU and {use.memory_percent:.0f} % memory"
        for name, use in nodes
        if use is not None
    ]
    return f"; expected afterwards: {', '.join(known)}" if known else ""


def _other(about: ObjectRef, migration: MigrationRecord) -> ObjectRef | None:
    pod = _pod(migration)
    return None if about == pod else pod


def _workload(migration: MigrationRecord) -> Iterator[ObjectRef]:
    """Yield the workload; a bare pod has none."""
    if migration.workload_uid and migration.workload_name:
        yield ObjectRef(
            kind=migration.workload_kind.partition(".")[0],
            namespace=migration.namespace,
            name=migration.workload_name,
            uid=migration.workload_uid,
            api_version=migration.workload_api_version or "v1",
        )


def _compared(node: str, expected: NodeUse | None, found: NodeUse | None) -> str:
    if expected is None or found is None:
        return ""
    return (
        f"{node} uses {found.cpu_percent:.0f} % CPU and {found.memory_percent:.0f} % memory, "
        f"expected {expected.cpu_percent:.0f} % and {expected.memory_percent:.0f} %"
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
