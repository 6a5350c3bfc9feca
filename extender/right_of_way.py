"""Answers go first: other threads stand aside while a request is being answered.

Python runs one thread at a time. Taking in a sample of a large cluster keeps a thread busy
for most of a second, and every answer during that time would take twice as long. So that
thread asks here between small pieces of its work, and sleeps while a request is under way.
For one request it does so for 20 ms at most: a request that waits for something, and needs
nobody to stand aside, does not keep it from its work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

_NAP_S: Final = 0.001
_NAPS: Final = 20


class RightOfWay:
    """Counts the requests under way; entered on the event loop, asked by one other thread."""

    def __init__(self, nap: Callable[[float], object] | None = None) -> None:
        # By default it waits for an event that never comes: sleeping is all that is wanted.
        self._nap = nap or threading.Event().wait
        self._under_way = 0
        self._begun = 0
        self._given_to = 0
        self._naps = 0

    def __enter__(self) -> None:
        self._under_way += 1
        self._begun += 1

    def __exit__(self, *_: object) -> None:
        self._under_way -= 1

    def give(self) -> None:
        """Sleep while a request is under way; not for the event loop."""
        while self._under_way and self._may_nap():
            self._nap(_NAP_S)

    def _may_nap(self) -> bool:
        if self._given_to != self._begun:
            self._given_to, self._naps = self._begun, 0
        self._naps += 1
        return self._naps <= _NAPS
