# SPDX-License-Identifier: Apache-2.0
"""Processes of a benchmark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@contextmanager
def running(
    command: Sequence[str], *, log: Path | None = None, stdin: int | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a program until the block ends; yield it with the first line that it prints.

    Its stderr goes to `log`; a program that exits without output ends the benchmark.
    """
    pipe = subprocess.PIPE
    with (
        log.open("a") if log is not None else nullcontext() as errors,
        subprocess.Popen(command, stdin=stdin, stdout=pipe, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            if not line:
                output = log.read_text()[-2000:] if log is not None else ""
                raise SystemExit(f"{' '.join(command[:3])} did not start: {output}")
            yield process, line
        finally:
            process.terminate()


def memory_mb(field: str = "VmRSS", *, pid: int | str = "self") -> float:
    """Return resident or peak memory from the status of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1]) / 1024


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


@contextmanager
def extender(
    settings: str, kubeconfig: str, folder: Path, *, program: Sequence[str] = ("extender",)
) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """Run our extender on free ports until the block ends; yield it with its addresses.

    `program` is the module that runs it, with arguments that precede the flags.
    """
    config = folder / "extender.yaml"
    head = "apiVersion: evenkeel.io/v1alpha1\nkind: ExtenderConfiguration\n"
    config.write_text(head + settings)
    flags = ["--config", str(config), "--kubeconfig", kubeconfig]
    command = [sys.executable, "-m", *program, "--port", "0", "--health-port", "0", *flags]
    with running(command, log=folder / "extender.log") as (process, line):
        yield process, json.loads(line)
