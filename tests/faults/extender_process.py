# SPDX-License-Identifier: Apache-2.0
"""Extenders in processes of their own, which end when they are killed and not before.

A killed process cannot clean up: its Lease stays, connections to it break, and what it knew
is gone. The next one may be started on the same port, where the scheduler still asks.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from common.config import ExtenderConfiguration
from extender.main import ExtenderOptions, run
from tests.support.fast_clock import FastClock
from tests.support.repository import ROOT
from tests.support.stands.closed_loop import PATIENCE_S, Loop
from tests.support.stands.extender import eventually
from tests.support.stands.loop_programs import EXTENDER, is_ready_at
from tests.support.stands.warm_python import WarmProcess, start_program

LOG = "extender.log"


class KillableExtender:
    """A running extender."""

    def __init__(self, process: WarmProcess, said: dict[str, str]) -> None:
        self._process = process
        self.url = f"http://{said['extender']}"

    def kill(self) -> None:
        """End it without a warning."""
        self._process.kill()

    async def buried(self) -> int:
        """Wait for its end; return the exit code."""
        return await asyncio.wait_for(self._process.wait(), PATIENCE_S)


@asynccontextmanager
async def extender_process(loop: Loop) -> AsyncIterator[KillableExtender]:
    """Run an extender until it is killed, or the block ends; begin when it is ready."""
    order = {"kubeconfig": str(loop.kubeconfig), "epoch": loop.clock.epoch_s}
    log = loop.folder / LOG
    with log.open("a") as errors:
        process = await start_program(
            "tests.faults.extender_process",
            json.dumps(order),
            folder=ROOT,
            stderr=errors.fileno(),
        )
    try:
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
        assert line, log.read_text()[-2000:]
        said = json.loads(line)
        health = f"http://{said['health']}"
        await eventually(lambda: is_ready_at(health), "it is ready", patience_s=PATIENCE_S)
        yield KillableExtender(process, said)
    finally:
        process.kill()
        await process.wait()


def main() -> None:
    """Be an extender, as the order on the command line says; say once where it answers."""
    order: dict[str, Any] = json.loads(sys.argv[1])
    config = ExtenderConfiguration.model_validate(EXTENDER)
    options = ExtenderOptions(kubeconfig=order["kubeconfig"], port=0)
    # What else is said must not stand where the addresses are looked for.
    addresses = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def announce(**found: str) -> None:
        print(json.dumps(found), file=addresses, flush=True)

    uvloop.run(run(config, options, clock=FastClock(order["epoch"]), announce=announce))


if __name__ == "__main__":
    main()
