# SPDX-License-Identifier: Apache-2.0
"""Waiting for something that other tasks or processes bring about.

To look takes time that what is waited for needs too, as all of it runs in one process: after
a look that took long, the next one comes later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from common.clock import SYSTEM

SHORTEST_S: Final = 0.01
LONGEST_S: Final = 0.2
TIMES: Final = 10.0
"""How much longer than a look the pause after it is."""


async def until(
    holds: Callable[[], object], what: str, *, patience_s: float, told: Callable[[], object]
) -> None:
    """Wait until something holds; if it never does, fail with what is told then."""
    try:
        async with asyncio.timeout(patience_s):
            while True:
                since_s = SYSTEM.monotonic()
                if holds():
                    return
                await pause_since(since_s)
    except TimeoutError:
        raise AssertionError(f"not within {patience_s:g} s: {what}; {told()}") from None


async def pause_since(since_s: float) -> None:
    """Wait some times as long as the look that began then."""
    took_s = SYSTEM.monotonic() - since_s
    await SYSTEM.sleep(min(LONGEST_S, max(SHORTEST_S, TIMES * took_s)))
