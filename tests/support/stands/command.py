# SPDX-License-Identifier: Apache-2.0
"""The `evenkeel` command in this process, and as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from evenkeel.shell import run
from simulator.cluster import SimulatedCluster
from tests.support.restored_logs import restored_logs
from tests.support.stands.warm_python import WarmProcess, run_program, start_program

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
    return Answer(*await run_program("evenkeel", *arguments))


@contextlib.asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[WarmProcess]:
    """Start a command as a process, which ends with the block."""
    process = await start_program("evenkeel", *arguments)
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


def at(cluster: SimulatedCluster, folder: Path) -> tuple[str, str]:
    """Return the flags that name a simulated cluster."""
    return "--kubeconfig", str(cluster.write_kubeconfig(folder / "kubeconfig"))
