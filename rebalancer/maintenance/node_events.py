# SPDX-License-Identifier: Apache-2.0
"""The Events on nodes under maintenance, and on pods that their deadline concerns.

What stays as it is, is said once; a new leader says it again, which the API server counts as a
repetition.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from common.api.contract import MAINTENANCE_LABEL
from common.cluster.records import NodeRecord
from common.kube.events import EventType, ObjectRef
from rebalancer.events import Announcer
from rebalancer.maintenance.progress import Progress, RemainingPod

NAMED: Final = 20
"""Pods that an Event names at most."""
_ACTION: Final = "Draining"


class NodeEventReason(StrEnum):
    """The reasons of the Events; users filter by them."""

    IGNORED = "MaintenanceIgnored"
    PLANNED = "MaintenancePlanned"
    PROGRESS = "MaintenanceProgress"
    BLOCKED = "MaintenanceBlocked"
    DEADLINE = "MaintenanceDeadline"
    DONE = "MaintenanceDone"
    ENDED = "MaintenanceEnded"
    CONSOLIDATING = "ConsolidationStarted"
    RELEASED = "ConsolidationEnded"


class NodeEvents:
    """Records Events about the maintenance of nodes."""

    def __init__(self, recorder: Announcer) -> None:
        self._recorder = recorder
        self._said: dict[tuple[str, NodeEventReason], str] = {}

    def ignored(self, node: NodeRecord, why: str) -> None:
        """Record that the label has no effect."""
        note = f"The label {MAINTENANCE_LABEL} has no effect, no pod is moved: {why}"
        self._once(node, NodeEventReason.IGNORED, note, "Warning")

    async def planned(self, node: NodeRecord, text: str) -> None:
        """Announce what will happen, before it happens."""
        await self._recorder.record_now(
            regarding=_of(node),
            type_="Normal",
            reason=NodeEventReason.PLANNED.value,
            note=text,
            action=_ACTION,
        )

    def consolidated(self, node: NodeRecord, *, on: bool) -> None:
        """Record that a node is emptied for an autoscaler, or no longer."""
        if on:
            text = "The node is emptied and kept empty, so that an autoscaler can remove it"
            self._record(_of(node), NodeEventReason.CONSOLIDATING, text)
        else:
            self._record(_of(node), NodeEventReason.RELEASED, "The node is no longer kept empty")

    def progress(self, node: NodeRecord, text: str, *, done: bool) -> None:
        reason = NodeEventReason.DONE if done else NodeEventReason.PROGRESS
        self._record(_of(node), reason, text)

    def blocked(self, node: NodeRecord, now: Progress) -> None:
        """Record which pods remain, and why, when none of them will leave by itself."""
        note = f"{now.moved} of {now.total} pods moved; remaining: {now.named(NAMED)}"
        self._once(node, NodeEventReason.BLOCKED, note, "Warning")

    def not_cordoned(self, node: NodeRecord, error: str) -> None:
        note = f"No pod is moved before the node is cordoned, and that failed: {error}"
        self._once(node, NodeEventReason.BLOCKED, note, "Warning")

    def deadline(self, node: NodeRecord, note: str, pods: Iterable[RemainingPod]) -> None:
        """Record what the deadline will do, on the node and on the pods that it concerns."""
        self._record(_of(node), NodeEventReason.DEADLINE, note, "Warning")
        for pod in pods:
            namespace, _, name = pod.pod.partition("/")
            about = ObjectRef(kind="Pod", namespace=namespace, name=name, uid=pod.uid)
            self._record(about, NodeEventReason.DEADLINE, f"{node.name}: {note}", "Warning")

    def ended(self, node: NodeRecord, *, uncordoned: bool) -> None:
        effect = "it is schedulable again" if uncordoned else "Evenkeel had not cordoned it"
        note = f"The label was removed: moves stop, {effect}"
        self._record(_of(node), NodeEventReason.ENDED, note)

    def keep(self, labeled: Iterable[NodeRecord]) -> None:
        """Forget what was said of other nodes."""
        uids = {node.uid for node in labeled}
        self._said = {key: note for key, note in self._said.items() if key[0] in uids}

    def _once(self, node: NodeRecord, reason: NodeEventReason, note: str, type_: EventType) -> None:
        if self._said.get((node.uid, reason)) != note:
            self._said[node.uid, reason] = note
            self._record(_of(node), reason, note, type_)

    def _record(
        self, about: ObjectRef, reason: NodeEventReason, note: str, type_: EventType = "Normal"
    ) -> None:
        self._recorder.record(
            regarding=about, type_=type_, reason=reason.value, note=note, action=_ACTION
        )


def _of(node: NodeRecord) -> ObjectRef:
    return ObjectRef(kind="Node", name=node.name, uid=node.uid)
