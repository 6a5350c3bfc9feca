"""Extenders in processes of their own, which end when they are killed and not before.

Whoever is killed says no goodbye: its Lease stays, connections to it break, and what it knew
is gone. The next one may be started on the same port, where the scheduler still asks.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from common.config import ExtenderConfiguration
from extender.program import ExtenderOptions, run
from tests.support.closed_loop import PATIENCE_S, Loop
from tests.support.extender_stand import eventually
from tests.support.fast_clock import FastClock
from tests.support.loop_programs import EXTENDER, is_ready_at

LOG = "extender.log"
REPOSITORY = Path(__file__).resolve().parents[2]


class KillableExtender:
    """A running extender."""

    def __init__(self, process: asyncio.subprocess.Process, said: dict[str, str]) -> None:
        self._process = process
        self.url = f"http://{said['extender']}"
        self.port = int(said["extender"].rpartition(":")[2])

    def kill(self) -> None:
        """End it without a warning."""
        self._process.kill()

    async def buried(self) -> int:
        """Wait for its end; return the exit code."""
        return await asyncio.wait_for(self._process.wait(), PATIENCE_S)


@asynccontextmanager
async def extender_process(loop: Loop, *, port: int = 0) -> AsyncIterator[KillableExtender]:
    """Run an extender until it is killed, or the block ends; begin when it is ready."""
    order = {"kubeconfig": str(loop.kubeconfig), "epoch": loop.clock.epoch_s, "port": port}
    log = loop.folder / LOG
    with log.open("a") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.loop_extender", json.dumps(order)),
            cwd=REPOSITORY,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
        assert line, log.read_text()[-2000:]
        said = json.loads(line)
        health = f"http://{said['health']}"
        await eventually(lambda: is_ready_at(health), "it is ready", patience_s=PATIENCE_S)
        yield KillableExtender(process, said)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def main() -> None:
    """Be an extender, as the order on the command line says; say once where it answers."""
    order: dict[str, Any] = json.loads(sys.argv[1])
    config = ExtenderConfiguration.model_validate(EXTENDER)
    options = ExtenderOptions(kubeconfig=order["kubeconfig"], port=order["port"])
    # What else is said must not stand where the addresses are looked for.
    addresses = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def announce(**found: str) -> None:
        print(json.dumps(found), file=addresses, flush=True)

    asyncio.run(run(config, options, clock=FastClock(order["epoch"]), announce=announce))


if __name__ == "__main__":
    main()
