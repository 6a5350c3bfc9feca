# SPDX-License-Identifier: Apache-2.0
"""A command as a process: signals and exit codes.

0  done, or stopped by SIGTERM or SIGINT
1  failed; one line gives the reason
2  invalid flags or files; one line per problem
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any, Final

import uvloop

DONE: Final = 0
FAILED: Final = 1
USAGE_ERROR: Final = 2


class CommandError(Exception):
    """A command cannot go on; the message is one line for the user."""


def run(work: Coroutine[Any, Any, None]) -> int:
    """Run a command until it ends or is stopped; a second signal ends it at once."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_supervised(work))
    return DONE


async def _supervised(work: Coroutine[Any, Any, None]) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    asked: list[int] = []

    def stop(number: int) -> None:
        if asked:
            os._exit(128 + number)
        asked.append(number)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not asked:
            raise
