# SPDX-License-Identifier: Apache-2.0
"""The entries of a HostPriorityList, encoded in advance.

A response has an entry for every node of the request, thousands in a large cluster, and
between two responses little more than the scores changes. So the entries of all nodes are
kept as one table of bytes, with a gap for the score; a response is the requested rows with
their gaps filled in. All rows have one length: the entries of shorter names are padded with
zero bytes, which are removed in the end. Encoded JSON contains neither a zero byte nor a one
byte, so both can be used as marks here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from extender.scoring.curve import ScoreArray

_TEN: Final = b"\x01"
_DIGITS: Final = np.frombuffer(b"0123456789" + _TEN, np.uint8)
_ENTRY: Final = b'{"Host":%b,"Score":0},'
_GAP: Final = -3
"""The position of the score, counted from the end."""
_MAX_PADDING: Final = 1.5
"""With names of very different lengths the padding costs more than it gains."""


class Entries:
    """The entries of all nodes of a board, by row."""

    __slots__ = ("_padded", "_table")

    def __init__(self, names: Sequence[str]) -> None:
        hosts = [msgspec.json.encode(name) for name in names]
        longest, whole = max(map(len, hosts), default=0), sum(map(len, hosts))
        width = len(_ENTRY % b"") + longest
        self._padded = longest * len(hosts) != whole
        self._table: npt.NDArray[np.uint8] | None = None
        if longest * len(hosts) <= _MAX_PADDING * whole:
            text = b"".join((_ENTRY % host).rjust(width, b"\0") for host in hosts)
            self._table = np.frombuffer(text, np.uint8).reshape(len(hosts), width)

    def encode(self, rows: npt.NDArray[np.intp], scores: ScoreArray) -> bytes | None:
        """Return a HostPriorityList; None if one of the nodes is unknown."""
        if self._table is None or not rows.size or rows.min() < 0:
            return None
        found = self._table.take(rows, axis=0)
        found[:, _GAP] = _DIGITS[scores]
        text = found[found != 0] if self._padded else found
        # Without the comma of the last entry.
        return b"[%b]" % text.tobytes()[:-1].replace(_TEN, b"10")
