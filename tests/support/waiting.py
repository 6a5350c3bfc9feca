"""Waiting for something that other tasks or processes bring about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from common.clock import SYSTEM


async def until(
    holds: Callable[[], object], what: str, *, patience_s: float, told: Callable[[], object]
) -> None:
    """Wait until something holds; if it never does, fail with what is told then."""
    try:
        async with asyncio.timeout(patience_s):
            while not holds():
                await SYSTEM.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {patience_s:g} s: {what}; {told()}") from None
