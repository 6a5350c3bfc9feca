# SPDX-License-Identifier: Apache-2.0
"""Wait for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from controlplane.errors import StartError

T = TypeVar("T")

PAUSE_S = 0.05
LONGEST_PAUSE_S = 0.5


def until(check: Callable[[], T], *, timeout_s: float, what: str) -> T:
    """Repeat `check` until it returns true; its errors end the wait at once."""
    deadline = time.monotonic() + timeout_s
    while True:
        asked = time.monotonic()
        if answer := check():
            return answer
        answered = time.monotonic()
        if answered > deadline:
            raise StartError(f"{what} within {timeout_s:g} s")
        # A slow check runs less often, because it slows down what it waits for.
        time.sleep(min(max(PAUSE_S, answered - asked), LONGEST_PAUSE_S))
