# SPDX-License-Identifier: Apache-2.0
"""How full every node is: what it has, what its pods ask for, how many they are.

Only resources that some node has get a line of their own. A pod may ask for tens of thousands
that no one has heard of, and with a line for each, what one author writes into a pod would be
multiplied by the number of nodes. All of them are one line of which no node has any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from common.cache.snapshot import NodeView
from common.cluster.resources import CPU, EPHEMERAL, MEMORY, Resources
from common.cluster.shapes import PodShape
from common.fit.index.arrays import Flags, Ints, grown

_MAX: Final = 1 << 61
"""Where sums stop: beyond it a few more pods would overflow, and far below it all is full."""
_FIXED: Final = {CPU: 0, MEMORY: 1, EPHEMERAL: 2, "": 3}
NOWHERE: Final = _FIXED[""]
"""The line of everything that no node has: every node is short of it, whatever comes or goes."""
_ASKS: Final = (NOWHERE, 1)


class Occupancy:
    """Amounts by (resource, row); scalar resources get a line when a node first has them."""

    def __init__(self, capacity: int) -> None:
        self.allocatable: Ints = np.zeros((len(_FIXED), capacity), dtype=np.int64)
        self.requested: Ints = np.zeros((len(_FIXED), capacity), dtype=np.int64)
        self.scored: Ints = np.zeros((2, capacity), dtype=np.int64)
        """Requests as the scores count them: (cpu, memory) with a minimum per container."""
        self.pods: Ints = np.zeros(capacity, dtype=np.int64)
        self.max_pods: Ints = np.zeros(capacity, dtype=np.int64)
        self._lines: dict[str, int] = dict(_FIXED)

    def grow(self, capacity: int) -> None:
        self.allocatable = grown(self.allocatable, capacity)
        self.requested = grown(self.requested, capacity)
        self.scored = grown(self.scored, capacity)
        self.pods = grown(self.pods, capacity)
        self.max_pods = grown(self.max_pods, capacity)

    def put(self, row: int, view: NodeView) -> None:
        """Take in a node with all of its pods."""
        for name, amount in view.node.allocatable.scalars:
            if amount:
                self._add_line(name)
        _write(self.allocatable, row, self.lines(view.node.allocatable))
        _write(self.requested, row, self.lines(view.requested))
        self.allocatable[NOWHERE, row] = -_MAX
        self.scored[:, row] = min(view.scored_cpu_milli, _MAX), min(view.scored_mem_bytes, _MAX)
        self.pods[row] = len(view.pods)
        self.max_pods[row] = view.node.max_pods

    def drop(self, row: int) -> None:
        for array in (self.allocatable, self.requested, self.scored, self.pods, self.max_pods):
            array[..., row] = 0

    def charge(self, row: int, shape: PodShape, sign: int) -> None:
        """Add a pod to a node, or take it away."""
        for line, amount in self.lines(shape.requests):
            self.requested[line, row] += sign * amount
        self.scored[0, row] += sign * shape.scored_cpu_milli
        self.scored[1, row] += sign * shape.scored_mem_bytes
        self.pods[row] += sign

    def lines(self, amounts: Resources) -> list[tuple[int, int]]:
        """Return (line, amount) of everything that is not zero."""
        plain = (amounts.cpu_milli, amounts.mem_bytes, amounts.ephemeral_bytes)
        found = [(line, amount) for line, amount in enumerate(plain) if amount]
        known, scalars = self._lines, amounts.scalars
        found += [(known[name], amount) for name, amount in scalars if amount and name in known]
        return [*found, _ASKS] if any(self._nowhere(amounts)) else found

    def missing(self, amounts: Resources) -> list[str]:
        """Return the resources that are asked for and that no node has."""
        return [name for name, _ in self._nowhere(amounts)]

    def _nowhere(self, amounts: Resources) -> Iterator[tuple[str, int]]:
        return ((n, a) for n, a in amounts.scalars if a > 0 and n not in self._lines)

    def names(self) -> list[str]:
        """Return the resources in the order of their lines."""
        return list(self._lines)

    def roomy(self, asked: Resources) -> Flags:
        """Return the rows with room for one more pod that asks for so much."""
        found = self.pods < self.max_pods
        for line, amount in self.lines(asked):
            found &= self.allocatable[line] - self.requested[line] >= amount
        return found

    def _add_line(self, name: str) -> None:
        if name not in self._lines:
            self._lines[name] = len(self._lines)
            blank = np.zeros((1, self.pods.size), dtype=np.int64)
            self.allocatable = np.concatenate([self.allocatable, blank])
            self.requested = np.concatenate([self.requested, blank])


def _write(array: Ints, row: int, amounts: list[tuple[int, int]]) -> None:
    array[:, row] = 0
    for line, amount in amounts:
        array[line, row] = max(-_MAX, min(amount, _MAX))
