# SPDX-License-Identifier: Apache-2.0
"""From the names of a request to rows of the board, without a lookup per name.

A request of a large cluster lists thousands of names, and nearly all clusters name their nodes
by a number of fixed width. Then the JSON of a list is a table of bytes: every name is at a
fixed distance from the one before. A few of its columns tell all nodes apart; they are hashed
together, and what is found is compared with the whole text, byte by byte. A list is either
recognized completely, or read and looked up name by name like any other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, overload

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.intp]
_Bytes = npt.NDArray[np.uint8]
_Keys = npt.NDArray[np.uint64]

_QUOTE, _COMMA, _BRACKET = b'",]'
_AROUND: Final = len('"",')
_LEAST: Final = 32
"""Shorter lists are looked up name by name in less time."""
_COLUMNS: Final = 8
_SLOT_BITS: Final = 17
_MULTIPLIERS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)


class NameIndex(dict[str, int]):
    """The row of each node, by its name."""

    def __init__(self, names: Sequence[str]) -> None:
        # Copies, because they lie side by side in memory: names that lie where their nodes were
        # decoded, all over the heap of a large cluster, take twice as long to look up.
        super().__init__((name.encode().decode(), row) for row, name in enumerate(names))
        self.names: Final[Sequence[str]] = list(self)
        self._by_width = _by_width(self)

    def find(self, names_json: bytes) -> KnownNames | None:
        """Return the names of a JSON array; None if it has to be read."""
        width = names_json.find(b'"', 2) - 2
        table = self._by_width.get(width)
        if table is None or not names_json.startswith(b"["):
            return None
        count, rest = divmod(len(names_json) - 1, width + _AROUND)
        if rest or count < _LEAST:
            return None
        rows = table.find(np.frombuffer(names_json, np.uint8, offset=1).reshape(count, -1))
        return None if rows is None else KnownNames(self, rows)


class KnownNames(Sequence[str]):
    """Names of nodes that are all in an index, as their rows."""

    __slots__ = ("nodes", "rows")

    def __init__(self, index: NameIndex, rows: Rows) -> None:
        self.nodes: Final = index
        self.rows: Final = rows

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        if isinstance(place, slice):
            return KnownNames(self.nodes, self.rows[place])
        return self.nodes.names[int(self.rows[place])]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[str]:
        return map(self.nodes.names.__getitem__, self.rows.tolist())

    def __contains__(self, name: object) -> bool:
        row = self.nodes.get(name) if isinstance(name, str) else None
        return row is not None and bool((self.rows == row).any())


class _Table:
    """Names of one length that differ in a few columns."""

    def __init__(self, text: _Bytes, columns: Rows, rows: Rows) -> None:
        self._text = text
        self._columns = columns
        self._rows = rows
        self._keys = _packed(text, columns)
        self._slots = [np.zeros(1 << _SLOT_BITS, np.intp) for _ in _MULTIPLIERS]
        places = np.arange(len(rows))
        for slots, multiplier in zip(self._slots, _MULTIPLIERS, strict=True):
            slots[_hashed(self._keys[places], multiplier)] = places
            # The last one of several in the same slot has it; the next table has the others.
            missed = self._keys[slots[_hashed(self._keys[places], multiplier)]]
            places = places[missed != self._keys[places]]

    def find(self, text: _Bytes) -> Rows | None:
        """Return the rows of a list without its opening bracket; None if one is not known."""
        names = text[:, 1:-2]
        if not _is_list(text):
            return None
        keys = _packed(names, self._columns)
        places = self._slots[0].take(_hashed(keys, _MULTIPLIERS[0]))
        missed = np.flatnonzero(self._keys.take(places) != keys)
        if missed.size:
            places[missed] = self._slots[1].take(_hashed(keys[missed], _MULTIPLIERS[1]))
        if not np.array_equal(self._text.take(places, axis=0), names):
            return None
        return self._rows.take(places)


def _is_list(text: _Bytes) -> bool:
    """Return whether each line is a quoted name and a comma, the last one with a bracket."""
    quoted = (text[:, 0] == _QUOTE).all() and (text[:, -2] == _QUOTE).all()
    return bool(quoted and (text[:-1, -1] == _COMMA).all() and text[-1, -1] == _BRACKET)


def _by_width(index: Mapping[str, int]) -> Mapping[int, _Table]:
    lines: dict[int, list[tuple[bytes, int]]] = defaultdict(list)
    for name, row in index.items():
        # Anything else may be written in several ways.
        if name.isascii() and name.isprintable() and not set(name) & set('"\\<>&'):
            lines[len(name)].append((name.encode(), row))
    found = {width: _table(width, each) for width, each in lines.items() if len(each) >= _LEAST}
    return {width: table for width, table in found.items() if table is not None}


def _table(width: int, lines: Sequence[tuple[bytes, int]]) -> _Table | None:
    text = np.frombuffer(b"".join(name for name, _ in lines), np.uint8).reshape(-1, width)
    rows = np.fromiter((row for _, row in lines), np.intp, len(lines))
    distinct = [np.unique(text[:, column]).size for column in range(width)]
    columns = np.argsort(distinct)[::-1][:_COLUMNS].copy()
    unique = np.unique(_packed(text, columns)).size == len(rows)
    return _Table(text, columns, rows) if unique else None


def _packed(text: _Bytes, columns: Rows) -> _Keys:
    """Return these columns of each line as one number."""
    packed = np.zeros((len(text), _COLUMNS), np.uint8)
    packed[:, : len(columns)] = text[:, columns]
    return packed.view(np.uint64)[:, 0]


def _hashed(keys: _Keys, multiplier: int) -> Rows:
    return ((keys * np.uint64(multiplier)) >> np.uint64(64 - _SLOT_BITS)).astype(np.intp)
