# SPDX-License-Identifier: Apache-2.0
"""Measurements of many pods, in columns.

A round of a large cluster names 150,000 pods. As objects they take longer to make, and to
free, than to read; as columns they are four arrays and one index. To everyone who asks for
one pod they are a mapping like any other. Columns never change once they are made.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final

import numpy as np
import numpy.typing as npt

from common.usage.source import Usage

Figures = npt.NDArray[np.float64]

_FIELDS: Final = 4


class UsageColumns(Mapping[str, Usage]):
    """Usage by name, one row each; of two entries with the same name the last one counts."""

    __slots__ = ("cpu_milli", "end_s", "mem_bytes", "rows", "window_s")

    def __init__(self, rows: dict[str, int], columns: Sequence[array[float]]) -> None:
        self.rows: Final = rows
        self.cpu_milli, self.mem_bytes, self.end_s, self.window_s = map(_frozen, columns)

    @classmethod
    def of(cls, measured: Mapping[str, Usage]) -> UsageColumns:
        """Return measurements as columns."""
        if isinstance(measured, UsageColumns):
            return measured
        made = UsageWriter()
        made.add_all(measured)
        return made.columns()

    def __getitem__(self, key: str) -> Usage:
        row = self.rows[key]
        columns = (self.cpu_milli, self.mem_bytes, self.end_s, self.window_s)
        return Usage(*(column.item(row) for column in columns))

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


class UsageWriter:
    """Collects entries, a piece at a time."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._next = count()
        self._columns = [array("d") for _ in range(_FIELDS)]

    def add(self, keys: Iterable[str], *columns: Sequence[float]) -> None:
        """Append entries: their names, then CPU, memory, end and window of each."""
        self._rows.update(zip(keys, self._next, strict=False))
        for column, values in zip(self._columns, columns, strict=True):
            column.extend(values)

    def add_all(self, measured: Mapping[str, Usage]) -> None:
        """Append measurements that were read one by one."""
        usages = measured.values()
        self.add(
            measured,
            [usage.cpu_milli for usage in usages],
            [usage.mem_bytes for usage in usages],
            [usage.end_s for usage in usages],
            [usage.window_s for usage in usages],
        )

    def columns(self) -> UsageColumns:
        """Return what was collected; nothing may be added afterwards."""
        return UsageColumns(self._rows, self._columns)


def _frozen(column: array[float]) -> Figures:
    found = np.frombuffer(column, np.float64) if column else np.empty(0)
    found.flags.writeable = False
    return found
