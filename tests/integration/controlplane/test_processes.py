# SPDX-License-Identifier: Apache-2.0
"""Processes are started to stay, told apart, and ended without harm to others."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.ports import free_ports, is_free
from controlplane.processes import Process, end, kill, reap, send, start
from controlplane.waiting import until

SLEEP = ("/bin/sleep", "600")
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""
FIRST_THREAD_ENDS_FIRST = """
import ctypes, os, threading, time
threading.Thread(target=lambda: (time.sleep(0.3), os._exit(7))).start()
ctypes.CDLL(None).pthread_exit(None)
"""
SELF_PORTRAIT = """
import os
print(os.getsid(0) == os.getpid(), os.environ.get("GREETING"), "PATH" in os.environ)
"""

Starter = Callable[..., Process]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Starter]:
    running: list[Process] = []

    def begin(*argv: str) -> Process:
        running.append(start(argv, log=tmp_path / "log", env={"GREETING": "hello"}))
        return running[-1]

    yield begin
    for process in running:
        kill(process)


def wait_for_log(path: Path) -> str:
    return until(
        lambda: path.read_text() if path.exists() else "", timeout_s=30, what="nothing was logged"
    )


def test_a_process_has_a_session_of_its_own_and_only_the_given_environment(
    started: Starter, tmp_path: Path
) -> None:
    started(sys.executable, "-c", SELF_PORTRAIT)
    assert wait_for_log(tmp_path / "log") == "True hello False\n"


def test_errors_go_to_the_same_log_and_nothing_is_overwritten(
    started: Starter, tmp_path: Path
) -> None:
    (tmp_path / "log").write_text("before\n")
    process = started(sys.executable, "-c", "import sys; print('fault', file=sys.stderr)")
    until(lambda: not process.alive, timeout_s=30, what="it did not end")
    assert (tmp_path / "log").read_text() == "before\nfault\n"


def test_a_process_is_alive_until_it_is_ended(started: Starter) -> None:
    process = started(*SLEEP)
    assert process.alive
    end(process)
    assert not process.alive


def test_one_that_does_not_listen_is_killed(started: Starter, tmp_path: Path) -> None:
    process = started(sys.executable, "-c", STUBBORN)
    wait_for_log(tmp_path / "log")
    end(process, patience_s=0.1)
    assert not process.alive


def test_a_zombie_is_not_alive_and_leaves_its_exit_code(started: Starter) -> None:
    process = started(sys.executable, "-c", "raise SystemExit(7)")
    until(lambda: not process.alive, timeout_s=30, what="it did not end")
    assert Path(f"/proc/{process.pid}").exists()
    assert reap(process) == 7
    assert reap(process) is None


def test_an_exit_code_is_waited_for_until_the_last_thread_has_ended(started: Starter) -> None:
    process = started(sys.executable, "-c", FIRST_THREAD_ENDS_FIRST)
    until(lambda: not process.alive, timeout_s=30, what="it did not end")
    assert reap(process) == 7


@pytest.mark.parametrize(
    "recycle",
    [lambda ours: replace(ours, start_ticks=1), lambda ours: replace(ours, boot_id="another")],
    ids=["later start", "other boot"],
)
@pytest.mark.parametrize("ending", [end, kill])
def test_a_stranger_with_our_pid_is_left_alone(
    ending: Callable[[Process], None], recycle: Callable[[Process], Process]
) -> None:
    with subprocess.Popen(SLEEP) as stranger:
        try:
            ticks = int(
                Path(f"/proc/{stranger.pid}/stat").read_text().rpartition(")")[2].split()[19]
            )
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            ours = Process(stranger.pid, ticks, boot)
            assert ours.alive
            recycled = recycle(ours)
            ending(recycled)
            assert not send(recycled, signal.SIGKILL)
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_process_that_is_gone_can_be_ended_again(started: Starter) -> None:
    process = started(*SLEEP)
    kill(process)
    end(process)
    kill(process)
    assert not send(process, signal.SIGTERM)


def test_a_name_with_brackets_does_not_hide_the_start_time(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    process = start((str(odd), "600"), log=tmp_path / "log", env={})
    try:
        assert process.alive
    finally:
        kill(process)
    assert not process.alive


def test_free_ports_differ_and_lie_below_the_ephemeral_range() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert max(ports) < first


def test_a_port_that_someone_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])
