"""When the next look is due: after an interval, or at once when something cannot wait.

A node that gets or loses the maintenance label rings; a node that comes of age is waited
for to the second. Nothing is asked again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from enum import StrEnum

from common.clock import Clock, within
from common.cluster.records import NodeRecord
from common.contract import under_maintenance


class Due(StrEnum):
    """Why a pause is over."""

    INTERVAL = "interval"
    MAINTENANCE = "maintenance"
    """A node got or lost the label."""
    NODE_OF_AGE = "node of age"
    """A node has reached minNodeAge."""
    CHANGED = "configuration"
    SAMPLE = "sample"
    """Usage was measured anew."""


class Bell:
    """Pauses that end early when somebody rings."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stirred = asyncio.Event()
        self._rung: set[Due] = set()

    def on_node(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        """Listen to the table of nodes."""
        if _labelled(old) != _labelled(new):
            self.ring(Due.MAINTENANCE)
        elif old is None:
            # Nobody knew when this one comes of age.
            self._stirred.set()

    def ring(self, why: Due) -> None:
        """End the pause of whoever waits for this; the next one, if nobody does."""
        self._rung.add(why)
        self._stirred.set()

    def answered(self, *reasons: Due) -> None:
        """Take back what has been heard: a look that begins now sees it."""
        self._rung.difference_update(reasons)

    async def pause(
        self,
        seconds: float,
        *,
        heeding: Iterable[Due] = (Due.MAINTENANCE, Due.CHANGED),
        of_age: Callable[[], float | None] = lambda: None,
    ) -> Due:
        """Wait for `seconds`, a ring that is heeded, or until `of_age` says that one is due."""
        heeded = frozenset(heeding)
        end_s = self._clock.monotonic() + seconds
        while True:
            self._stirred.clear()
            if rung := self._rung & heeded:
                return min(rung)
            left_s, age_s = end_s - self._clock.monotonic(), of_age()
            if left_s <= 0:
                return Due.INTERVAL
            if age_s is not None and age_s <= 0:
                return Due.NODE_OF_AGE
            await self._stir(left_s if age_s is None else min(left_s, age_s))

    async def _stir(self, seconds: float) -> None:
        try:
            await within(self._clock, seconds, self._stirred.wait())
        except TimeoutError:
            return


def until_of_age(
    nodes: Iterable[NodeRecord], *, min_age_s: float, looked_s: float, now_s: float
) -> float | None:
    """Return in how many seconds a node is of age that was not at the last look; None if none."""
    due = (node.created_s + min_age_s for node in nodes)
    return min((moment - now_s for moment in due if moment > looked_s), default=None)


def _labelled(node: NodeRecord | None) -> bool:
    return node is not None and under_maintenance(node.labels)
