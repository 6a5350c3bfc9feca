# SPDX-License-Identifier: Apache-2.0
"""Where long work in a thread may pause for something more urgent.

Python runs one thread at a time: a request would wait for a thread that reads tens of
megabytes. The caller of such work may pass a function that pauses it between two pieces.
"""

from __future__ import annotations

from collections.abc import Callable

Checkpoint = Callable[[], None]
"""Called between small pieces of work, in the thread that does it."""


def no_checkpoint() -> None:
    """Continue at once: nothing is more urgent."""
