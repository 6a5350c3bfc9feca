# SPDX-License-Identifier: Apache-2.0
"""The planner goes first: what only informs people waits while a plan is being made.

Python runs one thread at a time. A thread that prepares an answer for the console while the
planner's works takes every second slice of time from it, and the plan comes later by as much.
What changed by itself is shown after the plan; what a person asks for waits for a while only.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

PATIENCE_S: Final = 2.0
"""How long a question waits for a plan."""


class PlannerPriority:
    """Entered by the loop while its thread works; on the event loop only."""

    def __init__(self) -> None:
        self._idle = asyncio.Event()
        self._idle.set()

    def __enter__(self) -> None:
        self._idle.clear()

    def __exit__(self, *_: object) -> None:
        self._idle.set()

    @property
    def busy(self) -> bool:
        """Tell whether a plan is being made."""
        return not self._idle.is_set()

    async def wait_idle(self, most_s: float = PATIENCE_S) -> None:
        """Return when no plan is being made, or after a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._idle.wait()
