# SPDX-License-Identifier: Apache-2.0
"""The programs of a demo as processes: started, watched, and always stopped.

Each has its own session, so that Ctrl-C reaches only the demo, which stops them in order:
first the programs that use the cluster, then the cluster. A process is started without an
await, so a cancellation cannot come between its start and its registration; and it registers
itself with the guardian before it becomes the program, so `kill -9` cannot either.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGTERM
from typing import Any, Final

from common.clock import Clock
from simulator.demo.guardian import Watch
from simulator.process import CommandError

_EVERY_S: Final = 0.05
_START_S: Final = 60.0
_END_S: Final = 10.0
_COMMAND_S: Final = 60.0
_LAST_LINES: Final = 12


class ProgramDied(CommandError):
    """A program has exited that should still run; the message has the end of its log."""


class Program:
    """One process and its output."""

    patience_s: float = _END_S
    """How long it may take to stop before it is killed."""

    def __init__(
        self, name: str, arguments: list[str], folder: Path, watch: Watch, *, clock: Clock
    ) -> None:
        self.name = name
        self.arguments: Final = tuple(arguments)
        self.log = folder / f"{name}.log"
        self._out = folder / f"{name}.out"
        self._clock = clock
        with self.log.open("ab") as errors, self._out.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                # If it is killed, its files are removed with the folder of the demo.
                env={**os.environ, "TMPDIR": str(folder)},
                start_new_session=True,
                preexec_fn=lambda: watch(os.getpid()),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._process.poll()

    def check(self) -> None:
        """Raise `ProgramDied` if it has exited."""
        if self.code is not None:
            raise ProgramDied(self.last_output())

    def last_output(self) -> str:
        """Return its exit code and the end of its log."""
        how = f"exit code {self.code}" if (self.code or 0) >= 0 else f"signal {-(self.code or 0)}"
        said = [*_lines(self.log), *_lines(self._out)][-_LAST_LINES:]
        shown = [f"  {line}" for line in said] or ["  (no output)"]
        return "\n".join([f"the {self.name} has exited ({how}); the end of its log:", *shown])

    def output(self) -> list[str]:
        """Return the lines that it has printed so far."""
        return _lines(self._out)

    def announced(self) -> Mapping[str, Any]:
        """Return the addresses that a program prints as JSON once it listens; empty before."""
        lines = self.output()[:1]
        said: Mapping[str, Any] = json.loads(lines[0]) if lines else {}
        return said

    async def until(self, found: Callable[[], list[str]], limit_s: float = _START_S) -> list[str]:
        """Return the result of `found` once it is not empty."""
        end = self._clock.monotonic() + limit_s
        while not (lines := found()):
            self.check()
            if self._clock.monotonic() > end:
                raise ProgramDied(f"the {self.name} did not start within {limit_s:g} s")
            await self._clock.sleep(_EVERY_S)
        return lines

    def signal(self, number: int) -> None:
        """Send a signal if the process still runs."""
        with suppress(ProcessLookupError):
            if self.code is None:
                os.kill(self.pid, number)

    async def ended(self, limit_s: float) -> bool:
        """Wait for its exit; return whether it came in time."""
        end = self._clock.monotonic() + limit_s
        while self.code is None and self._clock.monotonic() < end:
            await self._clock.sleep(_EVERY_S)
        return self.code is not None


class Programs:
    """All processes of one demo."""

    def __init__(self, folder: Path, watch: Watch, *, clock: Clock) -> None:
        self.folder = folder
        self._watch = watch
        self._clock = clock
        self._started: list[Program] = []

    def start(self, name: str, *arguments: str) -> Program:
        """Start `python -m` with these arguments."""
        program = Program(name, list(arguments), self.folder, self._watch, clock=self._clock)
        self._started.append(program)
        return program

    def check(self) -> None:
        """Raise `ProgramDied` if one has exited."""
        for program in self._started:
            program.check()

    def ended(self) -> list[Program]:
        """Return the programs that have exited."""
        return [program for program in self._started if program.code is not None]

    async def end(self) -> None:
        """Stop all: the cluster was started first and is stopped last."""
        cluster, users = self._started[:1], self._started[1:]
        await asyncio.gather(*map(self._end, users))
        await asyncio.gather(*map(self._end, cluster))
        self._started.clear()

    async def run(self, name: str, *arguments: str, report: Callable[[str], None]) -> None:
        """Run a command to its end and report its output; raise if it fails."""
        program = self.start(name, *arguments)
        # It has child processes that only it can stop.
        program.patience_s = _COMMAND_S
        reported = 0
        while not await program.ended(_EVERY_S) or reported < len(program.output()):
            for line in program.output()[reported:]:
                report(line)
                reported += 1
        if program.code:
            raise ProgramDied(program.last_output())
        self._started.remove(program)

    def kill(self) -> None:
        """Kill all programs at once."""
        for program in self._started:
            if program.patience_s < _COMMAND_S:
                program.signal(SIGKILL)

    async def _end(self, program: Program) -> None:
        # A stopped process handles SIGTERM only after SIGCONT.
        for number in (SIGTERM, SIGCONT):
            program.signal(number)
        if not await program.ended(program.patience_s):
            program.signal(SIGKILL)
            await program.ended(_END_S)


def _lines(path: Path) -> list[str]:
    """Return the complete lines of a file."""
    if not path.exists():
        return []
    text = path.read_text(errors="replace")
    return text[: text.rfind("\n") + 1].splitlines()
