# SPDX-License-Identifier: Apache-2.0
"""One label of all nodes, as numbers.

Topology domains and node selectors are questions about one label of many nodes. A column
numbers the label's values, so that such a question is one comparison of arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from common.cluster.records import NodeRecord
from common.cluster.selectors import Operator, Requirement
from common.fit.index.arrays import Flags, Ints, grown

ABSENT: Final = -1


class Column:
    """The values of one label: `ids[row]` is the number of the value, or ABSENT."""

    __slots__ = ("ids", "key", "values")

    def __init__(self, key: str, nodes: list[NodeRecord | None], capacity: int) -> None:
        self.key = key
        self.values: dict[str, int] = {}
        self.ids: Ints = np.full(capacity, ABSENT, dtype=np.int64)
        for row, node in enumerate(nodes):
            if node is not None:
                self.put(row, node)

    @property
    def size(self) -> int:
        """How many numbers have been given out; some may be of nodes long gone."""
        return len(self.values)

    def put(self, row: int, node: NodeRecord | None) -> None:
        value = node.labels.get(self.key) if node is not None else None
        self.ids[row] = ABSENT if value is None else self.values.setdefault(value, len(self.values))

    def grow(self, capacity: int) -> None:
        self.ids = grown(self.ids, capacity, ABSENT)

    def present(self) -> Flags:
        return np.not_equal(self.ids, ABSENT)

    def matching(self, requirement: Requirement) -> Flags:
        """Return the rows whose label fulfils the requirement."""
        if requirement.operator is Operator.IN:
            return self._among(requirement.values)
        if requirement.operator is Operator.NOT_IN:
            return ~self._among(requirement.values)
        verdicts = [requirement.matches({self.key: value}) for value in self.values]
        # The last one is for ABSENT, which as an index means the last.
        return self.pick(np.array([*verdicts, requirement.matches({})], dtype=np.bool_))

    def holding(self, rows: Ints) -> Flags:
        """Return which values these rows have, and that the absent have none of them."""
        found = np.zeros(self.size + 1, dtype=np.bool_)
        found[self.ids[rows]] = True
        found[ABSENT] = False
        return found

    def pick(self, by_value: Flags) -> Flags:
        """Spread flags of values, and one more for the absent, over the rows."""
        return by_value[self.ids]

    def _among(self, values: Iterable[str]) -> Flags:
        wanted = np.zeros(self.size + 1, dtype=np.bool_)
        wanted[[self.values[value] for value in values if value in self.values]] = True
        return self.pick(wanted)
