# SPDX-License-Identifier: Apache-2.0
"""Programs as processes that do not have to import everything first.

Importing takes longer than most programs run in a test. So one process imports what they need
and is then copied for each of them; it never runs anything itself. A copy is a process like any
other: with arguments, environment, output and exit code of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import json
import os
import runpy
import select
import subprocess
import sys
import tempfile
import threading
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.repository import ROOT

IMPORTED: Final = ("common.observer", "common.health", "rich.table", "rebalancer.main")


class Ended(NamedTuple):
    """How a program ended, what it printed, and what it complained."""

    code: int
    out: str
    err: str


async def run_program(module: str, *arguments: str) -> Ended:
    """Run `python -m module` with arguments until it ends."""
    return await asyncio.to_thread(_original().run, module, arguments)


class WarmPython:
    """The process that is copied."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._one_at_a_time = threading.Lock()

    def run(self, module: str, arguments: tuple[str, ...]) -> Ended:
        with tempfile.TemporaryDirectory() as folder, self._one_at_a_time:
            out, err = Path(folder) / "out", Path(folder) / "err"
            order = {"module": module, "arguments": arguments, "out": str(out), "err": str(err)}
            code = self._ask({**order, "environment": dict(os.environ), "folder": str(Path.cwd())})
            return Ended(code, out.read_text(), err.read_text())

    def _ask(self, order: dict[str, Any]) -> int:
        asks, answers = self._process.stdin, self._process.stdout
        assert asks is not None
        assert answers is not None
        asks.write(json.dumps(order) + "\n")
        asks.flush()
        return int(answers.readline())


@cache
def _original() -> WarmPython:
    """Return the process that is copied; it ends when this one closes its pipe."""
    command = [sys.executable, "-m", "tests.support.stands.warm_python"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
    atexit.register(process.communicate)
    return WarmPython(process)


def main() -> None:
    """Serve orders, one at a time: tell how each program ended."""
    for name in IMPORTED:
        import_module(name)
    gc.freeze()  # copies would look through all of this for garbage
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _live(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _live(order: dict[str, Any]) -> None:
    """Be the program; it leaves as programs do."""
    threading.Thread(target=_end_with_the_tests, daemon=True).start()
    for path, number in ((order["out"], 1), (order["err"], 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    sys.argv = [order["module"], *order["arguments"]]
    runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    sys.exit()


def _end_with_the_tests() -> None:
    """Exit once the pipe of orders is closed: killed tests must not leave a program running."""
    orders = select.poll()
    orders.register(sys.stdin, 0)  # no order is read here, only the end is noticed
    orders.poll()
    os._exit(1)


if __name__ == "__main__":
    main()
