# SPDX-License-Identifier: Apache-2.0
"""Which schedulers call the extender, and how much of the cluster they offer.

A live extender does not prove that any scheduler calls it. So for each `schedulerName` the
time of its last filter call is kept, with the share of the suitable nodes that it offered:
above 100 nodes kube-scheduler stops searching early (`numFeasibleNodesToFind` in
pkg/scheduler/schedule_one.go), and a planned target that is not offered cannot be chosen.

A single call proves little about the share, because affinity and taints shorten the list as
well; so the best of the last calls is reported. If no call could be evaluated, none is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import numpy as np

from common.clock import Clock
from common.cluster.resources import Resources
from common.kube.timestamps import micro_time
from extender.protocol import FilterResult, Policy, RequestPod, Scores, Victims
from extender.scoring import Board
from extender.scoring.board import PER_CPU_MILLI, PER_MEM_BYTE, REQUESTED_CPU, REQUESTED_MEM

ALL_OFFERED_BELOW: Final = 100
"""With fewer nodes kube-scheduler offers all that fit: `minFeasibleNodesToFind` in
pkg/scheduler/schedule_one.go."""

_SPAN_S: Final = 600.0
_MAX_CALLS: Final = 100
_EVALUATION_INTERVAL_S: Final = 1.0
_MAX_CALLERS: Final = 32
_DIGITS: Final = 4
_ROUNDING: Final = 1e-9


class _Caller:
    """The recent calls of one scheduler."""

    __slots__ = ("last_s", "shares")

    def __init__(self) -> None:
        self.last_s = 0.0
        self.shares: deque[tuple[float, float]] = deque(maxlen=_MAX_CALLS)


class Callers:
    """Remembers the schedulers that call; cheap enough for every filter call."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._callers: dict[str, _Caller] = {}

    def wants_share(self, scheduler_name: str) -> bool:
        """Return whether it is time to count the nodes that could have been offered."""
        found = self._callers.get(scheduler_name)
        if found is None or not found.shares:
            return True
        return self._clock.monotonic() - found.shares[-1][0] >= _EVALUATION_INTERVAL_S

    def called(self, scheduler_name: str, offered: int, suitable: int | None = None) -> None:
        """Record a filter call that offered `offered` of `suitable` nodes."""
        found = self._callers.get(scheduler_name)
        if found is None:
            found = self._add(scheduler_name)
        found.last_s = self._clock.now()
        if suitable is not None:
            complete = suitable < ALL_OFFERED_BELOW or offered >= suitable
            share = 1.0 if complete else offered / suitable
            found.shares.append((self._clock.monotonic(), share))

    def report(self) -> dict[str, dict[str, str | float]]:
        """Return the last call and the share of each scheduler, as the Lease publishes them."""
        since_s = self._clock.monotonic() - _SPAN_S
        return {
            name: {"last": micro_time(found.last_s), **_share(found, since_s)}
            for name, found in sorted(self._callers.items())
        }

    def _add(self, name: str) -> _Caller:
        # Any user can put any schedulerName into a pod, so the number is bounded.
        if len(self._callers) >= _MAX_CALLERS:
            oldest = min(self._callers, key=lambda name: self._callers[name].last_s)
            del self._callers[oldest]
        self._callers[name] = added = _Caller()
        return added


def _share(found: _Caller, since_s: float) -> dict[str, float]:
    recent = [share for at_s, share in found.shares if at_s >= since_s]
    # A scheduler that has stopped calling keeps the share of its last call.
    known = recent or [share for _, share in list(found.shares)[-1:]]
    return {"share": round(max(known), _DIGITS)} if known else {}


class CallerRecorder:
    """A `Policy` that records who calls and passes every request on to another policy.

    Only `filter` is recorded: kube-scheduler calls it for every pod, also when a single node
    is left. Suitable nodes are counted at most once a second for each scheduler.
    """

    def __init__(self, policy: Policy, callers: Callers, board: Callable[[], Board | None]) -> None:
        self._policy = policy
        self._callers = callers
        self._board = board

    async def filter(self, pod: RequestPod, names: Sequence[str]) -> FilterResult:
        scheduler = pod.record.shape.scheduler_name
        # A single node is more often a nominated node than a whole cluster.
        evaluate = len(names) > 1 and self._callers.wants_share(scheduler)
        suitable = self._suitable(pod.record.requests) if evaluate else None
        self._callers.called(scheduler, len(names), suitable)
        return await self._policy.filter(pod, names)

    def prioritize(self, pod: RequestPod, names: Sequence[str]) -> Scores:
        return self._policy.prioritize(pod, names)

    def preempt(self, pod: RequestPod, candidates: Mapping[str, Victims]) -> Collection[str]:
        return self._policy.preempt(pod, candidates)

    def _suitable(self, requests: Resources) -> int | None:
        board = self._board()
        if board is None:
            return None
        if len(board.names) < ALL_OFFERED_BELOW:
            return len(board.names)
        return count_suitable(board, requests)


def count_suitable(board: Board, requests: Resources) -> int:
    """Return how many nodes accept pods and have room for these requests."""
    table = board.table[:, :-1]
    cpu = table[REQUESTED_CPU] + requests.cpu_milli * table[PER_CPU_MILLI]
    mem = table[REQUESTED_MEM] + requests.mem_bytes * table[PER_MEM_BYTE]
    has_room = np.maximum(cpu, mem) <= 1.0 + _ROUNDING
    return int(np.count_nonzero(has_room & board.schedulable[:-1]))
