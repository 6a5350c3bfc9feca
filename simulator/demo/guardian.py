"""End a demo's programs and remove its files when the demo itself no longer can: `kill -9`.

A child of the demo holds the other end of a socket, which closes however the demo ends. It is
handed a pidfd of every program, so that it never mistakes a stranger for one that has ended.
This file is run as a script, and imports nothing of ours: it is there only to wait.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
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
    """Have a guardian, and tell it the process ids of all that is started."""
    if sys.platform != "linux":
        # Without pidfds nobody could be told apart from a stranger.
        yield lambda _: None
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    quiet = subprocess.DEVNULL
    with ours:
        with theirs:
            guardian = subprocess.Popen(
                [sys.executable, "-I", __file__, str(folder)],
                stdin=theirs.fileno(),
                stdout=quiet,
                stderr=quiet,
                start_new_session=True,
            )
        yield lambda pid: _tell(ours, pid)
    guardian.wait()


def _tell(guardian: socket.socket, pid: int) -> None:
    # One that has ended already, or a guardian that somebody has killed, need no more care.
    with suppress(OSError):
        fd = os.pidfd_open(pid)
        try:
            socket.send_fds(guardian, [_MESSAGE], [fd])
        finally:
            os.close(fd)


def watch(demo: socket.socket, folder: Path) -> None:
    """Wait until the demo is gone, then end and remove what it has left."""
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
    # A stopped process takes the other signal only once it goes on.
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
    """Remove the demo's files; a control plane among them is ended by who has started it."""
    home = folder / "controlplane"
    if home.exists():
        command = ["-m", "controlplane", "down", "--dir", str(home)]
        subprocess.run([sys.executable, *command], check=False)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watch(socket.socket(fileno=sys.stdin.fileno()), Path(sys.argv[1]))
