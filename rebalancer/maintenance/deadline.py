# SPDX-License-Identifier: Apache-2.0
"""Says in time what happens at the deadline of a maintenance.

An hour before, and again one cycle before, Events on the node and on the pods concerned say what
will be moved then. The second time is written into an annotation of the node together with the
moment from which on the gates let these pods go (`rebalancer.evictability.deadline`), so nothing
is forced that was not announced a cycle before, whatever happens to this process in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import ceil
from typing import Final

from common.api.contract import MAINTENANCE_FORCED_FROM, under_maintenance
from common.api.objects import Node
from common.clock import Clock
from common.cluster.records import NodeName, NodeRecord
from common.config import RebalancerConfiguration
from common.kube.timestamps import to_the_second
from rebalancer.evictability.deadline import deadline_s, moment_of
from rebalancer.maintenance.node_events import NAMED, NodeEvents
from rebalancer.maintenance.node_writer import Json, NodeWriter
from rebalancer.maintenance.progress import Progress

EARLY_S: Final = 3600.0
"""How long before the deadline it is announced for the first time."""

_STILL_HOLD: Final = (
    "PodDisruptionBudgets, bare pods, volumes and files of the node, "
    "and excluded namespaces still hold"
)


class DeadlineWarnings:
    """Announces deadlines; each stage once for a node."""

    def __init__(
        self,
        events: NodeEvents,
        writer: NodeWriter,
        config: Callable[[], RebalancerConfiguration],
        clock: Clock,
    ) -> None:
        self._events = events
        self._writer = writer
        self._config = config
        self._clock = clock
        self._said_early: set[NodeName] = set()

    async def warn(self, node: NodeRecord, now: Progress) -> None:
        """Announce the deadline of a node if it is time to, and something remains there."""
        config, now_s = self._config(), self._clock.now()
        due_s = deadline_s(node, config)
        if due_s is None or now.done or moment_of(node, MAINTENANCE_FORCED_FROM) is not None:
            return
        cycle_s = config.rescheduling_interval.seconds
        if now_s >= due_s - cycle_s:
            await self._say_last(node, now, ceil(max(due_s, now_s + cycle_s)))
        elif now_s >= due_s - EARLY_S and node.name not in self._said_early:
            self._said_early.add(node.name)
            self._say(node, now, due_s)

    def keep(self, labeled: Collection[NodeName]) -> None:
        self._said_early &= set(labeled)

    async def _say_last(self, node: NodeRecord, now: Progress, from_s: float) -> None:
        """Write from when on it is forced, and say so; until that is written, nothing is."""

        def change(fresh: Node) -> Json | None:
            if not under_maintenance(fresh.metadata.labels or {}):
                return None
            return {"metadata": {"annotations": {MAINTENANCE_FORCED_FROM: to_the_second(from_s)}}}

        self._say(node, now, from_s)
        await self._writer.patch(node.name, change)

    def _say(self, node: NodeRecord, now: Progress, from_s: float) -> None:
        pods = [pod for pod in now.remaining if pod.until_deadline][:NAMED]
        names = ", ".join(pod.text for pod in pods) or "none now"
        note = (
            f"From {to_the_second(from_s)} on (maintenance.deadline) opt-outs, single replicas and "
            f"emptyDir volumes no longer keep pods here; {_STILL_HOLD}; staying until then: {names}"
        )
        self._events.deadline(node, note, pods)
