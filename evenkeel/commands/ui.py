# SPDX-License-Identifier: Apache-2.0
"""`evenkeel ui`: the console on loopback, with the caller's permissions."""

from __future__ import annotations

import asyncio

import click
from rich.text import Text

from common.clock import within
from console.security import new_token
from console.server import Console
from evenkeel.console_data import CommandConsole
from evenkeel.output import emit
from evenkeel.session import reading
from evenkeel.shell import SPAN, Call, command


@click.command("ui", short_help="Open the console on this machine.")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port; 0 is a free one.")
@click.option("--for", "for_s", type=SPAN, help="End by itself after this time.")
@command
async def ui_command(call: Call, *, port: int, for_s: float | None) -> None:
    """Serve the console on loopback, and print its address.

    The address has a random token: only those who have it see anything. Ctrl-C ends it.
    """
    async with reading(call.target, clock=call.clock, progress=call.progress) as session:
        with call.progress.waiting("Planning …"):
            data = CommandConsole(session, await session.inspect())
        token = new_token()
        console = Console(data, program="evenkeel ui", clock=call.clock, token=token)
        async with console.serving(port) as address:
            url = f"http://{address}/?token={token}"
            words = f"{url}\nCtrl-C ends it."
            emit("Console", {"url": url}, call.output, lambda: Text(words))
            looking = asyncio.create_task(data.run())
            try:
                await _stay(call, looking, for_s)
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)


async def _stay(call: Call, looking: asyncio.Task[None], for_s: float | None) -> None:
    """Wait until interrupted, or until the time is over."""
    if for_s is None:
        await asyncio.shield(looking)
        return
    try:
        await within(call.clock, for_s, asyncio.shield(looking))
    except TimeoutError:
        return
