"""Which schedulers ask us, and how much of the cluster they show.

A live extender does not prove that any scheduler asks it. So each `schedulerName` is kept
with the time of its last filter call and with the share of the nodes in question that it
showed: above 100 nodes kube-scheduler stops searching early (numFeasibleNodesToFind in
pkg/scheduler/schedule_one.go), and a target that is not shown cannot be kept.

A single call proves little about the share, for affinity and taints thin out the list as
well; the best of the last calls is told. Where no call could be counted, none is.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from common.clock import Clock
from common.kube.timestamps import micro_time

ALL_SHOWN_BELOW: Final = 100
"""Of fewer nodes kube-scheduler shows all that fit (minFeasibleNodesToFind)."""

_SPAN_S: Final = 600.0
_CALLS: Final = 100
_PAUSE_S: Final = 1.0
_NAMES: Final = 32
_DIGITS: Final = 4


class _Scheduler:
    """What one scheduler did."""

    __slots__ = ("last_s", "shares")

    def __init__(self) -> None:
        self.last_s = 0.0
        self.shares: deque[tuple[float, float]] = deque(maxlen=_CALLS)


class Guides:
    """Remembers the callers; cheap enough for every filter call."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._schedulers: dict[str, _Scheduler] = {}

    def wants_share(self, scheduler_name: str) -> bool:
        """Tell whether it is worth counting the nodes that could have been shown."""
        found = self._schedulers.get(scheduler_name)
        if found is None or not found.shares:
            return True
        return self._clock.monotonic() - found.shares[-1][0] >= _PAUSE_S

    def called(self, scheduler_name: str, shown: int, could: int | None = None) -> None:
        """Take note of a filter call that showed `shown` of the `could` nodes that fit."""
        found = self._schedulers.get(scheduler_name)
        if found is None:
            found = self._welcome(scheduler_name)
        found.last_s = self._clock.now()
        if could is not None:
            full = could < ALL_SHOWN_BELOW or shown >= could
            found.shares.append((self._clock.monotonic(), 1.0 if full else shown / could))

    def report(self) -> dict[str, dict[str, str | float]]:
        """Return the last call and the share per scheduler, as the Lease carries them."""
        since_s = self._clock.monotonic() - _SPAN_S
        return {
            name: {"last": micro_time(found.last_s), **_share(found, since_s)}
            for name, found in sorted(self._schedulers.items())
        }

    def _welcome(self, name: str) -> _Scheduler:
        # Anybody can write any schedulerName into a pod.
        if len(self._schedulers) >= _NAMES:
            quietest = min(self._schedulers, key=lambda name: self._schedulers[name].last_s)
            del self._schedulers[quietest]
        self._schedulers[name] = found = _Scheduler()
        return found


def _share(found: _Scheduler, since_s: float) -> dict[str, float]:
    recent = [share for at_s, share in found.shares if at_s >= since_s]
    # One that has fallen silent showed what it last showed.
    known = recent or [share for _, share in list(found.shares)[-1:]]
    return {"share": round(max(known), _DIGITS)} if known else {}
