# SPDX-License-Identifier: Apache-2.0
"""The demo as separate processes: its results, and that it cleans up."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from simulator.scenarios import names
from tests.support.stands.demo import QUICK, RunningDemo, demo, figures

KEYS = [
    "hotBefore", "hotAfter", "spreadBefore", "spreadAfter", "evictions", "lowerBound",
    "landedAsPlanned", "landedElsewhere", "evictedAgain", "seconds",
]  # fmt: skip


@pytest.mark.long(30)
async def test_a_hot_cluster_becomes_level_and_every_pod_lands_as_planned(tmp_path: Path) -> None:
    flags = ("--json", *QUICK, "--scenario", "requests-mislead", "--longest", "300")
    async with demo(tmp_path, *flags) as running:
        assert await running.ended(patience_s=330.0) == 0, running.text
        assert running.left() == []
    found = figures(tmp_path)
    assert list(found) == KEYS
    assert (found["hotBefore"], found["hotAfter"]) == (4, 0)
    assert found["spreadAfter"] < found["spreadBefore"]
    assert found["landedElsewhere"] == found["evictedAgain"] == 0
    assert found["landedAsPlanned"] == found["evictions"] >= found["lowerBound"] > 0
    assert "Shorter waits in this demo: cycle every 3 s (default 30 s)" in running.text
    assert "The cluster is level." in running.text


@pytest.mark.long(25)
async def test_a_level_cluster_is_left_alone_and_can_be_kept(tmp_path: Path) -> None:
    film = tmp_path / "film.svg"
    flags = ("--json", "--keep", "--record", str(film), "--scenario", "nothing-to-do")
    async with demo(tmp_path, *QUICK, *flags) as running:
        await running.says("Press Ctrl-C to stop everything.")
        assert film.exists()
        assert "The cluster was level. No pod was moved." in running.text
        # They come after the text, in another file.
        await running.until((tmp_path / "out").read_text, "the figures are printed")
        assert figures(tmp_path)["evictions"] == 0
        commands = [line.strip() for line in running.text.splitlines() if line.startswith(5 * " ")]
        label, kill, _, again, look, ask = (shlex.split(line) for line in commands[-6:])
        for command in (label, look, ask, kill):
            quiet = asyncio.subprocess.DEVNULL
            process = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
            assert await process.wait() == 0, command
        await running.says("the extender has exited")
        await starts(again)
        assert await console_serves(running.text)
        for _ in range(2):
            running.process.send_signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert running.left() == []


async def starts(command: list[str]) -> None:
    """Start a program, wait until it listens, and end it."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    assert "extender" in json.loads(await process.stdout.readline())
    process.terminate()
    await process.communicate()
    assert process.returncode == 0


async def console_serves(text: str) -> bool:
    """Tell whether the address that the demo printed shows the cluster."""
    address = text.partition("Console: ")[2].split()[0]
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        found = (await client.get(f"{address}/api/cluster")).json()["cluster"]
        return (await client.get(address)).status_code == 200 and len(found["nodes"]) > 0


async def test_a_cluster_that_is_not_level_in_time_is_reported(tmp_path: Path) -> None:
    # So slow that nothing is ever measured.
    async with demo(tmp_path, "--json", "--speed", "0.01", "--longest", "5") as running:
        assert await running.ended() == 0, running.text
        assert running.left() == []
    assert "Not level yet: time is up." in running.text
    assert figures(tmp_path)["evictions"] == 0


def ctrl_c(running: RunningDemo) -> None:
    assert running.terminal is not None
    os.write(running.terminal, b"\x03")


@pytest.mark.parametrize("end", [ctrl_c, RunningDemo.hang_up])
async def test_stopping_early_leaves_nothing(
    tmp_path: Path, end: Callable[[RunningDemo], None]
) -> None:
    async with demo(tmp_path, *QUICK, terminal=True) as running:
        await running.says("Measured CPU utilization")
        assert running.left() != []
        end(running)
        # A terminal that is gone is seen by the signal or by the next line, whichever is first.
        assert await running.ended() in ((130,) if end is ctrl_c else (129, 1))
        await running.until(lambda: not running.left(), "nothing is left")


async def test_even_a_killed_demo_leaves_nothing(tmp_path: Path) -> None:
    async with demo(tmp_path, *QUICK) as running:
        await running.until(lambda: running.runs("rebalancer"), "everything runs")
        running.process.kill()
        await running.until(lambda: not running.left(), "nothing is left")


@pytest.mark.parametrize("name", ["simulator", "extender"])
async def test_a_program_that_dies_is_named_with_the_end_of_its_log(
    tmp_path: Path, name: str
) -> None:
    async with demo(tmp_path, *QUICK) as running:
        await running.until(lambda: "pods ready on" in said(tmp_path), "something is shown")
        os.kill(running.program(name), signal.SIGKILL)
        assert await running.ended() == 1
        assert running.left() == []
    shown = "cluster" if name == "simulator" else name
    assert f"the {shown} has exited (signal 9); the end of its log:" in running.text
    assert "Traceback" not in running.text


async def test_an_unknown_scenario_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    async with demo(tmp_path, "--scenario", "hot-spot") as running:
        assert await running.ended() == 2
        assert running.left() == []
    assert all(name in running.text for name in names())


def said(folder: Path) -> str:
    return (folder / "out").read_text()
