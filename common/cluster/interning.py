# SPDX-License-Identifier: Apache-2.0
"""One copy of what many objects share.

A hundred replicas carry the same labels, the same owner and the same template. Keeping
one copy of each is what lets 150,000 pods fit into a few hundred megabytes. Interned
values must never be changed.

The tables only hold what is alive for ever or was seen lately: once a table has doubled
since it was last swept, everything without another reference is dropped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

H = TypeVar("H", bound=Hashable)
K = TypeVar("K")
V = TypeVar("V")

EMPTY: Final[Mapping[str, str]] = MappingProxyType({})

_SWEEP_AT_LEAST = 4096


class Interner:
    """Tables of shared values; one per cluster state."""

    def __init__(self) -> None:
        self._values: dict[Hashable, Hashable] = {}
        self._maps: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        self._derived: dict[bytes, Hashable] = {}
        self._sweep_at = _SWEEP_AT_LEAST

    def __len__(self) -> int:
        return len(self._values) + len(self._maps) + len(self._derived)

    def value(self, value: H) -> H:
        """Return the one copy of an immutable value."""
        found = self._values.setdefault(value, value)
        if found is value:
            self._sweep_if_grown()
        return found  # type: ignore[return-value]  # equal values of one table are of one type

    def derived(self, source: bytes, derive: Callable[[], H]) -> H:
        """Return the one copy of what is derived from equal bytes; derive it only once."""
        found = self._derived.get(source)
        if found is None:
            found = self._derived[source] = self.value(derive())
        return found  # type: ignore[return-value]  # equal bytes are derived by one function

    def labels(self, labels: Mapping[str, str] | None) -> Mapping[str, str]:
        """Return the one copy of a map of labels, which must not be changed."""
        if not labels:
            return EMPTY
        key = tuple(sorted(labels.items()))
        found = self._maps.get(key)
        if found is None:
            found = {sys.intern(k): sys.intern(v) for k, v in key}
            self._maps[tuple(found.items())] = found
            self._sweep_if_grown()
        return found

    def _sweep_if_grown(self) -> None:
        if len(self) >= self._sweep_at:
            self._sweep()
            self._sweep_at = max(_SWEEP_AT_LEAST, 2 * len(self))

    def _sweep(self) -> None:
        self._derived.clear()
        self._values = _used(self._values, _ALONE_AS_BOTH)
        self._maps = _used(self._maps, _ALONE_AS_VALUE)


def _used(table: dict[K, V], alone: int) -> dict[K, V]:
    """Return the entries that have references outside the table."""
    references = _references(table)
    return {k: v for (k, v), count in zip(table.items(), references, strict=True) if count > alone}


def _references(table: Mapping[K, V]) -> list[int]:
    return [sys.getrefcount(value) for value in table.values()]


def _keyed_by_itself() -> dict[object, object]:
    value = object()
    return {value: value}


# How many references an entry shows that only its table holds: it differs between
# versions of Python, so it is measured.
_ALONE_AS_BOTH: Final = _references(_keyed_by_itself())[0]
_ALONE_AS_VALUE: Final = _references({"": dict[str, str]()})[0]
