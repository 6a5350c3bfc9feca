# SPDX-License-Identifier: Apache-2.0
"""`serve` as a process."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from common.clock import SYSTEM
from common.kube.client import connect
from common.kube.resources import NODES
from tests.support.repository import SCHEDULER_CONFIG
from tests.support.stands.warm_python import WarmProcess, run_program, start_program

LONG_S = 60.0


@asynccontextmanager
async def simulator(*arguments: str) -> AsyncIterator[WarmProcess]:
    """Run a command; whatever happens it ends with the block."""
    process = await start_program("simulator", *arguments)
    try:
        async with asyncio.timeout(LONG_S):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line(process: WarmProcess, start: str) -> str:
    """Return the first line that starts so, without its start."""
    async for data in process.stdout:
        text = data.decode().strip()
        if text.startswith(start):
            return text.removeprefix(start)
    raise AssertionError(f"no line starts with {start}")


async def test_serve_says_where_it_is_and_ends_well_when_told(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    arguments = ["--nodes", "4", "--seed", "3", "--port", "0", "--kubeconfig-out", str(config)]
    async with simulator("serve", *arguments) as process:
        assert await line(process, "kubeconfig: ") == str(config)
        await line(process, "ready")
        async with connect(kubeconfig=str(config), clock=SYSTEM) as client:
            nodes = json.loads(await client.get(NODES.path()))["items"]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert len(nodes) == 4
    assert all(not node["spec"].get("taints") for node in nodes)


async def test_serve_takes_a_scenario_and_a_scheduler_configuration() -> None:
    shipped = SCHEDULER_CONFIG
    arguments = ["--scenario", "nothing-to-do", "--scheduler-config", str(shipped)]
    async with simulator("serve", *arguments, "--speed", "100") as process:
        server = await line(process, "server: ")
        await line(process, "ready")
        async with aiohttp.ClientSession(server) as session, session.get("/api/v1/pods") as got:
            pods = json.loads(await got.read())["items"]
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
    assert len(pods) == 205


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["serve", "--scenario", "hot-spot"], 2, "hot-spots"),
        (["serve", "--scenario", "hot-spots", "--nodes", "1"], 2, "hot-spots: too few nodes"),
        (["serve", "--speed", "fast"], 2, "is not a speed"),
    ],
)
async def test_a_mistake_is_one_line(arguments: list[str], code: int, words: str) -> None:
    done = await run_program("simulator", *arguments)
    assert done.code == code
    assert words in done.err
    assert "Traceback" not in done.err


async def test_a_kubeconfig_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    wrong = tmp_path / "file" / "kubeconfig"
    async with simulator("serve", "--kubeconfig-out", str(wrong)) as process:
        _, said = await process.communicate()
        assert process.returncode == 1
        assert said.decode() == f"simulator: {wrong}: cannot be written: Not a directory\n"


async def test_a_port_that_is_taken_is_said() -> None:
    taken = await asyncio.start_server(lambda _, __: None, "127.0.0.1", 0)
    async with taken:
        port = taken.sockets[0].getsockname()[1]
        async with simulator("serve", "--port", str(port)) as process:
            _, errors = await process.communicate()
            assert process.returncode == 1
    assert f"port {port}" in errors.decode()
