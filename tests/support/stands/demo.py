# SPDX-License-Identifier: Apache-2.0
"""A demo as the process that users run, with a folder of its own for everything it leaves.

What is left is looked for outside of the demo: files in that folder, and processes that were
told of it.
"""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.waiting import until

LONG_S = 120.0
QUICK = ("--speed", "25")


@dataclass
class RunningDemo:
    """One demo, and what it has said so far."""

    process: subprocess.Popen[bytes]
    folder: Path
    """Where its files are, all of them."""
    terminal: int | None = None
    """Our end of its terminal."""
    said: bytearray = field(default_factory=bytearray)

    @property
    def text(self) -> str:
        """What it has printed, or drawn on its terminal."""
        if self.terminal is None:
            return (self.folder.parent / "said").read_text()
        with suppress(BlockingIOError, OSError):
            while chunk := os.read(self.terminal, 65536):
                self.said += chunk
        return self.said.decode(errors="replace")

    async def until(
        self, holds: Callable[[], object], what: str, patience_s: float = LONG_S
    ) -> None:
        """Wait until something holds."""
        await until(holds, what, patience_s=patience_s, told=lambda: self.text)

    async def says(self, words: str) -> None:
        """Wait until it has said something; it must not end before."""

        def said() -> bool:
            assert words in self.text or self.process.poll() is None, self.text
            return words in self.text

        await self.until(said, words)

    async def ended(self, patience_s: float = LONG_S) -> int:
        """Return its exit code; meanwhile its terminal is read, as a terminal does."""

        def over() -> bool:
            return bool(self.text) and self.process.poll() is not None

        await self.until(over, "the demo ends", patience_s)
        assert self.process.returncode is not None
        return self.process.returncode

    def hang_up(self) -> None:
        """Close its terminal, as closing a window does."""
        assert self.terminal is not None
        _ = self.text
        os.close(self.terminal)
        self.terminal = None
        (self.folder.parent / "said").write_bytes(self.said)

    def runs(self, name: str) -> list[int]:
        """Return the numbers of the processes that run one of the programs."""
        return [pid for pid, line in told_of(self.folder) if ["-m", name] == line[1:3]]

    def program(self, name: str) -> int:
        """Return the number of the process that runs one of the programs."""
        return self.runs(name)[0]

    def left(self) -> list[str]:
        """Return the files and processes that are there."""
        files = [str(path) for path in self.folder.iterdir()]
        return files + [shlex.join(line) for _, line in told_of(self.folder)]


def told_of(folder: Path) -> list[tuple[int, list[str]]]:
    """Return the processes whose arguments name a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            line = (entry / "cmdline").read_bytes().decode().split("\0")[:-1]
            if any(str(folder) in word for word in line):
                found.append((int(entry.name), line))
    return found


@asynccontextmanager
async def demo(folder: Path, *arguments: str, terminal: bool = False) -> AsyncIterator[RunningDemo]:
    """Run a demo; whatever happens, it and its programs end with the block."""
    temporary = folder / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "simulator", "demo", *arguments]
    environment = {**os.environ, "TMPDIR": str(temporary), "TERM": "xterm-256color"}
    running = (_in_terminal if terminal else _piped)(command, environment, temporary)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()
        for pid, _ in told_of(temporary):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if running.terminal is not None:
            os.close(running.terminal)


def _piped(command: list[str], environment: dict[str, str], folder: Path) -> RunningDemo:
    with (folder.parent / "said").open("wb") as said, (folder.parent / "out").open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=said, env=environment
        )
    return RunningDemo(process, folder)


def _in_terminal(command: list[str], environment: dict[str, str], folder: Path) -> RunningDemo:
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    # A session of its own with this terminal, as a window's shell has.
    words = ["setsid", "--ctty", "--wait", "sh", "-c"]
    script = f"stty rows 30 cols 100; exec {shlex.join(command)}"
    process = subprocess.Popen(
        [*words, script], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    return RunningDemo(process, folder, ours)


def figures(folder: Path) -> dict[str, float]:
    """Return the one line that `--json` prints."""
    [line] = (folder / "out").read_text().splitlines()
    found: dict[str, float] = json.loads(line)
    return found
