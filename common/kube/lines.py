"""Cuts a byte stream into lines of any length.

A watch is one JSON object a line, and an object may be larger than any buffer. Pieces are
only collected until their newline comes and joined once, so a line costs its length and
not the square of it.
"""

from __future__ import annotations


class LineSplitter:
    """Collects chunks and gives back whole lines, without newlines and empty lines."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

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
        self._keep(others[-1])
        return [line for line in lines if line]

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
