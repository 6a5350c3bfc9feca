# SPDX-License-Identifier: Apache-2.0
"""What the command waits for, on stderr and only in a terminal: a pipe gets the answer alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from common.visible import visible


class Progress:
    """One line that says what is waited for."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False)
        self._shown = sys.stderr.isatty()
        self._words = ""

    @contextmanager
    def waiting(self, words: str) -> Iterator[None]:
        """Show the line while the block runs."""
        if not self._shown:
            yield
            return
        with self._console.status(visible(words)):
            yield

    def say(self, words: str) -> None:
        """Print a line that stays, in pipes too: it is about what the command does."""
        if words != self._words:
            self._words = words
            print(visible(words), file=sys.stderr, flush=True)
