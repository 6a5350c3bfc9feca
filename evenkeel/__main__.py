# SPDX-License-Identifier: Apache-2.0
"""`evenkeel`, `kubectl evenkeel` and `python -m evenkeel`.

Everything else is imported inside the functions, with Ctrl-C as the system handles it: an exception
in the middle of an import can be printed and swallowed by the interpreter.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_INTERRUPTED = 130


@contextmanager
def _importing() -> Iterator[None]:
    """Let Ctrl-C end the process at once while the block imports."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> int:
    """Run the command and return its exit code."""
    try:
        with _importing():
            from evenkeel import commands
            from evenkeel.shell import cli, run

            commands.register(cli)
        return run()
    except KeyboardInterrupt:
        return _INTERRUPTED


def complete() -> int:
    """Complete a command line for kubectl (`kubectl_complete-evenkeel`)."""
    try:
        with _importing():
            from evenkeel.completion import complete_for_kubectl
        return complete_for_kubectl(sys.argv[1:])
    except KeyboardInterrupt:
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
