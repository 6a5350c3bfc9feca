# SPDX-License-Identifier: Apache-2.0
"""The `evenkeel` command in this process, and as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from evenkeel.shell import run
from simulator.cluster import SimulatedCluster
from tests.support.restored_logs import restored_logs

Json = dict[str, Any]  # Any: an answer as a machine reads it


class Answer(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Json:
        found: Json = json.loads(self.out)
        return found

    @property
    def yaml(self) -> Json:
        found: Json = yaml.safe_load(self.out)
        return found


async def evenkeel(*arguments: str) -> Answer:
    """Run a command in a thread, with an event loop of its own and real sockets."""
    return await asyncio.to_thread(_run, list(arguments))


def _run(arguments: list[str]) -> Answer:
    out, err = io.StringIO(), io.StringIO()
    with (
        restored_logs(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = run(arguments)
    return Answer(code, out.getvalue(), err.getvalue())


async def evenkeel_process(*arguments: str) -> Answer:
    """Run a command as a process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "evenkeel", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return Answer(process.returncode or 0, out.decode(), err.decode())


@contextlib.asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a command as a process, which ends with the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "evenkeel", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # Tests that run in the background of a shell ignore it, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def at(cluster: SimulatedCluster, folder: Path) -> tuple[str, str]:
    """Return the flags that name a simulated cluster."""
    return "--kubeconfig", str(cluster.write_kubeconfig(folder / "kubeconfig"))
