# SPDX-License-Identifier: Apache-2.0
"""The shell around a program: real processes for signals and streams, the rest called here.

A process takes more than a second to import everything, so only what needs one gets one.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from common import __version__
from common.cli import main
from tests.integration.common.tiny_program import PROGRAM
from tests.support.repository import ROOT
from tests.support.restored_logs import restored_logs

COMMAND = [sys.executable, "-W", "error", "-m", "tests.integration.common.tiny_program"]
LIMIT_S = 120
HEAD = "apiVersion: evenkeel.io/v1alpha1\nkind: ExtenderConfiguration\n"


def finished(*flags: str) -> subprocess.CompletedProcess[str]:
    """Run the program as a process to its end."""
    return subprocess.run(
        [*COMMAND, *flags], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S
    )


class Ended(NamedTuple):
    """What is left of a run in this process."""

    returncode: int
    stdout: str
    stderr: str


Call = Callable[..., Ended]


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str]) -> Iterator[Call]:
    """Run the program in this process and put back what it changed in it."""

    def call(*flags: str) -> Ended:
        try:
            code = main(PROGRAM, flags)
        except SystemExit as leaving:  # argparse's way
            code = int(str(leaving.code))
        return Ended(code, *capsys.readouterr())

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with restored_logs():
        yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)


class Running:
    """The program while it runs; reading a line waits for it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.announced: dict[str, Any] = json.loads(self.line())

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ended(self) -> tuple[int, str]:
        """Return the exit code and everything that stood on stderr."""
        _, stderr = self._process.communicate(timeout=LIMIT_S)
        return self._process.returncode, stderr


@contextmanager
def running(*flags: str) -> Iterator[Running]:
    process = subprocess.Popen(
        [*COMMAND, "--health-port", "0", *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(LIMIT_S, process.kill)  # reading a line would wait for ever
    watchdog.start()
    with process:
        try:
            yield Running(process)
        finally:
            process.kill()
            watchdog.cancel()


def test_the_ports_in_use_are_one_line_of_json_and_answer() -> None:
    with running() as program:
        assert program.announced["program"] == "tiny"
        url = f"http://{program.announced['health']}"
        assert httpx.get(f"{url}/readyz", trust_env=False).text == "ok\n"
        metrics = httpx.get(f"{url}/metrics", trust_env=False).text
        assert 'evenkeel_build_info{program="tiny"' in metrics
        assert httpx.delete(f"{url}/metrics", trust_env=False).status_code == 405


def test_the_configuration_reaches_the_program(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + "cpuThreshold: 40\n")
    with running("--config", str(file)) as program:
        answer = httpx.get(f"http://{program.announced['health']}/readyz", trust_env=False)
        assert answer.status_code == 503
        assert "[-]threshold failed: too low" in answer.text


def test_the_bind_address_is_used() -> None:
    with running("--bind-address", "127.0.0.2") as program:
        assert program.announced["health"].startswith("127.0.0.2:")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_drains_and_exits_0(number: signal.Signals) -> None:
    with running() as program:
        program.send(number)
        assert [program.line(), program.line()] == ["draining", "drained"]
        code, stderr = program.ended()
    assert code == 0
    assert f"stopping program=tiny signal={number.name}" in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("drain", "number", "code"),
    [("hang", signal.SIGTERM, 143), ("hang", signal.SIGINT, 130), ("busy", signal.SIGTERM, 143)],
)
def test_the_second_signal_exits_at_once(drain: str, number: signal.Signals, code: int) -> None:
    with running("--drain", drain) as program:
        program.send(signal.SIGTERM)
        assert program.line() == "draining"
        program.send(number)
        assert program.ended()[0] == code


def test_a_thread_that_never_ends_does_not_keep_a_program_from_ending() -> None:
    with running("--drain", "thread") as program:
        program.send(signal.SIGTERM)
        assert [program.line(), program.line()] == ["draining", "drained"]
        code, stderr = program.ended()
    assert code == 0
    assert "stopped while a thread is still running" in stderr


def test_the_second_signal_does_not_wait_for_a_thread_either() -> None:
    with running("--drain", "thread") as program:
        program.send(signal.SIGTERM)
        assert [program.line(), program.line()] == ["draining", "drained"]
        program.send(signal.SIGTERM)
        assert program.ended()[0] == 143


def test_a_program_that_is_done_exits_0(called: Call) -> None:
    done = called("--health-port", "0", "--once")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == ["draining", "drained"]


def test_a_failure_while_draining_is_a_bug_with_its_traceback() -> None:
    with running("--drain", "fail") as program:
        program.send(signal.SIGTERM)
        code, stderr = program.ended()
    assert code == 70
    assert "ZeroDivisionError: while draining" in stderr


@pytest.mark.parametrize("fail", ["bug", "cancelled"])
def test_an_unexpected_failure_is_logged_with_its_traceback(called: Call, fail: str) -> None:
    failed = called("--fail", fail)
    assert failed.returncode == 70
    assert "unexpected failure" in failed.stderr
    assert "Traceback (most recent call last)" in failed.stderr


REASONS = {
    "kubeconfig": "no cluster: tried --kubeconfig x, KUBECONFIG (not set)",
    "unreachable": "https://127.0.0.1:1 refused the connection",
    "untrusted": "the certificate of https://127.0.0.1:1 is not signed by our CA",
    "unauthorized": "Bearer <hidden> is not accepted",
    "start": "the moon is in the wrong phase",
    "silent": "StartError",
}


def complaints(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if " INFO " not in line]


@pytest.mark.parametrize("fail", REASONS)
def test_a_program_that_cannot_work_says_why_in_one_line(called: Call, fail: str) -> None:
    failed = called("--fail", fail)
    assert failed.returncode == 1
    assert complaints(failed.stderr) == [f"tiny: {REASONS[fail]}"]
    assert failed.stdout == ""


def test_the_reason_is_found_in_groups_of_tasks(called: Call) -> None:
    failed = called("--fail", "unreachable", "--grouped")
    assert failed.returncode == 1
    assert complaints(failed.stderr) == [f"tiny: {REASONS['unreachable']}"]


def test_a_bug_in_a_group_of_tasks_stays_a_bug(called: Call) -> None:
    failed = called("--fail", "bug", "--grouped")
    assert failed.returncode == 70
    assert "ZeroDivisionError: one too many" in failed.stderr


def test_a_taken_port_is_one_line(called: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = called("--health-port", str(port))
    assert failed.returncode == 1
    assert complaints(failed.stderr) == [
        f"tiny: cannot listen on 127.0.0.1:{port}: address already in use; "
        "choose another port with a flag, 0 is a free one"
    ]


def test_a_bad_configuration_is_one_line_per_problem(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + "cpuThreshhold: 70\nmetricExpiry: 30\n")
    failed = finished("--config", str(file))
    assert failed.returncode == 2
    assert failed.stderr.splitlines() == [
        f"tiny: {file}: line 3: cpuThreshhold: unknown key, did you mean cpuThreshold?",
        f"tiny: {file}: line 4: metricExpiry: 30 is not a duration: write 30s, 5m or 1h",
    ]


def test_a_bad_configuration_is_told_in_the_format_of_the_logs(
    called: Call, tmp_path: Path
) -> None:
    failed = called("--config", str(tmp_path / "none.yaml"), "--logging-format", "json")
    assert failed.returncode == 2
    (line,) = map(json.loads, failed.stderr.splitlines())
    assert (line["level"], line["event"]) == ("error", "program failed")
    assert line["error"].endswith("none.yaml: cannot be read: no such file or directory")


def starts(stderr: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in stderr.splitlines()]
    return [line for line in lines if line["event"] == "starting"]


def test_what_differs_from_the_defaults_is_logged_once(called: Call, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + "cpuThreshold: 70.0\n")
    flags = ("--config", str(file), "--fail", "start", "--logging-format", "json")
    (start,) = starts(called(*flags).stderr)
    assert start["level"] == "info"
    assert start["version"] == __version__
    assert start["config"] == {"cpuThreshold": 70.0}


@pytest.mark.parametrize(("verbosity", "levels"), [("0", []), ("1", ["debug"])])
def test_who_asks_for_one_answer_is_told_the_configuration_on_demand(
    called: Call, verbosity: str, levels: list[str]
) -> None:
    flags = ("--health-port", "0", "--once", "-v", verbosity, "--logging-format", "json")
    assert [line["level"] for line in starts(called(*flags).stderr)] == levels


def test_version_is_printed(called: Call) -> None:
    done = called("--version")
    assert (done.returncode, done.stdout) == (0, f"tiny {__version__}\n")


def test_help_explains_every_flag() -> None:
    done = finished("--help")
    assert done.returncode == 0
    for flag in (
        "--config", "--kubeconfig", "--context", "--bind-address", "--health-port", "-v N",
        "--logging-format", "--version", "--drain",
    ):  # fmt: skip
        assert flag in done.stdout
    assert "Serves a health port and nothing else." in done.stdout
    assert "8889" in done.stdout
    assert "kind ExtenderConfiguration" in done.stdout


@pytest.mark.parametrize("grouped", [(), ("--grouped",)])
def test_flags_that_do_not_go_together_are_one_line_and_exit_2(
    called: Call, grouped: tuple[str, ...]
) -> None:
    failed = called("--fail", "flags", *grouped)
    assert failed.returncode == 2
    assert complaints(failed.stderr) == ["tiny: --this needs --that"]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--health-port", "http"], "http is not a port: write 0 to 65535"),
        (["--health-port", "65536"], "65536 is not a port: write 0 to 65535"),
        (["--health-port=-1"], "-1 is not a port: write 0 to 65535"),
        (["-v", "much"], "much is not a number from 0"),
        (["--logging-format", "xml"], "invalid choice: 'xml'"),
        (["--conf", "x"], "unrecognized arguments: --conf x"),
        (["stray"], "unrecognized arguments: stray"),
    ],
)
def test_flags_that_are_not_understood_exit_2(called: Call, flags: list[str], why: str) -> None:
    failed = called(*flags)
    assert failed.returncode == 2
    assert why in failed.stderr.splitlines()[-1]
