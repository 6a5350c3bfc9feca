# SPDX-License-Identifier: Apache-2.0
"""Requests go first: other threads pause while a request is being answered.

Python runs one thread at a time. Reading and processing a usage sample of a large cluster
keeps a thread busy for seconds, and every answer during that time would take twice as long.
So that thread calls `yield_to_requests` between small pieces of its work and sleeps while a
request is in progress. It cannot starve: after 20 ms of pausing in a row, because one
request waits for something or requests arrive without a gap, it has the next 20 ms to itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from common.clock import Clock

_NAP_S: Final = 0.001
_MAX_NAPS: Final = 20
_OWN_TURN_S: Final = _MAX_NAPS * _NAP_S
"""As long as it paused before."""


class RequestPriority:
    """Counts requests in progress; entered on the event loop, consulted by other threads."""

    def __init__(self, clock: Clock, nap: Callable[[float], object] | None = None) -> None:
        self._clock = clock
        # The default waits for an event that never comes, which is a sleep.
        self._nap = nap or threading.Event().wait
        self._in_progress = 0
        self._own_turn_until_s = 0.0

    def __enter__(self) -> None:
        self._in_progress += 1

    def __exit__(self, *_: object) -> None:
        self._in_progress -= 1

    def yield_to_requests(self) -> None:
        """Sleep while a request is in progress; never call this on the event loop."""
        if not self._in_progress or self._clock.monotonic() < self._own_turn_until_s:
            return
        for _ in range(_MAX_NAPS):
            self._nap(_NAP_S)
            if not self._in_progress:
                return
        self._own_turn_until_s = self._clock.monotonic() + _OWN_TURN_S
