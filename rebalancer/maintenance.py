"""What happens to a node under maintenance beside the moves: cordon, progress, and the end.

Level-triggered: each pass compares every node with what it should say and changes what
differs. The node itself remembers, in annotations, that we cordoned it and how many pods
there were, and both are written together with the cordon; so a new leader finds everything
and undoes exactly what Evenkeel did. A person who makes the node schedulable again during
the maintenance is obeyed: it is cordoned once.

Moves are none of its business: when the label goes, the migration controller closes those
that have not come to the eviction (`rebalancer.limits.maintenance_ended`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import structlog

from common.clock import Clock, within
from common.cluster.objects import Node
from common.cluster.records import NodeName, NodeRecord
from common.cluster.snapshot import NodeView, Snapshot
from common.cluster.state import ClusterState
from common.config import Mode, RebalancerConfiguration, Strategy
from common.contract import (
    CORDONED_BY,
    MAINTENANCE_PODS,
    MAINTENANCE_PROGRESS,
    PRODUCT,
    under_maintenance,
)
from common.kube.client import KubeClient
from common.kube.errors import Conflict, KubeError, NotFound
from common.kube.events import ObjectRef
from common.kube.resources import NODES
from common.metrics import Metrics
from common.null_json import JsonDecoder
from rebalancer.maintenance_progress import Kind, Progress, predicted_peak, progress
from rebalancer.migration.announcing import EventRecorder
from rebalancer.planner import Plan

log: structlog.stdlib.BoundLogger = structlog.get_logger()

Json = dict[str, Any]  # Any: a piece of JSON

UPDATE_EVERY_S: Final = 5.0
"""How often a node is told its progress at most; the end is told at once."""
PAUSE_S: Final = 0.2
TRIES: Final = 3
"""How often a conflict is solved by reading again before the next pass is waited for."""
HAND: Final = f"{PRODUCT}-rebalancer"
"""Who stands in the annotation of a node that we cordoned."""

_OURS: Final = (CORDONED_BY, MAINTENANCE_PROGRESS, MAINTENANCE_PODS)
_DECODER: Final = JsonDecoder(Node)


class Maintenance:
    """Brings nodes in step with their maintenance label."""

    def __init__(
        self,
        client: KubeClient,
        state: ClusterState,
        recorder: EventRecorder,
        *,
        plan: Callable[[], Plan | None],
        config: Callable[[], RebalancerConfiguration],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._client = client
        self._state = state
        self._recorder = recorder
        self._plan = plan
        self._config = config
        self._clock = clock
        self._told_s: dict[NodeName, float] = {}
        self._foretold: set[NodeName] = set()
        self._changed = asyncio.Event()
        self._writes = metrics.counter(
            "maintenance_writes_total", "Changes of nodes for their maintenance.", ("result",)
        )
        self._nodes = metrics.gauge("maintenance_nodes", "Nodes under maintenance.")
        self._pods = metrics.gauge(
            "maintenance_pods", "Pods on nodes under maintenance.", ("state",)
        )
        state.nodes.listen(self._on_node)
        state.migrations.listen(self._noticed)

    async def run(self) -> None:
        """Reconcile at once, whenever nodes or Migrations change, and now and then."""
        while True:
            self._changed.clear()
            try:
                await self.reconcile()
            except Exception:  # the next pass starts from the world again
                log.exception("maintenance not reconciled")
            await self._clock.sleep(PAUSE_S)
            with suppress(TimeoutError):
                await within(self._clock, UPDATE_EVERY_S, self._changed.wait())

    async def reconcile(self) -> None:
        """Bring everything in step, once; the end of a maintenance comes first."""
        snapshot = self._state.snapshot()
        views = snapshot.nodes.values()
        for view in [v for v in views if _is_over(v.node)]:
            await self._alone(view.node, self._end(view.node))
        labelled = [v for v in views if under_maintenance(v.node.labels)]
        await self._empty(labelled, snapshot)

    def _on_node(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        if old is None or new is None or _said(old) != _said(new):
            self._changed.set()

    def _noticed(self, _old: object, _new: object) -> None:
        self._changed.set()

    async def _empty(self, labelled: list[NodeView], snapshot: Snapshot) -> None:
        self._nodes.set(len(labelled))
        plan = self._plan()
        found = {v.node.name: progress(v, snapshot, plan) for v in labelled}
        self._show(list(found.values()))
        self._forget(set(found))
        if not self._acts():
            return
        for view in labelled:
            keeping = self._keep(view.node, found[view.node.name])
            if await self._alone(view.node, keeping):
                self._foretell(view.node, plan, snapshot)

    async def _alone(self, node: NodeRecord, work: Awaitable[None]) -> bool:
        """Work on one node; tell whether that went well. If not, the others go on."""
        try:
            await work
        except Exception:
            log.exception("node not reconciled", node=node.name)
            return False
        return True

    def _acts(self) -> bool:
        config, strategy = self._config(), Strategy.NODE_MAINTENANCE
        return strategy in config.enabled_strategies and config.mode_of(strategy) is Mode.ACT

    async def _keep(self, node: NodeRecord, now: Progress) -> None:
        """Cordon a node that is new to us, and write down how far it is."""
        words, told = self._words(now), node.annotations.get(MAINTENANCE_PROGRESS)
        if words == told and not self._to_be_cordoned(node.unschedulable, node.annotations):
            return
        if told is not None and not now.done and not self._due(node.name):
            return
        if await self._write(node.name, lambda fresh: self._kept(fresh, words, now.total)):
            self._told_s[node.name] = self._clock.monotonic()
            reason = "MaintenanceDone" if now.done else "MaintenanceProgress"
            self._say(node, reason, words)

    def _words(self, now: Progress) -> str:
        return f"{now.words}; moves are paused" if self._config().paused else now.words

    def _due(self, name: NodeName) -> bool:
        told_s = self._told_s.get(name)
        return told_s is None or self._clock.monotonic() - told_s >= UPDATE_EVERY_S

    def _to_be_cordoned(self, unschedulable: bool, annotations: Any) -> bool:
        wanted = self._config().maintenance.cordon
        return wanted and not unschedulable and CORDONED_BY not in annotations

    def _kept(self, fresh: Node, words: str, total: int) -> Json | None:
        """Return what is to change of a node that is under maintenance."""
        if not under_maintenance(fresh.metadata.labels or {}):
            return None
        annotations = {MAINTENANCE_PROGRESS: words, MAINTENANCE_PODS: str(total)}
        if not self._to_be_cordoned(fresh.spec.unschedulable, fresh.metadata.annotations or {}):
            return {"metadata": {"annotations": annotations}}
        log.info("node cordoned", node=fresh.metadata.name)
        return {
            "metadata": {"annotations": {**annotations, CORDONED_BY: HAND}},
            "spec": {"unschedulable": True},
        }

    async def _end(self, node: NodeRecord) -> None:
        """Undo what we did to a node that is not under maintenance any more."""
        if await self._write(node.name, _undone):
            uncordoned = CORDONED_BY in node.annotations and node.unschedulable
            words = "it takes pods again" if uncordoned else "it was not cordoned by us"
            log.info("maintenance ended", node=node.name, uncordoned=uncordoned)
            self._say(node, "MaintenanceEnded", f"The label is gone: moves stop, {words}")

    async def _write(self, name: NodeName, change: Callable[[Node], Json | None]) -> bool:
        """Change a node as it is now; tell whether something was changed."""
        try:
            for _ in range(TRIES):
                fresh = _DECODER.decode(await self._client.get(NODES.path(name=name)))
                body = change(fresh)
                if body is None:
                    return False
                version = {"resourceVersion": fresh.metadata.resource_version}
                body["metadata"] = {**body["metadata"], **version}
                if await self._patched(name, body):
                    return True
        except NotFound:
            return False
        except KubeError as error:
            self._failed(name, error)
        return False

    async def _patched(self, name: NodeName, body: Json) -> bool:
        try:
            await self._client.patch(NODES, body, name=name)
        except Conflict:
            return False
        self._writes.labels("written").inc()
        return True

    def _failed(self, name: NodeName, error: KubeError) -> None:
        self._writes.labels("failed").inc()
        log.warning("maintenance not written", node=name, error=str(error))

    def _foretell(self, node: NodeRecord, plan: Plan | None, snapshot: Snapshot) -> None:
        """Say before the first move how full the others will be."""
        if plan is None or node.name in self._foretold:
            return
        leaving = sum(move.source == node.name for move in plan.moves)
        peak = predicted_peak(plan, snapshot)
        if leaving and peak is not None:
            self._foretold.add(node.name)
            self._say(node, "MaintenancePlanned", f"{leaving} to leave; {peak}")

    def _say(self, node: NodeRecord, reason: str, note: str) -> None:
        about = ObjectRef(kind="Node", name=node.name, uid=node.uid)
        self._recorder.record(
            regarding=about, type_="Normal", reason=reason, note=note, action="Emptying"
        )

    def _show(self, found: list[Progress]) -> None:
        for kind in Kind:
            self._pods.labels(kind.value).set(sum(each.of(kind) for each in found))

    def _forget(self, labelled: set[NodeName]) -> None:
        self._foretold &= labelled
        for name in self._told_s.keys() - labelled:
            del self._told_s[name]


def _is_over(node: NodeRecord) -> bool:
    """Tell whether a node without the label still says what we wrote."""
    return not under_maintenance(node.labels) and any(key in node.annotations for key in _OURS)


def _said(node: NodeRecord) -> tuple[bool, bool, tuple[str | None, ...]]:
    ours = tuple(node.annotations.get(key) for key in _OURS)
    return under_maintenance(node.labels), node.unschedulable, ours


def _undone(fresh: Node) -> Json | None:
    found = fresh.metadata.annotations or {}
    ours = [key for key in _OURS if key in found]
    if not ours or under_maintenance(fresh.metadata.labels or {}):
        return None
    body: Json = {"metadata": {"annotations": dict.fromkeys(ours)}}
    if CORDONED_BY in ours and fresh.spec.unschedulable:
        body["spec"] = {"unschedulable": None}
    return body
