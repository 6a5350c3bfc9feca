# SPDX-License-Identifier: Apache-2.0
"""Cuts a byte stream into lines of any length.

A watch is one JSON object a line, and an object may be larger than any buffer. Pieces are
only collected until their newline comes and joined once, so a line costs its length and
not the square of it. A line that grows beyond a limit is not collected any further.
"""

from __future__ import annotations


class LineSplitter:
    """Collects chunks and gives back whole lines, without newlines and empty lines."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def overlong(self) -> bool:
        """Tell whether the line that has begun is longer than it may be; it is lost then."""
        return self._size > self._limit

    @property
    def mid_line(self) -> bool:
        """Tell whether the stream, if it ended now, would end inside a line."""
        return bool(self._pieces)

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes."""
        first, *others = chunk.split(b"\n")
        if not others:
            self._keep(chunk)
            return []
        lines = [b"".join((*self._pieces, first)), *others[:-1]]
        self._pieces.clear()
        self._size = 0
        self._keep(others[-1])
        return [line for line in lines if line]

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self.overlong:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)
