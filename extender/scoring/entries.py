"""What stands in a prioritize answer for a node, written beforehand.

An answer has an entry for every node that was asked about, thousands in a large cluster, and
between two answers hardly more than the scores change. So the entries of all nodes are kept
as one table of bytes, with a gap for the score; an answer is the rows in question with their
gaps filled in. Rows have one length: before the entries of shorter names there are zeros,
which are left out in the end. JSON text has neither a zero nor a one among its bytes, so
both are free to mean something here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from extender.scoring.curve import Scores

_TEN: Final = b"\x01"
_DIGITS: Final = np.frombuffer(b"0123456789" + _TEN, np.uint8)
_ENTRY: Final = b'{"Host":%b,"Score":0},'
_GAP: Final = -3
"""Where the score is, from the end."""
_MOST_PADDING: Final = 1.5
"""With names of very different lengths zeros cost more than is gained."""


class Entries:
    """The entries of all nodes of a board, by row."""

    __slots__ = ("_padded", "_table")

    def __init__(self, names: Sequence[str]) -> None:
        hosts = [msgspec.json.encode(name) for name in names]
        longest, whole = max(map(len, hosts), default=0), sum(map(len, hosts))
        width = len(_ENTRY % b"") + longest
        self._padded = longest * len(hosts) != whole
        self._table: npt.NDArray[np.uint8] | None = None
        if longest * len(hosts) <= _MOST_PADDING * whole:
            text = b"".join((_ENTRY % host).rjust(width, b"\0") for host in hosts)
            self._table = np.frombuffer(text, np.uint8).reshape(len(hosts), width)

    def written(self, rows: npt.NDArray[np.intp], scores: Scores) -> bytes | None:
        """Return an answer; none if one of the rows is nobody's."""
        if self._table is None or not rows.size or rows.min() < 0:
            return None
        found = self._table.take(rows, axis=0)
        found[:, _GAP] = _DIGITS[scores]
        text = found[found != 0] if self._padded else found
        # The comma of the last entry is one too many.
        return b"[%b]" % text.tobytes()[:-1].replace(_TEN, b"10")
