"""End a control plane when the process that wanted it is gone, however it ended.

A child of ours holds the reading end of a pipe whose writing end only we have. When we
end, even by `kill -9`, the pipe breaks, and the child does what `down` does. (The
kernel's parent-death signal does not serve here: it fires when the *thread* that
started a process ends, and tests restart components from worker threads.)
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
    """Watches over one folder from a process of its own."""

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
        """Let the guardian end; whatever still runs in its folder ends with it."""
        self._process.communicate()


def watch(root: Path) -> None:
    """Wait until nobody holds the other end of stdin, then end the control plane."""
    sys.stdin.buffer.read()
    with contextlib.suppress(FolderError):
        attach(root).down()


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
