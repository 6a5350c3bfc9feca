# SPDX-License-Identifier: Apache-2.0
"""Start processes that outlive this one, and stop exactly those.

A pid alone is not enough: the kernel reuses it once the process has been reaped. A `Process` is
a pid with the boot ID and its start time in clock ticks, which no other process shares. Signals
are sent through a pidfd that is opened before the identity is checked, so that the pid cannot be
reused in between.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TERM_PATIENCE_S = 10.0
KILL_PATIENCE_S = 10.0
REAP_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class Process:
    """One process, distinct from every other that ever has its pid."""

    pid: int
    start_ticks: int
    boot_id: str

    @property
    def alive(self) -> bool:
        """Return whether it runs; a zombie does not."""
        return self.boot_id == _boot_id() and _start_ticks(self.pid) == self.start_ticks


def start(argv: Sequence[str], *, log: Path, env: Mapping[str, str]) -> Process:
    """Start a program in its own session, with all output appended to `log`."""
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    # Not Popen: it warns when it is collected before its child has exited, and these
    # children must keep running.
    pid = os.posix_spawn(
        argv[0],
        list(argv),
        dict(env),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), appending, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGPIPE),
    )
    # It may have exited already; an impossible start time means "not alive".
    ticks = _start_ticks(pid)
    return Process(pid, -1 if ticks is None else ticks, _boot_id())


def send(process: Process, number: signal.Signals) -> bool:
    """Send a signal; return False when the process has ended."""
    with _pidfd(process) as fd:
        if fd is None:
            return False
        return _signal(fd, number)


def end(process: Process, *, patience_s: float = TERM_PATIENCE_S) -> None:
    """Stop a process; kill it if it does not exit in time."""
    with _pidfd(process) as fd:
        if fd is not None:
            _signal(fd, signal.SIGTERM)
            if not _ended(fd, patience_s):
                _signal(fd, signal.SIGKILL)
                _ended(fd, KILL_PATIENCE_S)
    reap(process)


def kill(process: Process) -> None:
    """Kill a process, like a crash."""
    with _pidfd(process) as fd:
        if fd is not None:
            _signal(fd, signal.SIGKILL)
            _ended(fd, KILL_PATIENCE_S)
    reap(process)


def reap(process: Process) -> int | None:
    """Return the exit code of a child that has exited; otherwise None.

    The main thread can exit before the last thread: wait for that too.
    """
    with contextlib.suppress(ChildProcessError, ProcessLookupError):
        fd = os.pidfd_open(process.pid)
        try:
            _ended(fd, REAP_PATIENCE_S)
        finally:
            os.close(fd)
        pid, status = os.waitpid(process.pid, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
    return None


@contextlib.contextmanager
def _pidfd(process: Process) -> Iterator[int | None]:
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield fd if process.alive else None
    finally:
        os.close(fd)


def _signal(fd: int, number: signal.Signals) -> bool:
    try:
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    return True


def _ended(fd: int, patience_s: float) -> bool:
    """Wait for a process to end; its pidfd becomes readable when it does."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(patience_s * 1000))


def _start_ticks(pid: int) -> int | None:
    """Return field 22 of /proc/PID/stat, or None when the process has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name may contain spaces and brackets: count from the last bracket.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
