# SPDX-License-Identifier: Apache-2.0
"""Failpoints: places where the rebalancer can be made to crash, to test what a restart does.

With `EVENKEEL_CRASH_AT=after-evict` the process ends at that point as if it had been killed:
no handler runs, nothing is flushed. Without the variable a failpoint does nothing. Every step
of a move has three: before its effect, after the effect but before it is recorded, and after
it was recorded. Closing and removing a Migration are one write each.
"""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "EVENKEEL_CRASH_AT"
EXIT_CODE: Final = 66

STEPS: Final = ("check", "mark", "acknowledge", "protect", "evict", "replace", "ready", "clean")
"""The steps of one move."""
SURGE_STEPS: Final = ("count", "raise", "rank", "lower")
"""The steps that only a surge has."""
POINTS: Final[tuple[str, ...]] = (
    *(
        f"{when}-{what}"
        for what in (*STEPS, *SURGE_STEPS)
        for when in ("before", "after", "recorded")
    ),
    "before-release",
    "before-close",
    "after-close",
    "before-remove",
    "after-remove",
)
"""All values of the variable.

The move of a bare pod passes all but `protect`, those of a surge only a surge, which does not
pass `protect` either.
"""


def point(name: str) -> None:
    """Crash here if this is the chosen failpoint."""
    if name not in POINTS:
        raise ValueError(f"{name} is not a failpoint")
    if os.environ.get(VARIABLE) == name:
        os._exit(EXIT_CODE)
