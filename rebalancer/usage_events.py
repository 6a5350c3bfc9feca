"""Tells as an Event that metrics are missing, and that they are back.

The Event is about the Lease of the rebalancers, because no pod or node is at fault and the
Lease is there whichever replica leads. What lasts is told again before the API server forgets
it: Events live for an hour by default.
"""

from __future__ import annotations

from typing import Final

from common.clock import Clock
from common.kube.events import EventType, ObjectRef
from common.observer import Belief
from rebalancer.migration.announcing import EventRecorder

AGAIN_S: Final = 1800.0
NO_METRICS: Final = "NoMetrics"
USAGE_NOT_READ: Final = "UsageNotRead"
USAGE_READ: Final = "UsageRead"


class UsageEvents:
    """Compares each belief with what was told last."""

    def __init__(self, recorder: EventRecorder, lease: ObjectRef, *, clock: Clock) -> None:
        self._recorder = recorder
        self._lease = lease
        self._clock = clock
        self._told: tuple[str, str] | None = None
        self._told_s = 0.0

    def saw(self, belief: Belief) -> None:
        """Tell what is missing, or that nothing is missing any more."""
        found, now_s = _missing(belief), self._clock.monotonic()
        if found is not None:
            if found != self._told or now_s - self._told_s >= AGAIN_S:
                self._told, self._told_s = found, now_s
                self._say("Warning", *found)
        elif self._told is not None and not belief.load.resting:
            self._told = None
            self._say("Normal", USAGE_READ, f"Usage is read from {belief.source.asked}.")

    def _say(self, type_: EventType, reason: str, note: str) -> None:
        self._recorder.record(
            regarding=self._lease, type_=type_, reason=reason, note=note, action="Observing"
        )


def _missing(belief: Belief) -> tuple[str, str] | None:
    """Return the reason and the words of the Event; None where nothing is missing.

    Before the first sample nothing is known and nothing has failed, which is no news.
    """
    if belief.source.without_metrics:
        words = (
            f"{belief.source.why}: plans take load to be what pods request, and nothing is moved "
            "for load. Install metrics-server, or configure usageSource: requests or prometheus."
        )
        return NO_METRICS, words[0].upper() + words[1:]
    if belief.load.resting and belief.trouble:
        return USAGE_NOT_READ, f"Nothing is moved for load: {belief.trouble}"
    return None
