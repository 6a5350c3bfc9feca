# SPDX-License-Identifier: Apache-2.0
"""Events about what the rebalancer as a whole lacks: usage metrics, or a working extender.

They are about the Lease of the rebalancers, because no pod or node is at fault and the Lease
is there whichever replica leads. An Event about something that lasts is recorded again before
the API server deletes it: Events live for an hour by default (kube-apiserver --event-ttl).
"""

from __future__ import annotations

from typing import Final

from common.clock import Clock
from common.kube.events import EventType, ObjectRef
from common.load import Belief
from rebalancer.events import EventRecorder

REPEAT_S: Final = 1800.0
NO_METRICS: Final = "NoMetrics"
USAGE_NOT_READ: Final = "UsageNotRead"
USAGE_READ: Final = "UsageRead"
EXTENDER_DEAF: Final = "ExtenderDeaf"


class LeaseEvents:
    """Records Events about the Lease of the rebalancers; a dry run records none."""

    def __init__(self, recorder: EventRecorder | None, lease: ObjectRef) -> None:
        self._recorder = recorder
        self._lease = lease

    def record(self, type_: EventType, reason: str, note: str) -> None:
        """Record an Event."""
        if self._recorder is not None:
            self._recorder.record(
                regarding=self._lease, type_=type_, reason=reason, note=note, action="Observing"
            )

    def extender_deaf(self, text: str) -> None:
        """Record that an extender renews its Lease but misses Migrations."""
        note = f"{text[0].upper()}{text[1:]}. Nothing waits for it."
        self.record("Warning", EXTENDER_DEAF, note)


class UsageEvents:
    """Records that usage is missing, and that it is back."""

    def __init__(self, events: LeaseEvents, *, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self._last: tuple[str, str] | None = None
        self._recorded_s = 0.0

    def observe(self, belief: Belief) -> None:
        """Record what is missing, or that nothing is missing any more."""
        missing, now_s = _missing(belief), self._clock.monotonic()
        if missing is not None:
            if missing != self._last or now_s - self._recorded_s >= REPEAT_S:
                self._last, self._recorded_s = missing, now_s
                self._events.record("Warning", *missing)
        elif self._last is not None and not belief.load.resting:
            self._last = None
            note = f"Usage is read from {belief.source.asked}."
            self._events.record("Normal", USAGE_READ, note)


def _missing(belief: Belief) -> tuple[str, str] | None:
    """Return the reason and the note of the Event; None where nothing is missing.

    Before the first sample nothing is known and nothing has failed, which is no news.
    """
    if belief.source.without_metrics:
        note = (
            f"{belief.source.why}: plans take load to be what pods request, and nothing is moved "
            "for load. Install metrics-server, or configure usageSource: requests or prometheus."
        )
        return NO_METRICS, note[0].upper() + note[1:]
    if belief.load.resting and belief.trouble:
        return USAGE_NOT_READ, f"Nothing is moved for load: {belief.trouble}"
    return None
