# SPDX-License-Identifier: Apache-2.0
"""Stop a control plane when the process that started it is gone, however it ended.

A child process holds the read end of a pipe, and only this process has the write end. When this
process ends, even by `kill -9`, the pipe closes, and the child does what `down` does. (The
parent-death signal of the kernel does not work here: it fires when the *thread* that started a
process ends, and tests restart components from worker threads.)
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

from controlplane.cluster import attach
from controlplane.errors import FolderError

PACKAGES = Path(__file__).resolve().parent.parent


class Guardian:
    """Watches one folder from a separate process."""

    def __init__(self, root: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "controlplane.guardian", str(root)],
            cwd=PACKAGES,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """Stop the guardian, and with it everything that still runs in its folder."""
        self._process.communicate()


def watch(root: Path) -> None:
    """Wait until the other end of stdin is closed, then stop the control plane."""
    sys.stdin.buffer.read()
    with contextlib.suppress(FolderError):
        attach(root).down()


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
