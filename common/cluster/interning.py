"""One copy of what many objects share.

A hundred replicas carry the same labels, the same owner and the same template. Keeping
one copy of each is what lets 150,000 pods fit into a few hundred megabytes. Interned
values are never changed by anybody.

The tables only hold what is alive for ever or was seen lately: once a table has doubled
since it was last swept, everything that nobody else refers to is dropped.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

H = TypeVar("H", bound=Hashable)

EMPTY: Final[Mapping[str, str]] = MappingProxyType({})

_SWEEP_AT_LEAST = 4096


class Interner:
    """Tables of shared values; one per cluster state."""

    def __init__(self) -> None:
        self._values: dict[Hashable, Hashable] = {}
        self._maps: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        self._sweep_at = _SWEEP_AT_LEAST

    def __len__(self) -> int:
        return len(self._values) + len(self._maps)

    def value(self, value: H) -> H:
        """Return the one copy of an immutable value."""
        found = self._values.setdefault(value, value)
        if found is value:
            self._sweep_if_grown()
        return found  # type: ignore[return-value]  # equal values of one table are of one type

    def labels(self, labels: Mapping[str, str] | None) -> Mapping[str, str]:
        """Return the one copy of a map of labels; nobody may change it."""
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
        # Held here as key and value, by the loop's variable and by getrefcount's argument.
        mine = 4
        self._values = {k: v for k, v in self._values.items() if sys.getrefcount(v) > mine + 1}
        self._maps = {k: m for k, m in self._maps.items() if sys.getrefcount(m) > 3}
