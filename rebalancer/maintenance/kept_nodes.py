# SPDX-License-Identifier: Apache-2.0
"""Marks the nodes that `Consolidation` empties, so that extenders keep them empty.

The mark is an annotation: it changes nothing that an autoscaler looks at, neither cordon nor
taint nor label. It is set before the first pod leaves the node, and removed when the last plan no
longer names the node, or the strategy is off or only observes there. While moves are paused, and
before the first plan, marks stay as they are. While a schedule is closed no node is marked: no pod
could leave it. Only the leader writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from common.api.contract import CONSOLIDATION_SINCE, kept_empty
from common.api.objects import Node
from common.cache.state import ClusterState
from common.cluster.records import NodeName, NodeRecord
from common.config import Mode, RebalancerConfiguration, Rules, Strategy
from common.kube.client import KubeClient
from common.kube.timestamps import to_the_second
from common.runtime import Runtime
from rebalancer.events import Announcer
from rebalancer.maintenance.node_events import NodeEvents
from rebalancer.maintenance.node_writer import Json, NodeWriter
from rebalancer.passes import Passes
from rebalancer.planner import Plan

log: structlog.stdlib.BoundLogger = structlog.get_logger()

PAUSE_S: Final = 0.5
EVERY_S: Final = 5.0
"""The longest time between two passes: a new plan requests none."""


class KeptNodes:
    """Keeps the marks of nodes as the last plan wants them."""

    def __init__(
        self,
        client: KubeClient,
        state: ClusterState,
        recorder: Announcer,
        *,
        plan: Callable[[], Plan | None],
        config: Callable[[], RebalancerConfiguration],
        runtime: Runtime,
    ) -> None:
        self._state = state
        self._events = NodeEvents(recorder)
        self._plan = plan
        self._config = config
        self._clock = runtime.clock
        self._writer = NodeWriter(client, runtime.clock, runtime.metrics)
        self._passes = Passes(runtime.clock, pause_s=PAUSE_S, every_s=EVERY_S)
        self._gauge = runtime.metrics.gauge(
            "consolidation_nodes", "Nodes that are emptied or kept empty for an autoscaler."
        )
        state.nodes.listen(self._on_node)

    async def run(self) -> None:
        """Reconcile at once, whenever marks change, and periodically."""
        await self._passes.run(self.reconcile, "marks of nodes not reconciled")

    async def reconcile(self) -> None:
        """Set and remove marks once."""
        snapshot, config, plan = self._state.snapshot(), self._config(), self._plan()
        nodes = [view.node for view in snapshot.nodes.values()]
        marked = {node.name for node in nodes if kept_empty(node.annotations)}
        self._gauge.set(len(marked))
        wanted = self._wanted(nodes, plan, marked)
        if config.paused or snapshot.pause(self._clock.now()) is not None:
            return
        for node in nodes:
            if (node.name in wanted) != (node.name in marked):
                await self._mark(node, on=node.name in wanted)

    def _wanted(
        self, nodes: list[NodeRecord], plan: Plan | None, marked: set[NodeName]
    ) -> set[NodeName]:
        rules = Rules(self._config())
        acting = {node.name for node in nodes if _acts(rules, node)}
        waiting = {node.name for node in nodes if self._waits(rules, node)}
        wanted = marked if plan is None else set(plan.kept_empty)
        return acting & (wanted - (waiting - marked))

    def _waits(self, rules: Rules, node: NodeRecord) -> bool:
        found, now_s = rules.of_node(node.labels), self._clock.now()
        return rules.closed(Strategy.CONSOLIDATION, found, None, now_s) is not None

    async def _mark(self, node: NodeRecord, *, on: bool) -> None:
        if await self._writer.patch(node.name, self._set if on else _unset):
            log.info("node marked" if on else "node released", node=node.name)
            self._events.consolidated(node, on=on)

    def _set(self, fresh: Node) -> Json | None:
        if kept_empty(fresh.metadata.annotations or {}):
            return None
        since = to_the_second(self._clock.now())
        return {"metadata": {"annotations": {CONSOLIDATION_SINCE: since}}}

    def _on_node(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        if old is None or new is None or kept_empty(old.annotations) != kept_empty(new.annotations):
            self._passes.request()


def _unset(fresh: Node) -> Json | None:
    if not kept_empty(fresh.metadata.annotations or {}):
        return None
    # In a merge patch, null removes a key (RFC 7386).
    return {"metadata": {"annotations": {CONSOLIDATION_SINCE: None}}}


def _acts(rules: Rules, node: NodeRecord) -> bool:
    found = rules.of_node(node.labels)
    if Strategy.CONSOLIDATION not in found.enabled_strategies:
        return False
    return found.mode_of(Strategy.CONSOLIDATION).mode is Mode.ACT
