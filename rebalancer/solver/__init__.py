# SPDX-License-Identifier: Apache-2.0
"""The exact solver, in a process of its own with a limit on its memory.

It starts with the first problem and stays for the next ones; its pipe closes with this
process, which ends it. Waiting for it blocks the thread that plans and nothing else, so the
Lease is renewed meanwhile. Whatever happens to it, the plan is made without it then: a problem
that it fails on has no answer, and the next one gets a new process.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from contextlib import suppress
from threading import Lock
from typing import Final

import msgspec
import structlog

from rebalancer.highs.frames import decode_answer, encode, read_frame, write_frame
from rebalancer.linear_problem import Answer, LinearProblem

log: structlog.stdlib.BoundLogger = structlog.get_logger()

MEMORY_BYTES: Final = 1 << 30
"""Address space of the process. The largest problems need a tenth of it."""
CPU_S: Final = 60
"""CPU seconds after which the kernel ends a process that does not answer."""


class SolverProcess:
    """Solves problems one after the other."""

    def __init__(self, *, memory_bytes: int = MEMORY_BYTES, cpu_s: int = CPU_S) -> None:
        module = (sys.executable, "-m", "rebalancer.highs")
        self._command = (*module, str(memory_bytes), str(cpu_s))
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()

    def __call__(self, problem: LinearProblem) -> Answer | None:
        """Return the answer; None if the process could not give one."""
        with self._lock:
            try:
                return self._asked(problem)
            except (OSError, ValueError, msgspec.DecodeError) as error:
                log.warning("solver failed", error=str(error) or type(error).__name__)
            self._end()
            return None

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return self._process.pid if self._process is not None else None

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _asked(self, problem: LinearProblem) -> Answer:
        if self._process is None:
            self._process = self._started()
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise ValueError("the solver has no pipes")
        write_frame(stdin, encode(problem))
        frame = read_frame(stdout)
        if frame is None:
            raise ValueError(f"the solver ended with {self._process.wait()}")
        return decode_answer(frame)

    def _started(self) -> subprocess.Popen[bytes]:
        # BLAS would reserve memory for each thread; the solver uses one.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what was not sent is lost with the process
                    pipe.close()


solve: Final = SolverProcess()
"""The one of this program."""
atexit.register(solve.close)
