# SPDX-License-Identifier: Apache-2.0
"""Stop a demo's programs and remove its files when the demo itself cannot: after `kill -9`.

A child of the demo holds the other end of a socket, which closes however the demo ends. It
gets a pidfd of every program, so a reused process ID is never mistaken for a program of ours.
Programs send it themselves, before they become what they are: until then they hold the demo's end
of the socket, so the guardian hears of each before it learns that the demo is gone.
This file runs as a script and imports nothing of ours: it only waits.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PATIENCE_MS: Final = 60_000
_MESSAGE: Final = b"program"

Watch = Callable[[int], None]


@contextmanager
def guarded(folder: Path) -> Iterator[Watch]:
    """Run a guardian; the block gets a function that registers process IDs with it."""
    if sys.platform != "linux":
        # Without pidfds a reused process ID could not be recognized.
        yield lambda _: None
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    quiet = subprocess.DEVNULL
    with theirs:
        guardian = subprocess.Popen(
            [sys.executable, "-I", __file__, str(folder)],
            stdin=theirs.fileno(),
            stdout=quiet,
            stderr=quiet,
            start_new_session=True,
        )
    try:
        with ours:
            yield lambda pid: _register(ours, pid)
    finally:
        # A demo that failed leaves no guardian behind either.
        guardian.wait()


def _register(guardian: socket.socket, pid: int) -> None:
    # The program may have exited, or the guardian may have been killed: SIGPIPE would then end
    # the program, and socket.send_fds takes no flags before Python 3.13.
    with suppress(OSError):
        fd = os.pidfd_open(pid)
        try:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", fd))
            guardian.sendmsg([_MESSAGE], [rights], socket.MSG_NOSIGNAL)
        finally:
            os.close(fd)


def watch(demo: socket.socket, folder: Path) -> None:
    """Wait until the demo is gone, then stop its programs and remove its files."""
    programs: list[int] = []
    while True:
        message, found, _, _ = socket.recv_fds(demo, len(_MESSAGE), 1)
        if not message:
            break
        programs += found
    cluster, users = programs[:1], programs[1:]
    _end(users)
    _end(cluster)
    _remove(folder)


def _end(programs: list[int]) -> None:
    # A stopped process handles SIGTERM only after SIGCONT.
    for number in (signal.SIGTERM, signal.SIGCONT):
        for program in programs:
            _send(program, number)
    for program in programs:
        ended = select.poll()
        ended.register(program, select.POLLIN)
        if not ended.poll(_PATIENCE_MS):
            _send(program, signal.SIGKILL)
            ended.poll(_PATIENCE_MS)


def _send(program: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(program, number)


def _remove(folder: Path) -> None:
    """Remove the files of the demo; a control plane among them is stopped first."""
    home = folder / "controlplane"
    if home.exists():
        command = ["-m", "controlplane", "down", "--dir", str(home)]
        subprocess.run([sys.executable, *command], check=False)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watch(socket.socket(fileno=sys.stdin.fileno()), Path(sys.argv[1]))
