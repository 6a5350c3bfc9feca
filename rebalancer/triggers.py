# SPDX-License-Identifier: Apache-2.0
"""When the next cycle is due: after an interval, or at once when something cannot wait.

A node that gets or loses the maintenance label triggers a cycle; a node that reaches
`minNodeAge` is waited for to the second. Nothing is polled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final

from common.api.contract import under_maintenance
from common.clock import Clock, within
from common.cluster.records import NodeRecord

SETTLED_S: Final = 1.0
"""Labels of several nodes that come within this time of each other belong together."""
SETTLED_AT_LAST_S: Final = 5.0


class Trigger(StrEnum):
    """Why a wait is over."""

    INTERVAL = "interval"
    MAINTENANCE = "maintenance"
    """A node got or lost the label."""
    NODE_OF_AGE = "node of age"
    """A node has reached minNodeAge."""
    CONFIG = "configuration"
    SAMPLE = "sample"
    """A new sample of usage was taken."""


class Triggers:
    """Waits that end early when something happens that they were asked to watch for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = asyncio.Event()
        self._pending: set[Trigger] = set()

    def on_node(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        """Listen to the table of nodes."""
        if _under_maintenance(old) != _under_maintenance(new):
            self.fire(Trigger.MAINTENANCE)
        elif old is None:
            # A wait that is under way does not know yet when this node comes of age.
            self._changed.set()

    def fire(self, trigger: Trigger) -> None:
        """End a wait that watches for this trigger; without one, the next such wait."""
        self._pending.add(trigger)
        self._changed.set()

    def clear(self, *triggers: Trigger) -> None:
        """Forget triggers that a cycle which begins now answers."""
        self._pending.difference_update(triggers)

    async def wait(
        self,
        seconds: float,
        *,
        until: Iterable[Trigger] = (Trigger.MAINTENANCE, Trigger.CONFIG),
        of_age: Callable[[], float | None] = lambda: None,
    ) -> Trigger:
        """Wait for `seconds`, one of the triggers, or the seconds that `of_age` returns."""
        watched = frozenset(until)
        end_s = self._clock.monotonic() + seconds
        while True:
            # Cleared before anything is checked: what happens during the checks sets it again.
            self._changed.clear()
            if fired := self._pending & watched:
                return min(fired)
            left_s, age_s = end_s - self._clock.monotonic(), of_age()
            if left_s <= 0:
                return Trigger.INTERVAL
            if age_s is not None and age_s <= 0:
                return Trigger.NODE_OF_AGE
            await self._wait_for_change(left_s if age_s is None else min(left_s, age_s))

    async def settled(self) -> None:
        """Wait until labels have stopped coming.

        `kubectl label nodes a b c` writes one node after the other. A plan that knew only of the
        first would move its pods onto the others, and they would move twice.
        """
        end_s = self._clock.monotonic() + SETTLED_AT_LAST_S
        while (left_s := end_s - self._clock.monotonic()) > 0:
            self.clear(Trigger.MAINTENANCE)
            until = (Trigger.MAINTENANCE,)
            if await self.wait(min(SETTLED_S, left_s), until=until) is Trigger.INTERVAL:
                return

    async def _wait_for_change(self, seconds: float) -> None:
        try:
            await within(self._clock, seconds, self._changed.wait())
        except TimeoutError:
            return


def until_of_age(
    nodes: Iterable[NodeRecord], *, min_age_s: float, planned_s: float, now_s: float
) -> float | None:
    """Return in how many seconds a node is of age that was too young at the last plan."""
    due = (node.created_s + min_age_s for node in nodes)
    return min((moment - now_s for moment in due if moment > planned_s), default=None)


def _under_maintenance(node: NodeRecord | None) -> bool:
    return node is not None and under_maintenance(node.labels)
