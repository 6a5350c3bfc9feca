# SPDX-License-Identifier: Apache-2.0
"""Whether work that should end again and again still does.

A program whose event loop answers may have stopped working all the same: a thread that never
returns keeps a cycle from ending, and nothing else shows it. Here every end is noted, also
that of a failed attempt, and a check for `/livez` says since when none has come, and what the
work was doing then. Durations are monotonic: no change of the wall clock makes work late.
"""

from __future__ import annotations

from typing import Final

from common.clock import Clock
from common.kube.timestamps import to_the_second

NOT_STARTED: Final = "not started"


class Progress:
    """When something last ended, and what it does now."""

    def __init__(self, what: str, clock: Clock) -> None:
        """`what` names it in a sentence, such as `cycle of planning`."""
        self._what = what
        self._clock = clock
        self._since_s: float | None = None
        self._patience_s = 0.0
        self._doing = NOT_STARTED

    def begin(self, patience_s: float) -> None:
        """Expect an end from now on, within this time."""
        self._since_s = self._clock.monotonic()
        self._patience_s = patience_s

    def expect(self, patience_s: float) -> None:
        """Allow this much time between two ends; never less than was allowed before."""
        self._patience_s = max(self._patience_s, patience_s)

    def doing(self, what: str) -> None:
        """Record what it does now, for the message of a check: `planning`."""
        self._doing = what

    def ended(self, patience_s: float) -> None:
        """Note an end, good or bad; the next is expected within this time."""
        self.begin(patience_s)

    def rest(self) -> None:
        """Expect nothing until the next `begin`."""
        self._since_s, self._doing = None, NOT_STARTED

    def why_stuck(self, excused_until_s: float = float("-inf")) -> str | None:
        """Say since when nothing has ended, if that is too long.

        Time up to `excused_until_s`, on the monotonic clock, does not count.
        """
        if self._since_s is None:
            return None
        now_s = self._clock.monotonic()
        if now_s - max(self._since_s, excused_until_s) <= self._patience_s:
            return None
        ago_s = now_s - self._since_s
        since = to_the_second(self._clock.now() - ago_s)
        return (
            f"no {self._what} has ended since {since}, {ago_s:.0f} s ago; at most "
            f"{self._patience_s:.0f} s are expected, and it is still {self._doing}"
        )
