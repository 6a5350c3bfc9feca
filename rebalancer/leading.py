"""What only a leader may do runs while this process leads, and not a moment longer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol


class Electing(Protocol):
    """The part of `Elector` that is needed here."""

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None: ...


async def while_leading(
    elector: Electing | None, parts: Sequence[Callable[[], Awaitable[None]]]
) -> None:
    """Run what only a leader may do; all of it is cancelled at once when the lead is lost.

    Without an elector there is never a second program, and everything runs right away.
    """

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(_run(part))

    await (work() if elector is None else elector.lead(work))


async def _run(part: Callable[[], Awaitable[None]]) -> None:
    await part()
