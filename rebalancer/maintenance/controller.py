# SPDX-License-Identifier: Apache-2.0
"""What happens to a node under maintenance besides the moves: cordon, condition, and the end.

Level-triggered: each pass compares every node with its desired state and patches the difference.
Annotations of the node record that we cordoned it, how many pods it had and since when it is
under maintenance; they are written together with the cordon, so a new leader finds everything
and undoes exactly what Evenkeel did. A person who uncordons the node during the maintenance is
respected: it is cordoned only once.

This controller does not touch moves. They wait for the `DrainGate`, which opens when the node is
cordoned and announced, and when the label is removed, the migration controller closes those that
have not reached the eviction (`rebalancer.pacing.checks.maintenance_ended`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import structlog

from common.api.contract import (
    CORDONED_BY,
    MAINTENANCE_FORCED_FROM,
    MAINTENANCE_PODS,
    MAINTENANCE_PROGRESS,
    MAINTENANCE_SINCE,
    PRODUCT,
    under_maintenance,
)
from common.api.objects import Node
from common.cache.snapshot import NodeView, Snapshot
from common.cache.state import ClusterState
from common.cluster.records import ConditionRecord, NodeName, NodeRecord
from common.config import GENERAL, Mode, NodeRules, RebalancerConfiguration, Rules, Strategy
from common.kube.client import KubeClient
from common.kube.timestamps import to_the_second
from common.runtime import Runtime
from rebalancer.events import Announcer
from rebalancer.evictability.deadline import moment_of
from rebalancer.maintenance.condition import DrainedReason, drained, not_acting
from rebalancer.maintenance.deadline import DeadlineWarnings
from rebalancer.maintenance.drain_gate import DrainGate, to_be_cordoned
from rebalancer.maintenance.node_events import NodeEvents
from rebalancer.maintenance.node_writer import Json, NodeWriter
from rebalancer.maintenance.progress import Kind, Progress, predicted_peak, progress
from rebalancer.passes import Passes
from rebalancer.planner import Plan

log: structlog.stdlib.BoundLogger = structlog.get_logger()

UPDATE_EVERY_S: Final = 5.0
"""How often the progress on a node is updated at most; the end is written at once."""
PAUSE_S: Final = 0.2
BLOCKED_AFTER_S: Final = 60.0
"""Pods that wait for something else than a turn for this long block the drain."""
CORDONER: Final = f"{PRODUCT}-rebalancer"
"""The annotation value on a node that we cordoned."""

_OURS: Final = (
    CORDONED_BY,
    MAINTENANCE_PROGRESS,
    MAINTENANCE_PODS,
    MAINTENANCE_SINCE,
    MAINTENANCE_FORCED_FROM,
)


class Maintenance:
    """Reconciles nodes with their maintenance label."""

    def __init__(
        self,
        client: KubeClient,
        state: ClusterState,
        recorder: Announcer,
        *,
        plan: Callable[[], Plan | None],
        config: Callable[[], RebalancerConfiguration],
        gate: DrainGate,
        runtime: Runtime,
    ) -> None:
        self._state = state
        self._plan = plan
        self._config = config
        self._gate = gate
        self._clock = runtime.clock
        self._writer = NodeWriter(client, runtime.clock, runtime.metrics)
        self._events = NodeEvents(recorder)
        self._warnings = DeadlineWarnings(self._events, self._writer, config, runtime.clock)
        self._written_s: dict[tuple[NodeName, str], float] = {}
        self._stuck_since_s: dict[NodeName, float] = {}
        self._passes = Passes(runtime.clock, pause_s=PAUSE_S, every_s=UPDATE_EVERY_S)
        self._nodes = runtime.metrics.gauge("maintenance_nodes", "Nodes under maintenance.")
        self._pods = runtime.metrics.gauge(
            "maintenance_pods", "Pods on nodes under maintenance.", ("state",)
        )
        state.nodes.listen(self._on_node)
        state.migrations.listen(self._passes.on_change)

    async def run(self) -> None:
        """Reconcile at once, whenever nodes or Migrations change, and periodically."""
        await self._passes.run(self.reconcile, "maintenance not reconciled")

    async def reconcile(self) -> None:
        """Reconcile all nodes once; the end of a maintenance comes first."""
        snapshot = self._state.snapshot()
        views = snapshot.nodes.values()
        # First, because a node that is wrongly cordoned takes no pods of the others.
        for view in [v for v in views if _is_over(v.node)]:
            await self._guarded(view.node, self._end(view.node))
        labeled = [v for v in views if under_maintenance(v.node.labels)]
        await self._drain(labeled, snapshot)

    def _on_node(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        if old is None or new is None or _relevant(old) != _relevant(new):
            self._passes.request()

    async def _drain(self, labeled: list[NodeView], snapshot: Snapshot) -> None:
        self._nodes.set(len(labeled))
        plan = self._plan()
        found = {v.node.name: progress(v, snapshot, plan) for v in labeled}
        self._show(found)
        self._forget([v.node for v in labeled])
        rules = Rules(self._config())
        for view in labeled:
            if why := _why_not_acting(rules.of_node(view.node.labels)):
                await self._guarded(view.node, self._leave(view.node, why))
                continue
            await self._guarded(view.node, self._keep(view.node, found[view.node.name]))
            await self._guarded(view.node, self._announce(view.node, plan, snapshot))

    async def _guarded(self, node: NodeRecord, work: Awaitable[None]) -> None:
        """Work on one node; if that fails, the others go on."""
        try:
            await work
        except Exception:
            log.exception("node not reconciled", node=node.name)

    async def _leave(self, node: NodeRecord, why: str) -> None:
        """Say on the node that its label has no effect; a condition of ours no longer holds."""
        self._events.ignored(node, why)
        wanted = not_acting(why)
        if node.drained is not None and node.drained != wanted:
            await self._writer.set_drained(node, wanted)

    async def _keep(self, node: NodeRecord, now: Progress) -> None:
        """Bring condition, cordon and annotations of a node up to date, and tell its users."""
        reason = self._reason(node, now)
        # Before the cordon, so that a wait for the condition never meets an old one.
        await self._report(node, drained(now, reason=reason))
        await self._mark(node, now)
        await self._warnings.warn(node, now)
        if reason is DrainedReason.BLOCKED:
            self._events.blocked(node, now)

    def _reason(self, node: NodeRecord, now: Progress) -> DrainedReason:
        """Return why the node is not drained, if it is not."""
        stuck = self._is_stuck(node, now)
        if to_be_cordoned(node, self._config()):
            return DrainedReason.NOT_CORDONED
        if self._config().paused:
            return DrainedReason.PAUSED
        return DrainedReason.BLOCKED if stuck else DrainedReason.DRAINING

    def _is_stuck(self, node: NodeRecord, now: Progress) -> bool:
        if not now.stuck:
            self._stuck_since_s.pop(node.name, None)
            return False
        since_s = self._stuck_since_s.setdefault(node.name, self._clock.monotonic())
        return now.stays or self._clock.monotonic() - since_s >= BLOCKED_AFTER_S

    async def _report(self, node: NodeRecord, wanted: ConditionRecord) -> None:
        old = node.drained
        if old == wanted:
            return
        same = old is not None and (old.status, old.reason) == (wanted.status, wanted.reason)
        if same and not self._due(node.name, "condition"):
            return
        if await self._writer.set_drained(node, wanted):
            self._wrote(node.name, "condition")

    async def _mark(self, node: NodeRecord, now: Progress) -> None:
        """Cordon a node that is new to us, and write its progress."""
        text, written = self._text(now), node.annotations.get(MAINTENANCE_PROGRESS)
        complete = moment_of(node, MAINTENANCE_SINCE) is not None
        if text == written and complete and not to_be_cordoned(node, self._config()):
            return
        if written is not None and not now.done and not self._due(node.name, "progress"):
            return
        if await self._writer.patch(node.name, lambda fresh: self._kept(fresh, text, now.total)):
            self._wrote(node.name, "progress")
            self._events.progress(node, text, done=now.done)
        elif to_be_cordoned(node, self._config()) and node.name in self._writer.last_error:
            self._events.not_cordoned(node, self._writer.last_error[node.name])

    def _text(self, now: Progress) -> str:
        pause = self._state.snapshot().pause(self._clock.now())
        stopped = self._config().paused or pause is not None
        return f"{now.text}; moves are paused" if stopped else now.text

    def _due(self, name: NodeName, what: str) -> bool:
        written_s = self._written_s.get((name, what))
        return written_s is None or self._clock.monotonic() - written_s >= UPDATE_EVERY_S

    def _wrote(self, name: NodeName, what: str) -> None:
        self._written_s[name, what] = self._clock.monotonic()

    def _kept(self, fresh: Node, text: str, total: int) -> Json | None:
        """Return the patch of a node that is under maintenance."""
        meta = fresh.metadata
        if not under_maintenance(meta.labels or {}):
            return None
        found = meta.annotations or {}
        annotations = {MAINTENANCE_PROGRESS: text, MAINTENANCE_PODS: str(total)}
        if not _is_time(found.get(MAINTENANCE_SINCE, "")):
            annotations[MAINTENANCE_SINCE] = to_the_second(self._clock.now())
        cordoned = fresh.spec.unschedulable or CORDONED_BY in found
        if cordoned or not self._config().maintenance.cordon:
            return {"metadata": {"annotations": annotations}}
        log.info("node cordoned", node=meta.name)
        return {
            "metadata": {"annotations": {**annotations, CORDONED_BY: CORDONER}},
            "spec": {"unschedulable": True},
        }

    async def _end(self, node: NodeRecord) -> None:
        """Undo what we did to a node that is no longer under maintenance."""
        if node.drained is not None:
            await self._writer.remove_drained(node.name)
        if await self._writer.patch(node.name, _undone):
            uncordoned = CORDONED_BY in node.annotations and node.unschedulable
            log.info("maintenance ended", node=node.name, uncordoned=uncordoned)
            self._events.ended(node, uncordoned=uncordoned)

    async def _announce(self, node: NodeRecord, plan: Plan | None, snapshot: Snapshot) -> None:
        """Announce before the first move how full the other nodes will be."""
        if self._gate.announced(node):
            return
        text = _announcement(node, plan, snapshot)
        if text:
            await self._events.planned(node, text)
            self._gate.announce(node)

    def _show(self, found: Mapping[NodeName, Progress]) -> None:
        for kind in Kind:
            self._pods.labels(kind.value).set(sum(each.of(kind) for each in found.values()))

    def _forget(self, labeled: list[NodeRecord]) -> None:
        self._gate.keep(labeled)
        self._events.keep(labeled)
        names = {node.name for node in labeled}
        self._warnings.keep(names)
        self._written_s = {k: v for k, v in self._written_s.items() if k[0] in names}
        self._stuck_since_s = {k: v for k, v in self._stuck_since_s.items() if k in names}


def _announcement(node: NodeRecord, plan: Plan | None, snapshot: Snapshot) -> str:
    """Return what is known of the drain of a node; empty while nothing is planned."""
    leaving = 0 if plan is None else sum(move.source == node.name for move in plan.moves)
    under_way = sum(m.open and m.source == node.name for m in snapshot.migrations.values())
    count = max(leaving, under_way)
    if not count:
        return ""
    peak = "how full the other nodes will be is not known"
    if plan is not None:
        peak = predicted_peak(plan, snapshot)
    return f"{count} {'pod' if count == 1 else 'pods'} to move; {peak}"


def _why_not_acting(node: NodeRules) -> str:
    """Return why the label has no effect on a node; empty if it has."""
    strategy = Strategy.NODE_MAINTENANCE
    if strategy not in node.enabled_strategies:
        rule = f" of {node.words}" if node.sets("enabled_strategies") else ""
        return f"{strategy} is not among enabledStrategies{rule}"
    found = node.mode_of(strategy)
    rule = f" by {found.by}" if found.by != GENERAL else ""
    return f"the mode of {strategy} is observe{rule}" if found.mode is Mode.OBSERVE else ""


def _is_over(node: NodeRecord) -> bool:
    """Tell whether a node without the label still has something of ours."""
    ours = node.drained is not None or any(key in node.annotations for key in _OURS)
    return ours and not under_maintenance(node.labels)


def _relevant(node: NodeRecord) -> tuple[Any, ...]:
    ours = tuple(node.annotations.get(key) for key in _OURS)
    return under_maintenance(node.labels), node.unschedulable, node.drained, ours


def _is_time(text: str) -> bool:
    node = NodeRecord(name=NodeName(""), uid="", annotations={MAINTENANCE_SINCE: text})
    return moment_of(node, MAINTENANCE_SINCE) is not None


def _undone(fresh: Node) -> Json | None:
    found = fresh.metadata.annotations or {}
    ours = [key for key in _OURS if key in found]
    if not ours or under_maintenance(fresh.metadata.labels or {}):
        return None
    # In a merge patch, null removes a key (RFC 7386).
    body: Json = {"metadata": {"annotations": dict.fromkeys(ours)}}
    if CORDONED_BY in ours and fresh.spec.unschedulable:
        body["spec"] = {"unschedulable": None}
    return body
