# SPDX-License-Identifier: Apache-2.0
"""From the names of a request to rows of the board, without a lookup per name.

A request of a large cluster lists thousands of names of a few different lengths. The names of
one length are a table of bytes; its lines are hashed together, and what is found is compared
with the whole text. Where all names of a list have one length, its JSON is such a table as it
is: every name is at a fixed distance from the one before. A list is either recognized
completely, or read and looked up name by name like any other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final, overload

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.intp]
_Bytes = npt.NDArray[np.uint8]
_Words = npt.NDArray[np.uint64]

_QUOTE, _COMMA, _BRACKET = b'",]'
_AROUND: Final = len('"",')
_LEAST: Final = 32
"""Shorter lists are looked up name by name in less time."""
_MAX_WIDTHS: Final = 12
"""So are lists with names of more different lengths."""
_WORD: Final = 8
_SLOTS_PER_NAME: Final = 16
_MULTIPLIERS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93)
_MIX: Final = np.random.default_rng(20261119).integers(1 << 63, size=32, dtype=np.uint64) | 1
"""What the words of a name are multiplied by."""
_MAX_WIDTH: Final = _WORD * _MIX.size
"""The longest name of a node has 253 characters."""


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
        if not self._by_width or not names_json.startswith(b'["') or names_json[-2:] != b'"]':
            return None
        rows = self._of_one_width(names_json)
        if rows is None:
            rows = self._of_any_width(names_json)
        return None if rows is None else KnownNames(self, rows)

    def _of_one_width(self, names_json: bytes) -> Rows | None:
        width = names_json.find(b'"', 2) - 2
        table = self._by_width.get(width)
        count, rest = divmod(len(names_json) - 1, width + _AROUND)
        if table is None or rest or count < _LEAST:
            return None
        text = np.frombuffer(names_json, np.uint8, offset=1).reshape(count, -1)
        return table.find(text[:, 1:-2]) if _is_list(text) else None

    def _of_any_width(self, names_json: bytes) -> Rows | None:
        text = np.frombuffer(names_json, np.uint8)
        commas = np.flatnonzero(text == _COMMA)
        begins = np.concatenate(([2], commas + 2))
        ends = np.append(commas - 1, len(text) - 2)
        if len(begins) < _LEAST or not _are_quoted(text, begins, ends):
            return None
        widths = ends - begins
        distinct = np.flatnonzero(np.bincount(widths)).tolist()
        if len(distinct) > _MAX_WIDTHS or not self._by_width.keys() >= set(distinct):
            return None
        rows = np.empty(len(begins), np.intp)
        for width in distinct:
            places = np.flatnonzero(widths == width)
            found = self._by_width[width].find(_cut(names_json, begins.take(places), width))
            if found is None:
                return None
            rows[places] = found
        return rows


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


def at(names: Sequence[str], places: Rows) -> Sequence[str]:
    """Return the names at these places."""
    if isinstance(names, KnownNames):
        return KnownNames(names.nodes, names.rows.take(places))
    return [names[place] for place in places.tolist()]


def parted(names: Sequence[str], unwanted: Set[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the other names, and the unwanted ones among them."""
    if isinstance(names, KnownNames):
        found = [row for name in unwanted if (row := names.nodes.get(name)) is not None]
        out = np.isin(names.rows, found)
        return at(names, np.flatnonzero(~out)), at(names, np.flatnonzero(out))
    return (
        [name for name in names if name not in unwanted],
        [name for name in names if name in unwanted],
    )


class _Table:
    """Names of one length."""

    def __init__(self, words: _Words, rows: Rows) -> None:
        self._words = words
        self._rows = rows
        self._keys = _keys(words)
        self._bits = (len(rows) * _SLOTS_PER_NAME).bit_length()
        self._slots = [np.zeros(1 << self._bits, np.intp) for _ in _MULTIPLIERS]
        places = np.arange(len(rows))
        for slots, multiplier in zip(self._slots, _MULTIPLIERS, strict=True):
            hashed = self._hashed(self._keys[places], multiplier)
            slots[hashed] = places
            # The last one of several in the same slot has it; the next table has the others.
            places = places[slots[hashed] != places]

    def find(self, names: _Bytes) -> Rows | None:
        """Return the rows of names, one a line; None if one is not known."""
        words = _in_words(names)
        keys = _keys(words)
        places = self._slots[0].take(self._hashed(keys, _MULTIPLIERS[0]))
        for slots, multiplier in zip(self._slots[1:], _MULTIPLIERS[1:], strict=True):
            missed = np.flatnonzero(self._keys.take(places) != keys)
            if not missed.size:
                break
            places[missed] = slots.take(self._hashed(keys[missed], multiplier))
        if not np.array_equal(self._words.take(places, axis=0), words):
            return None
        return self._rows.take(places)

    def _hashed(self, keys: _Words, multiplier: int) -> Rows:
        return ((keys * np.uint64(multiplier)) >> np.uint64(64 - self._bits)).astype(np.intp)


def _is_list(text: _Bytes) -> bool:
    """Return whether each line is a quoted name and a comma, the last one with a bracket.

    The opening bracket of the list is not in the text.
    """
    quoted = (text[:, 0] == _QUOTE).all() and (text[:, -2] == _QUOTE).all()
    return bool(quoted and (text[:-1, -1] == _COMMA).all() and text[-1, -1] == _BRACKET)


def _are_quoted(text: _Bytes, begins: Rows, ends: Rows) -> bool:
    """Return whether there is a quote before each beginning, and at each end."""
    if (ends < begins).any():
        return False
    return bool((text.take(begins - 1) == _QUOTE).all() and (text.take(ends) == _QUOTE).all())


def _cut(text: bytes, begins: Rows, width: int) -> _Bytes:
    """Return the pieces of a text that begin there, one a line."""
    pieces = np.ndarray((len(text) - width + 1,), f"V{width}", text, strides=(1,))
    return pieces[begins].view(np.uint8).reshape(-1, width)


def _by_width(index: Mapping[str, int]) -> Mapping[int, _Table]:
    lines: dict[int, list[tuple[bytes, int]]] = defaultdict(list)
    for name, row in index.items():
        # Anything else may be written in several ways.
        if (
            len(name) <= _MAX_WIDTH
            and name.isascii()
            and name.isprintable()
            and not set(name) & set('"\\<>&')
        ):
            lines[len(name)].append((name.encode(), row))
    found = {width: _table(width, each) for width, each in lines.items()}
    return {width: table for width, table in found.items() if table is not None}


def _table(width: int, lines: Sequence[tuple[bytes, int]]) -> _Table | None:
    text = np.frombuffer(b"".join(name for name, _ in lines), np.uint8).reshape(-1, width)
    rows = np.fromiter((row for _, row in lines), np.intp, len(lines))
    words = _in_words(text)
    unique = np.unique(_keys(words)).size == len(rows)
    return _Table(words, rows) if unique else None


def _in_words(text: _Bytes) -> _Words:
    """Return each line as numbers of eight bytes."""
    lines, width = text.shape
    padded = np.zeros((lines, -(-width // _WORD) * _WORD), np.uint8)
    padded[:, :width] = text
    return padded.view(np.uint64)


def _keys(words: _Words) -> _Words:
    """Return one number for each line."""
    found: _Words = words @ _MIX[: words.shape[1]]
    return found ^ (found >> np.uint64(32))
