# SPDX-License-Identifier: Apache-2.0
"""Rebalancers in processes of their own, which die where they are told to.

Starting Python takes longer than a whole move. So one process reads everything in and is
then copied for each rebalancer that is to die; it never runs anything itself.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import uvloop

from common.config import RebalancerConfiguration
from rebalancer import failpoints as crash
from rebalancer.main import RebalancerOptions, run
from tests.support.fast_clock import FastClock
from tests.support.repository import ROOT
from tests.support.stands.closed_loop import Loop
from tests.support.stands.loop_programs import REBALANCER

PATIENCE_S = 120.0
LOG = "rebalancer.log"


class Nursery:
    """Where rebalancers come from that do not live long."""

    def __init__(self, asks: IO[str], answers: IO[str]) -> None:
        self._asks = asks
        self._answers = answers

    async def dies(self, loop: Loop, point: str, **settings: Any) -> int:
        """Run a rebalancer until it dies at a crash point; return its exit code."""
        pid = await self.born(loop, point, **settings)
        ended = asyncio.create_task(self.buried())
        done, _ = await asyncio.wait({ended}, timeout=PATIENCE_S)
        if not done:
            os.kill(pid, signal.SIGKILL)
            await ended
            said = (loop.folder / LOG).read_text().splitlines()[-40:]
            raise AssertionError("\n".join([f"it did not come to {point}:", *said]))
        return await ended

    async def born(self, loop: Loop, point: str = "", **settings: Any) -> int:
        """Start a rebalancer; return the number of its process."""
        order = {
            "kubeconfig": str(loop.kubeconfig),
            "settings": settings,
            "epoch": loop.clock.epoch_s,
            "crash_at": point,
            "log": str(loop.folder / LOG),
        }
        self._asks.write(json.dumps(order) + "\n")
        self._asks.flush()
        return int(await asyncio.to_thread(self._answers.readline))

    async def buried(self) -> int:
        """Wait for the end of the rebalancer that was started last; return its exit code."""
        return int(await asyncio.to_thread(self._answers.readline))


@contextmanager
def nursery() -> Iterator[Nursery]:
    """Have rebalancers ready to be started for as long as the block lasts."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.stands.loop_process"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Nursery(process.stdin, process.stdout)
        process.stdin.close()


def main() -> None:
    """Serve orders, one at a time: tell the number of the process, then how it ended."""
    gc.freeze()  # a quarter of a rebalancer's short life went to collecting what was read in here
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _live(order)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _live(order: dict[str, Any]) -> None:
    """Be a rebalancer; never comes back."""
    threading.Thread(target=_end_with_the_tests, daemon=True).start()
    os.environ[crash.VARIABLE] = order["crash_at"]
    with Path(order["log"]).open("a") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
    config = RebalancerConfiguration.model_validate(
        {**REBALANCER, "mode": "act", **order["settings"]}
    )
    options = RebalancerOptions(kubeconfig=order["kubeconfig"])
    clock = FastClock(order["epoch"])
    try:
        uvloop.run(run(config, options, clock=clock, announce=lambda **_: None))
    finally:
        os._exit(1)


def _end_with_the_tests() -> None:
    """Exit once the pipe of orders is closed: killed tests must not leave a rebalancer running."""
    orders = select.poll()
    orders.register(sys.stdin, 0)  # no order is read here, only the end is noticed
    orders.poll()
    os._exit(1)


if __name__ == "__main__":
    main()
