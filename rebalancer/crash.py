"""Places where the rebalancer can be made to die, for tests of what a restart makes of it.

With `EVENKEEL_CRASH_AT=after-evict` the process ends at that point as if it had been killed:
no handler runs, nothing is flushed. Without the variable a point does nothing. Every step of
a move has three: before its effect, after the effect while nothing is written about it yet,
and after that was written. Closing and removing a Migration are one write each.
"""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "EVENKEEL_CRASH_AT"
EXIT_CODE: Final = 66

STEPS: Final = ("check", "mark", "acknowledge", "protect", "evict", "replace", "ready", "clean")
"""What is done on the way of one move."""
POINTS: Final[tuple[str, ...]] = (
    *(f"{when}-{what}" for what in STEPS for when in ("before", "after", "recorded")),
    "before-close",
    "after-close",
    "before-remove",
    "after-remove",
)
"""All names that the variable may hold; a bare pod's move passes all but `protect`."""


def point(name: str) -> None:
    """Die here if this is the chosen point."""
    if name not in POINTS:
        raise ValueError(f"{name} is no crash point")
    if os.environ.get(VARIABLE) == name:
        os._exit(EXIT_CODE)
