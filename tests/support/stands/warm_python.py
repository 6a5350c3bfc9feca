# SPDX-License-Identifier: Apache-2.0
"""Programs as processes that do not have to import everything first.

Importing takes longer than most programs run in a test. So one process imports what they need,
each the first time that it is wanted, and is then copied for every run; it never runs anything
itself. A copy is a process like any other: with arguments, environment, streams, signals and exit
code of its own. Warnings are errors in it.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import json
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.repository import ROOT

IMPORTED: Final[Mapping[str, tuple[str, ...]]] = {
    "bench.replay": ("bench.observed", "rebalancer.decision", "rebalancer.launcher"),
    "common": ("common.observer", "common.health", "rich.table"),
    "evenkeel": ("evenkeel.commands", "evenkeel.completion"),
    "extender": ("extender.main",),
    "rebalancer": ("rebalancer.main", "rich.table"),
    "simulator": ("simulator.cluster", "simulator.scenarios", "common.cli"),
    "tests.faults.extender_process": ("tests.support.stands.closed_loop",),
    "tests.integration.common.tiny_program": ("common.cli", "common.health"),
}
"""What a program imports; for others nothing is imported beforehand."""
LARGEST: Final = 128 * 1024
"""The most bytes of an order: arguments and environment."""
BYTES: Final = 4


class Ended(NamedTuple):
    """How a program ended, what it printed, and what it complained."""

    code: int
    out: str
    err: str


class WarmProcess:
    """A program while it runs, as `asyncio.subprocess` has it."""

    def __init__(
        self,
        pid: int,
        streams: tuple[asyncio.StreamReader, asyncio.StreamReader],
        ending: asyncio.Future[int],
    ) -> None:
        self.pid = pid
        self.stdout, self.stderr = streams
        self._ending = ending

    @property
    def returncode(self) -> int | None:
        return self._ending.result() if self._ending.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._ending)

    async def communicate(self) -> tuple[bytes, bytes]:
        """Read both streams to their ends and wait for that of the program."""
        out, err = await asyncio.gather(self.stdout.read(), self.stderr.read())
        await self.wait()
        return out, err

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


async def run_program(module: str, *arguments: str) -> Ended:
    """Run `python -m module` with arguments until it ends."""
    process = await start_program(module, *arguments)
    try:
        out, err = await process.communicate()
    finally:
        process.kill()
        code = await process.wait()
    return Ended(code, out.decode(), err.decode())


async def start_program(
    module: str, *arguments: str, folder: Path | None = None, stderr: int | None = None
) -> WarmProcess:
    """Start `python -m module`; its complaints go to a file if one is given."""
    out, its_out = os.pipe()
    err, its_err = os.pipe()
    order = {"module": module, "arguments": arguments, "folder": str(folder or Path.cwd())}
    try:
        answers = _original().start(order, its_out, its_err if stderr is None else stderr)
    finally:
        os.close(its_out)
        os.close(its_err)
    reader, writer = await asyncio.open_connection(sock=answers)
    pid = await _told(reader)
    streams = (await _stream(out), await _stream(err))
    return WarmProcess(pid, streams, asyncio.ensure_future(_ended(reader, writer)))


async def _told(reader: asyncio.StreamReader) -> int:
    return int.from_bytes(await reader.readexactly(BYTES), sys.byteorder, signed=True)


async def _ended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    try:
        return await _told(reader)
    finally:
        writer.close()
        await writer.wait_closed()


class _ToTheEnd(asyncio.StreamReaderProtocol):
    """Closes its end of a pipe once the other end is closed."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


async def _stream(pipe: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    protocol = _ToTheEnd(reader)
    file = os.fdopen(pipe, "rb", 0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, file)
    return reader


class WarmPython:
    """The process that is copied."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders

    def start(self, order: dict[str, Any], out: int, err: int) -> socket.socket:
        """Start a program; the socket tells its number, and later its exit code."""
        ours, theirs = socket.socketpair()
        words = json.dumps({**order, "environment": dict(os.environ)}).encode()
        with theirs:
            socket.send_fds(self._orders, [words], [theirs.fileno(), out, err])
        return ours


@cache
def _original() -> WarmPython:
    """Return the process that is copied; it ends when this one closes its socket."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    number = theirs.fileno()
    command = [sys.executable, "-W", "error", "-m", "tests.support.stands.warm_python"]
    with theirs:
        process = subprocess.Popen(
            [*command, str(number)], cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=(number,)
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return WarmPython(ours)


class Server:
    """Starts programs as they are ordered, and tells how each ended."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._selector = selectors.DefaultSelector()
        self._selector.register(orders, selectors.EVENT_READ, self._start)

    def serve(self) -> None:
        """Serve until no one can order any more."""
        going_on = True
        while going_on:
            for key, _ in self._selector.select():
                going_on &= key.data()

    def _start(self) -> bool:
        words, given, _, _ = socket.recv_fds(self._orders, LARGEST, 3)
        if not words:
            return False
        order = json.loads(words)
        for name in IMPORTED.get(order["module"], ()):
            import_module(name)
        gc.freeze()  # copies would look through all of this for garbage
        answers, out, err = socket.socket(fileno=given[0]), given[1], given[2]
        child = os.fork()
        if child == 0:
            self._selector.close()
            answers.close()
            _live(order, out, err, self._orders)
        os.close(out)
        os.close(err)
        answers.send(_bytes(child))
        self._watch(child, answers)
        return True

    def _watch(self, child: int, answers: socket.socket) -> None:
        number = os.pidfd_open(child)

        def ended() -> bool:
            _, status = os.waitpid(child, 0)
            self._selector.unregister(number)
            os.close(number)
            code = os.waitstatus_to_exitcode(status)
            with answers, suppress(BrokenPipeError):
                answers.send(_bytes(code))
            return True

        self._selector.register(number, selectors.EVENT_READ, ended)


def _bytes(number: int) -> bytes:
    return number.to_bytes(BYTES, sys.byteorder, signed=True)


def main() -> None:
    """Serve orders that come over the socket whose number is the argument."""
    Server(socket.socket(fileno=int(sys.argv[1]))).serve()


def _live(order: dict[str, Any], out: int, err: int, orders: socket.socket) -> None:
    """Be the program; it leaves as programs do."""
    threading.Thread(target=_end_with_the_tests, args=(orders,), daemon=True).start()
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    # Tests that run in the background of a shell ignore it, and so would their children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    sys.argv = [order["module"], *order["arguments"]]
    runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    sys.exit()


def _end_with_the_tests(orders: socket.socket) -> None:
    """Exit once no one can order any more: killed tests must not leave a program running."""
    closed = select.poll()
    closed.register(orders, 0)  # no order is read here, only the end is noticed
    closed.poll()
    os._exit(1)


if __name__ == "__main__":
    main()
