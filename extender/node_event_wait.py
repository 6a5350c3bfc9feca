# SPDX-License-Identifier: Apache-2.0
"""Waits for the next Node event before a whole list of nodes is rejected.

Removing a maintenance label wakes the pods that wait for it, but kube-scheduler's watch may
be ahead of ours: its request then arrives before our event, and a pod that is rejected now
is not tried again for minutes. So an answer that rejects every node is held back briefly,
in case the event is on its way. Requests come one after the other, and a cluster that really
is under maintenance must not be slowed down for long: waiting uses up a budget, which refills
at half the speed of time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from common.clock import Clock, within
from common.cluster.records import NodeRecord
from common.metrics import Metrics
from extender.protocol import FilterResult

WAIT_S: Final = 0.1
BUDGET_S: Final = 2.0
"""Total waiting without a pause; after that at most half of the time."""
REFILL: Final = 0.5
_ROUNDING: Final = 1e-6


class NodeEventWait:
    """Lets a filter decision wait for Node events."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._event = asyncio.Event()
        self._budget_s = BUDGET_S
        self._refilled_s = clock.monotonic()
        waits = metrics.counter(
            "node_event_waits_total",
            "Waits for a Node event before a whole list of nodes is rejected.",
            ("result",),
        )
        self._helped = waits.labels("helped")
        self._in_vain = waits.labels("vain")
        self._skipped = waits.labels("skipped")

    def on_node(self, _old: NodeRecord | None, _new: NodeRecord | None) -> None:
        """Wake every decision that waits."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def before_rejecting_all(self, decide: Callable[[], FilterResult]) -> FilterResult:
        """Return the first decision that keeps a node, or the last one when time is up."""
        found = decide()
        if found.keep or not found.failed:
            return found
        if not self._may_wait():
            self._skipped.inc()
            return found
        started_s = self._clock.monotonic()
        self._budget_s -= WAIT_S
        while not found.keep and await self._event_before(started_s + WAIT_S):
            found = decide()
        self._budget_s += max(0.0, WAIT_S - (self._clock.monotonic() - started_s))
        (self._helped if found.keep else self._in_vain).inc()
        return found

    def _may_wait(self) -> bool:
        now_s = self._clock.monotonic()
        earned_s = REFILL * (now_s - self._refilled_s)
        self._budget_s, self._refilled_s = min(BUDGET_S, self._budget_s + earned_s), now_s
        return self._budget_s > WAIT_S - _ROUNDING

    async def _event_before(self, until_s: float) -> bool:
        left_s = until_s - self._clock.monotonic()
        if left_s <= 0.0:
            return False
        try:
            await within(self._clock, left_s, self._event.wait())
        except TimeoutError:
            return False
        return True
