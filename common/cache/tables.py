# SPDX-License-Identifier: Apache-2.0
"""What reflectors fill: one table per kind, each the only writer of its part of the state.

A table understands events in any order across kinds: a pod may come before its node or
its owner, and a node may go before its pods. Repeated events change nothing.

An object that cannot be parsed, whatever the reason, is refused with a ValueError before
anything has changed. A listener that fails is told about and left alone: neither one object
nor one listener keeps the others from being read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

import structlog

from common.api.objects import Node, Object, Pod, VerticalPodAutoscaler
from common.cache.cow_map import CowGroups, CowMap
from common.cache.snapshot import NodeView
from common.cluster.autoscalers import VpaRecord, vpa_record
from common.cluster.interning import Interner
from common.cluster.records import (
    UNBOUND,
    ControllerId,
    NodeName,
    NodeRecord,
    OwnerUid,
    PodRecord,
    PodUid,
    node_record,
    pod_record,
)
from common.cluster.resources import Resources
from common.cluster.workloads import WorkloadRecord
from common.kube.envelopes import key_of

log: structlog.stdlib.BoundLogger = structlog.get_logger()

W = TypeVar("W", bound=Object)
R = TypeVar("R")

Changed = Callable[[], None]
Listener = Callable[[R | None, R | None], None]
"""Told what a record was and what it is now; None where there is none."""
Oddity = Callable[[str, str, str], None]
"""Told about (kind, key, cause) of objects that are kept but make no sense."""


def ignore(_kind: str, _key: str, _cause: str) -> None:
    """Take no notice of an oddity."""


class Table(Generic[W, R]):
    """Records of one kind by `namespace/name`."""

    def __init__(
        self,
        parse: Callable[[W, Interner], R],
        shared: Interner,
        changed: Changed,
        oddity: Oddity = ignore,
    ) -> None:
        self._parse = parse
        self._shared = shared
        self._changed = changed
        self._oddity = oddity
        self._listeners: list[Listener[R]] = []
        self.records: Final[CowMap[str, R]] = CowMap()

    def listen(self, listener: Listener[R]) -> None:
        """Have every change told, after it was made, in the order of the changes."""
        self._listeners.append(listener)

    def upsert(self, wire: W) -> None:
        """Take in an object; raise ValueError if it cannot be parsed."""
        try:
            record = self._parse(wire, self._shared)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        self._put(key_of(wire.metadata), record)

    def delete(self, wire: W) -> None:
        self.forget(key_of(wire.metadata))

    def forget(self, key: str) -> None:
        old = self.records.pop(key)
        if old is not None:
            self._replaced(old, None)
            self._tell(key, old, None)

    def keys(self) -> Iterable[str]:
        return iter(self.records)

    def _put(self, key: str, new: R) -> None:
        old = self.records.get(key)
        if old == new:
            return
        self.records.put(key, new)
        self._replaced(old, new)
        self._tell(key, old, new)

    def _tell(self, key: str, old: R | None, new: R | None) -> None:
        self._changed()
        for listener in self._listeners:
            try:
                listener(old, new)
            except Exception:
                kind = type(old if new is None else new).__name__.removesuffix("Record")
                self._oddity(kind, key, "ListenerFailed")
                log.exception("listener failed", kind=kind, object=key)

    def _replaced(self, old: R | None, new: R | None) -> None:
        """Keep what is derived from the records in step; nothing is, here."""


class WorkloadTable(Table[W, WorkloadRecord]):
    """Workloads of one kind, filed by uid with those of the other kinds."""

    def __init__(
        self,
        parse: Callable[[W, Interner], WorkloadRecord],
        shared: Interner,
        changed: Changed,
        oddity: Oddity,
        by_uid: CowMap[OwnerUid, WorkloadRecord],
    ) -> None:
        super().__init__(parse, shared, changed, oddity)
        self._by_uid = by_uid

    def _replaced(self, old: WorkloadRecord | None, new: WorkloadRecord | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._by_uid.pop(old.uid)
        if new is not None:
            self._by_uid.put(new.uid, new)


class VpaTable(Table[VerticalPodAutoscaler, VpaRecord]):
    """VerticalPodAutoscalers, by the workload that they are for."""

    def __init__(self, shared: Interner, changed: Changed, oddity: Oddity) -> None:
        super().__init__(vpa_record, shared, changed, oddity)
        self.by_target: Final[CowMap[str, VpaRecord]] = CowMap()

    def _replaced(self, old: VpaRecord | None, new: VpaRecord | None) -> None:
        if old is not None and (new is None or new.target != old.target):
            self.by_target.pop(old.target)
        if new is not None:
            self.by_target.put(new.target, new)


class NodeTotals:
    """One node's record once known, its pods, and the sums of their requests, kept up to date."""

    __slots__ = ("_cpu", "_ephemeral", "_memory", "_scalars", "_scored", "cached", "pods", "record")

    def __init__(self) -> None:
        self.record: NodeRecord | None = None
        self.pods: dict[PodUid, PodRecord] = {}
        self.cached: NodeView | None = None
        """The view, until something changes."""
        self._cpu = self._memory = self._ephemeral = 0
        self._scored = [0, 0]
        self._scalars: dict[str, int] = {}

    def charge(self, pod: PodRecord, sign: int) -> None:
        asked = pod.shape.requests
        self._cpu += sign * asked.cpu_milli
        self._memory += sign * asked.mem_bytes
        self._ephemeral += sign * asked.ephemeral_bytes
        self._scored[0] += sign * pod.shape.scored_cpu_milli
        self._scored[1] += sign * pod.shape.scored_mem_bytes
        for name, amount in asked.scalars:
            self._scalars[name] = self._scalars.get(name, 0) + sign * amount

    def view(self) -> NodeView | None:
        """Return the view of this node, built again only if something changed."""
        if self.cached is None and self.record is not None:
            scalars = tuple(sorted((n, a) for n, a in self._scalars.items() if a))
            requested = Resources(self._cpu, self._memory, self._ephemeral, scalars)
            self.cached = NodeView(self.record, self.pods.copy(), requested, *self._scored)
        return self.cached


class NodeViews:
    """The totals of all nodes, and which of them changed since the last snapshot."""

    def __init__(self) -> None:
        self._totals: dict[NodeName, NodeTotals] = {}
        self._stale: dict[NodeName, None] = {}  # in order: a plan must not depend on hashes
        self._views: dict[NodeName, NodeView] = {}

    def set_node(self, name: NodeName, record: NodeRecord | None) -> None:
        self._touch(name).record = record
        self._drop_if_empty(name)

    def add_pod(self, pod: PodRecord) -> None:
        totals = self._touch(pod.node)
        totals.pods[pod.uid] = pod
        totals.charge(pod, +1)

    def remove_pod(self, pod: PodRecord) -> None:
        totals = self._touch(pod.node)
        del totals.pods[pod.uid]
        totals.charge(pod, -1)
        self._drop_if_empty(pod.node)

    def freeze(self) -> dict[NodeName, NodeView]:
        """Return the views of all known nodes; costs what changed."""
        if self._stale:
            self._views = self._views.copy()
            for name in self._stale:
                totals = self._totals.get(name)
                view = totals.view() if totals is not None else None
                if view is None:
                    self._views.pop(name, None)
                else:
                    self._views[name] = view
            self._stale.clear()
        return self._views

    def _touch(self, name: NodeName) -> NodeTotals:
        self._stale[name] = None
        totals = self._totals.get(name)
        if totals is None:
            totals = self._totals[name] = NodeTotals()
        totals.cached = None
        return totals

    def _drop_if_empty(self, name: NodeName) -> None:
        totals = self._totals[name]
        if totals.record is None and not totals.pods:
            del self._totals[name]


class NodeTable(Table[Node, NodeRecord]):
    """Nodes."""

    def __init__(
        self, nodes: NodeViews, shared: Interner, changed: Changed, oddity: Oddity
    ) -> None:
        super().__init__(node_record, shared, changed, oddity)
        self._nodes = nodes

    def _replaced(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        name = new.name if new is not None else old.name if old is not None else UNBOUND
        self._nodes.set_node(name, new)
        if new is not None and _is_empty(new) and not (old is not None and _is_empty(old)):
            self._oddity("Node", name, "NoAllocatable")


class PodTable(Table[Pod, PodRecord]):
    """Pods, with the indices over them."""

    def __init__(
        self, nodes: NodeViews, shared: Interner, changed: Changed, oddity: Oddity
    ) -> None:
        super().__init__(pod_record, shared, changed, oddity)
        self._nodes = nodes
        self.by_uid: Final[CowMap[PodUid, PodRecord]] = CowMap()
        self.pending: Final[CowMap[PodUid, PodRecord]] = CowMap()
        self.stalled: Final[CowMap[PodUid, PodRecord]] = CowMap()
        self.resizing: Final[CowMap[PodUid, PodRecord]] = CowMap()
        self.by_owner: Final[CowGroups[ControllerId, PodUid, PodRecord]] = CowGroups()
        self.by_namespace: Final[CowGroups[str, PodUid, PodRecord]] = CowGroups()
        self.by_nomination: Final[CowGroups[NodeName, PodUid, PodRecord]] = CowGroups()

    def delete(self, wire: Pod) -> None:
        held = self.records.get(key_of(wire.metadata))
        # A StatefulSet's next pod has the same name; a late word on the last is not about it.
        if held is not None and held.uid == wire.metadata.uid:
            super().delete(wire)

    def _replaced(self, old: PodRecord | None, new: PodRecord | None) -> None:
        if old is not None:
            self._leave(old, gone=new is None or new.uid != old.uid)
        if new is not None:
            self._enter(new)

    def _enter(self, pod: PodRecord) -> None:
        self.by_uid.put(pod.uid, pod)
        self.by_namespace.put(pod.namespace, pod.uid, pod)
        if (controller := pod.controller_id) is not None:
            self.by_owner.put(controller, pod.uid, pod)
        if pod.finished:
            return
        if pod.node:
            self._nodes.add_pod(pod)
            if pod.resize:
                self.resizing.put(pod.uid, pod)
            if pod.stalled and not pod.terminating:
                self.stalled.put(pod.uid, pod)
        elif not pod.terminating:
            self.pending.put(pod.uid, pod)
            if pod.nominated_node:
                self.by_nomination.put(pod.nominated_node, pod.uid, pod)

    def _leave(self, pod: PodRecord, *, gone: bool) -> None:
        if gone:
            self.by_uid.pop(pod.uid)
            self.by_namespace.pop(pod.namespace, pod.uid)
        if (controller := pod.controller_id) is not None:
            self.by_owner.pop(controller, pod.uid)
        if pod.finished:
            return
        if pod.node:
            self._nodes.remove_pod(pod)
            if pod.resize:
                self.resizing.pop(pod.uid)
            if pod.stalled and not pod.terminating:
                self.stalled.pop(pod.uid)
        elif not pod.terminating:
            self.pending.pop(pod.uid)
            if pod.nominated_node:
                self.by_nomination.pop(pod.nominated_node, pod.uid)


def _is_empty(node: NodeRecord) -> bool:
    return node.allocatable.cpu_milli <= 0 or node.allocatable.mem_bytes <= 0
