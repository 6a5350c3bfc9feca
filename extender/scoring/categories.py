# SPDX-License-Identifier: Apache-2.0
"""Columns of values that many nodes share, such as their zone, as small integers.

A column is immutable and has one entry more than there are nodes: the last one, of nodes that
are not in the cache, has the default. The codes of values that no node has any more are only
dropped when there are as many of them as nodes, so a column never outgrows its board.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

V = TypeVar("V", bound=Hashable)

Codes = npt.NDArray[np.intp]

DEFAULT: Final = 0
"""The code of the default value."""
_SPARE: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class Categories(Generic[V]):
    """The value of each node."""

    codes: Codes
    values: Sequence[V]
    """By code; the first one is the default."""
    _index: Mapping[V, int]

    @classmethod
    def blank(cls, nodes: int, default: V) -> Categories[V]:
        """Return the column of nodes that all have the default."""
        return cls(np.zeros(nodes + 1, np.intp), (default,), {default: DEFAULT})

    def taken(self, rows: Codes) -> Categories[V]:
        """Return the column of a board with these rows of the last one."""
        return Categories(self.codes[rows], self.values, self._index)

    def updated(self, rows: Sequence[int], values: Sequence[V]) -> Categories[V]:
        """Return the column with other values in these rows."""
        new = [value for value in dict.fromkeys(values) if value not in self._index]
        known = (*self.values, *new)
        index = {**self._index, **dict(zip(new, range(len(self.values), len(known)), strict=True))}
        codes = self.codes.copy()
        codes[list(rows)] = [index[value] for value in values]
        made = Categories(codes, known, index)
        return made if len(known) <= len(codes) + _SPARE else made._compact()

    def _compact(self) -> Categories[V]:
        used, codes = np.unique(np.append(self.codes, DEFAULT), return_inverse=True)
        values = tuple(self.values[code] for code in used.tolist())
        index = {value: code for code, value in enumerate(values)}
        return Categories(codes[:-1], values, index)
