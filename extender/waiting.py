"""Waits for the next Node event before a whole list is refused.

A removed maintenance label wakes the pods that wait for it, but the scheduler's watch may
be ahead of ours: its question comes before our word of the change, and a pod that is refused
now is not asked about again for minutes. So a refusal of everything is given a short while
to be overtaken. Questions come one after the other, and a cluster that really is under
maintenance must not be slowed down for long: waiting costs credit, which comes back at half
the speed of time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from common.clock import Clock, within
from common.cluster.records import NodeRecord
from common.metrics import Metrics
from extender.asking import Filtered

WAIT_S: Final = 0.1
CREDIT_S: Final = 2.0
"""So long may be waited without a pause; then half of the time at most."""
REFILL: Final = 0.5
_ROUNDING: Final = 1e-6


class NodeEvents:
    """Lets a judgement wait for Node events."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._event = asyncio.Event()
        self._credit_s = CREDIT_S
        self._counted_s = clock.monotonic()
        waits = metrics.counter(
            "node_event_waits_total",
            "Waits for a Node event before a whole list is refused.",
            ("result",),
        )
        self._helped = waits.labels("helped")
        self._in_vain = waits.labels("vain")
        self._skipped = waits.labels("skipped")

    def happened(self, _old: NodeRecord | None, _new: NodeRecord | None) -> None:
        """Wake everybody who waits."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def before_refusing_all(self, judge: Callable[[], Filtered]) -> Filtered:
        """Return the first judgement that keeps a node, or the last one when time is over."""
        found = judge()
        if found.keep or not found.failed:
            return found
        if not self._may_wait():
            self._skipped.inc()
            return found
        began_s = self._clock.monotonic()
        self._credit_s -= WAIT_S
        while not found.keep and await self._event_before(began_s + WAIT_S):
            found = judge()
        self._credit_s += max(0.0, WAIT_S - (self._clock.monotonic() - began_s))
        (self._helped if found.keep else self._in_vain).inc()
        return found

    def _may_wait(self) -> bool:
        now_s = self._clock.monotonic()
        earned_s = REFILL * (now_s - self._counted_s)
        self._credit_s, self._counted_s = min(CREDIT_S, self._credit_s + earned_s), now_s
        return self._credit_s > WAIT_S - _ROUNDING

    async def _event_before(self, until_s: float) -> bool:
        left_s = until_s - self._clock.monotonic()
        if left_s <= 0.0:
            return False
        try:
            await within(self._clock, left_s, self._event.wait())
        except TimeoutError:
            return False
        return True
