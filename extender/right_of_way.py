"""Answers go first: other threads stand aside while a request is being answered.

Python runs one thread at a time. Reading a sample of a large cluster and taking it in keeps
a thread busy for seconds, and every answer during that time would take twice as long. So
that thread asks here between small pieces of its work, and sleeps while a request is under
way. It is not kept from its work either: after 20 ms of standing aside in a row, because one
request waits for something or others come without a pause, it has the next 20 ms to itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from common.clock import Clock

_NAP_S: Final = 0.001
_NAPS: Final = 20
_OWN_TURN_S: Final = _NAPS * _NAP_S
"""As long as it stood aside before."""


class RightOfWay:
    """Counts the requests under way; entered on the event loop, asked by other threads."""

    def __init__(self, clock: Clock, nap: Callable[[float], object] | None = None) -> None:
        self._clock = clock
        # By default it waits for an event that never comes: sleeping is all that is wanted.
        self._nap = nap or threading.Event().wait
        self._under_way = 0
        self._own_turn_until_s = 0.0

    def __enter__(self) -> None:
        self._under_way += 1

    def __exit__(self, *_: object) -> None:
        self._under_way -= 1

    def give(self) -> None:
        """Sleep while a request is under way; not for the event loop."""
        if not self._under_way or self._clock.monotonic() < self._own_turn_until_s:
            return
        for _ in range(_NAPS):
            self._nap(_NAP_S)
            if not self._under_way:
                return
        self._own_turn_until_s = self._clock.monotonic() + _OWN_TURN_S
