# SPDX-License-Identifier: Apache-2.0
"""A board plus what it cannot contain yet.

Between two boards a node gets further pods: those that were placed by an answer and not
observed yet, and those for which room is reserved. An overlay is a working copy of a board
with these demands added. The column of a node is always that of the board plus the sum of its
demands, never a running total: adding and subtracting would accumulate rounding errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from common.load import Load
from extender.scoring.board import (
    PER_CPU_MILLI,
    PER_MEM_BYTE,
    REQUESTED_CPU,
    REQUESTED_MEM,
    USE_CPU,
    USE_MEM,
    USE_PER_CPU_MILLI,
    USE_PER_MEM_BYTE,
    Board,
    Rows,
)
from extender.scoring.categories import Codes
from extender.scoring.coolest import Field, Size, shortlist, untied
from extender.scoring.curve import (
    FULL,
    NEUTRAL,
    Figures,
    Mask,
    ScoreArray,
    middle_of,
    scores,
    strain,
    with_unknown,
)


class Demand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a pod will use and what it requests."""

    cpu_milli: float = 0.0
    mem_bytes: float = 0.0
    requested_cpu_milli: float = 0.0
    requested_mem_bytes: float = 0.0
    newcomer: bool = False
    """Whether only its requests are known."""


class Tally(NamedTuple):
    """The sum of the demands of a node, newcomers with at least the floor."""

    cpu_milli: float
    mem_bytes: float
    requested_cpu_milli: float
    requested_mem_bytes: float


class Prediction(NamedTuple):
    """How full each node of a list would be."""

    rows: Rows
    use: Figures
    """Predicted use divided by threshold, of the dominant resource."""
    requested: Figures


class Shortlist(NamedTuple):
    """The nodes of a list that are worth scoring."""

    keep: Mask
    middle: int
    """The score that the whole list gives to its unknown nodes."""


class Overlay:
    """A board with demands on top."""

    def __init__(self, board: Board) -> None:
        self.board: Final = board
        self._table = board.table.copy()
        self._last: tuple[Sequence[str], Rows] = ((), board.rows(()))
        self._expected: tuple[Sequence[str], Rows] = self._last
        config = board.config
        self._floor = config.new_pod_floor / 100.0

    def put(self, name: str, demands: Iterable[Demand]) -> None:
        """Replace the demands on a node."""
        row = self.board.index.get(name)
        if row is None or not self.board.known[row]:
            return
        sums, base = self.tally(row, demands), self.board.table[:, row].tolist()
        per_cpu_milli, per_mem_byte = base[PER_CPU_MILLI], base[PER_MEM_BYTE]
        base[USE_CPU] += sums.cpu_milli * base[USE_PER_CPU_MILLI]
        base[USE_MEM] += sums.mem_bytes * base[USE_PER_MEM_BYTE]
        base[REQUESTED_CPU] += sums.requested_cpu_milli * per_cpu_milli
        base[REQUESTED_MEM] += sums.requested_mem_bytes * per_mem_byte
        self._table[:, row] = base

    def tally(self, row: int, demands: Iterable[Demand]) -> Tally:
        """Add up demands as they count on this node."""
        offered = self.board.views[row].node.allocatable
        least_cpu, least_mem = offered.cpu_milli * self._floor, offered.mem_bytes * self._floor
        cpu_milli = mem_bytes = requested_cpu = requested_mem = 0.0
        for demand in demands:
            cpu, mem = demand.cpu_milli, demand.mem_bytes
            cpu_milli += max(cpu, least_cpu) if demand.newcomer else cpu
            mem_bytes += max(mem, least_mem) if demand.newcomer else mem
            requested_cpu += demand.requested_cpu_milli
            requested_mem += demand.requested_mem_bytes
        return Tally(cpu_milli, mem_bytes, requested_cpu, requested_mem)

    def expect(self, names: Sequence[str]) -> None:
        """Look up the rows of a list that will be scored next.

        `filter` takes less time than `prioritize`, which follows with the same list: looking
        up the names in the former makes the longer of the two requests shorter.
        """
        if self._last[0] is not names:
            self._expected = names, self.board.rows(names)

    def rows(self, names: Sequence[str]) -> Rows:
        """Return the rows of a list; those of the last and of the expected one are remembered."""
        if self._expected[0] is names:
            return self._expected[1]
        if self._last[0] is not names:
            self._last = (names, self.board.rows(names))
        return self._last[1]

    def predict(self, names: Sequence[str], pod: Demand) -> Prediction:
        """Predict use and requests of each node with this pod on it."""
        rows = self.rows(names)
        # Of most nodes: all are computed in less time than eight figures of some are collected.
        most = 2 * len(rows) > self._table.shape[1]
        found = self._table if most else self._table.take(rows, axis=1)
        per_cpu_milli, per_mem_byte = found[PER_CPU_MILLI], found[PER_MEM_BYTE]
        use = found[USE_CPU] + found[USE_PER_CPU_MILLI] * pod.cpu_milli
        use_mem = found[USE_MEM] + found[USE_PER_MEM_BYTE] * pod.mem_bytes
        requested = found[REQUESTED_CPU] + per_cpu_milli * pod.requested_cpu_milli
        requested_mem = found[REQUESTED_MEM] + per_mem_byte * pod.requested_mem_bytes
        np.maximum(use, use_mem, out=use)
        np.maximum(requested, requested_mem, out=requested)
        if most:
            use, requested = use.take(rows), requested.take(rows)
        return Prediction(rows, use, requested)

    def scores(self, names: Sequence[str], pod: Demand, middle: int | None = None) -> ScoreArray:
        """Return the score of each node, in order; `middle` is that of unknown nodes."""
        predicted = self.predict(names, pod)
        found = scores(predicted.use, predicted.requested)
        return with_unknown(found, self.board.known.take(predicted.rows), middle)

    def shortlist(
        self,
        names: Sequence[str],
        pod: Demand,
        size: Size,
        *,
        siblings: Codes | None,
        nominated: str,
        turn: int,
    ) -> Shortlist:
        """Return which nodes of a list are worth scoring; `turn` decides between equal ones."""
        rows, use, requested = self.predict(names, pod)
        known = self.board.known.take(rows)
        nodes = Field(
            untied(strain(use, requested), rows, turn),
            self.board.zones.codes.take(rows),
            known,
            None if siblings is None else siblings.take(rows),
        )
        keep = shortlist(nodes, size)
        if nominated in self.board.index:
            keep |= rows == self.board.index[nominated]
        middle = NEUTRAL if known.all() else middle_of(scores(use, requested)[known])
        return Shortlist(keep, middle)

    def encode(self, names: Sequence[str], found: ScoreArray) -> bytes | None:
        """Return these scores as a HostPriorityList; None if one of the nodes is unknown."""
        return self.board.entries.encode(self.rows(names), found)

    def all_scores(self, pod: Demand) -> list[int]:
        """Return the score of every node of the board."""
        names = self.board.names
        return [NEUTRAL] * len(names) if self.board.resting else self.scores(names, pod).tolist()

    def free(self, name: str, demands: Iterable[Demand]) -> Load | None:
        """Return what can still be requested on a node beside these demands, if it exists."""
        row = self.board.index.get(name)
        if row is None:
            return None
        view, sums = self.board.views[row], self.tally(row, demands)
        offered, requested = view.node.allocatable, view.requested
        return Load(
            offered.cpu_milli - requested.cpu_milli - sums.requested_cpu_milli,
            offered.mem_bytes - requested.mem_bytes - sums.requested_mem_bytes,
        )

    def all_overloaded(self, names: Sequence[str], pod: Demand) -> bool:
        """Return whether the pod would overload each of these nodes."""
        predicted = self.predict(names, pod)
        known = self.board.known.take(predicted.rows)
        return bool((known & (predicted.use >= FULL)).all())

    def overloaded(self, names: Sequence[str], pod: Demand) -> set[str]:
        """Return the nodes that the pod would overload, if another known node has room."""
        predicted = self.predict(names, pod)
        known = self.board.known.take(predicted.rows)
        above = known & (predicted.use >= FULL)
        if not above.any() or not (known & ~above).any():
            return set()
        return {names[i] for i in above.nonzero()[0].tolist()}
