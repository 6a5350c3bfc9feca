# SPDX-License-Identifier: Apache-2.0
"""Programs of a demo end with it, also if it is killed just after it has started one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.support.stands.demo import told_of
from tests.support.waiting import until

KILLED_AFTER_ITS_FIRST_START = """
import os, signal, subprocess, sys
from pathlib import Path
from common.clock import SYSTEM
from simulator.demo.guardian import guarded
from simulator.demo.programs import Programs

class Started(subprocess.Popen):
    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        os.kill(os.getpid(), signal.SIGKILL)

folder = sys.argv[1]
with guarded(Path(folder)) as watch:
    subprocess.Popen = Started
    arguments = ("http.server", "--bind", "127.0.0.1", "--directory", folder, "0")
    Programs(Path(folder), watch, clock=SYSTEM).start("cluster", *arguments)
"""


async def test_a_program_that_has_just_started_ends_with_a_killed_demo(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    command = ("-c", KILLED_AFTER_ITS_FIRST_START, str(folder))
    process = await asyncio.create_subprocess_exec(sys.executable, *command)
    try:
        assert await process.wait() == -signal.SIGKILL
        await until(
            lambda: not folder.exists() and not told_of(folder),
            "the program and the guardian are gone",
            patience_s=60.0,
            told=lambda: told_of(folder),
        )
    finally:
        for pid, _ in told_of(folder):
            os.kill(pid, signal.SIGKILL)
