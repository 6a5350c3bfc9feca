"""A board plus what it cannot know yet.

Between an answer and the next board a node has been promised pods: those that we answered
and have not seen, and those for which room is held. An overlay is a working copy of a board
with these demands added. A node's column is always the board's plus the sum of its demands,
never a running total: adding and taking away again would leave dust behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from common.load import Load
from extender.scoring.board import (
    ASKED_CPU,
    ASKED_MEM,
    ONE_CPU,
    ONE_MEM,
    USE_CPU,
    USE_MEM,
    Board,
    Rows,
)
from extender.scoring.curve import FULL, NEUTRAL, Figures, Scores, scores, with_unknown


class Demand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a pod will use and what it asks for."""

    cpu_milli: float = 0.0
    mem_bytes: float = 0.0
    asked_cpu_milli: float = 0.0
    asked_mem_bytes: float = 0.0
    newcomer: bool = False
    """Only its own requests speak for it."""


class Tally(NamedTuple):
    """The sum of a node's demands, newcomers at what they count for."""

    cpu_milli: float
    mem_bytes: float
    asked_cpu_milli: float
    asked_mem_bytes: float


class Judged(NamedTuple):
    """What would become of each node of a list."""

    rows: Rows
    use: Figures
    """Predicted use over threshold, of the dominant resource."""
    requested: Figures


class Overlay:
    """A board with demands on top."""

    def __init__(self, board: Board) -> None:
        self.board: Final = board
        self._table = board.table.copy()
        self._last: tuple[Sequence[str], Rows] = ((), board.rows(()))
        settings = board.settings
        self._cpu_limit = settings.cpu_threshold / 100.0
        self._mem_limit = settings.mem_threshold / 100.0
        self._floor = settings.new_pod_floor / 100.0

    def put(self, name: str, demands: Iterable[Demand]) -> None:
        """Let exactly these demands lie on a node."""
        row = self.board.index.get(name)
        if row is None or not self.board.known[row]:
            return
        sums, base = self.tally(row, demands), self.board.table[:, row].tolist()
        one_cpu, one_mem = base[ONE_CPU], base[ONE_MEM]
        base[USE_CPU] += sums.cpu_milli * one_cpu / self._cpu_limit
        base[USE_MEM] += sums.mem_bytes * one_mem / self._mem_limit
        base[ASKED_CPU] += sums.asked_cpu_milli * one_cpu
        base[ASKED_MEM] += sums.asked_mem_bytes * one_mem
        self._table[:, row] = base

    def tally(self, row: int, demands: Iterable[Demand]) -> Tally:
        """Add demands up as they count on this node."""
        offered = self.board.views[row].node.allocatable
        least_cpu, least_mem = offered.cpu_milli * self._floor, offered.mem_bytes * self._floor
        cpu_milli = mem_bytes = asked_cpu = asked_mem = 0.0
        for demand in demands:
            cpu, mem = demand.cpu_milli, demand.mem_bytes
            cpu_milli += max(cpu, least_cpu) if demand.newcomer else cpu
            mem_bytes += max(mem, least_mem) if demand.newcomer else mem
            asked_cpu += demand.asked_cpu_milli
            asked_mem += demand.asked_mem_bytes
        return Tally(cpu_milli, mem_bytes, asked_cpu, asked_mem)

    def expect(self, names: Sequence[str]) -> None:
        """Find the rows of a list that will be judged next.

        A filter answer takes less time than the scores, which are asked for right after it
        and for the same list: looking the names up there takes it off the longer of the two.
        """
        self._rows(names)

    def _rows(self, names: Sequence[str]) -> Rows:
        if self._last[0] is not names:
            self._last = (names, self.board.rows(names))
        return self._last[1]

    def judge(self, names: Sequence[str], pod: Demand) -> Judged:
        """Predict what each node will use and be asked for with this pod on it."""
        rows = self._rows(names)
        found = self._table.take(rows, axis=1)
        one_cpu, one_mem = found[ONE_CPU], found[ONE_MEM]
        use = found[USE_CPU] + one_cpu * (pod.cpu_milli / self._cpu_limit)
        use_mem = found[USE_MEM] + one_mem * (pod.mem_bytes / self._mem_limit)
        requested = found[ASKED_CPU] + one_cpu * pod.asked_cpu_milli
        requested_mem = found[ASKED_MEM] + one_mem * pod.asked_mem_bytes
        np.maximum(use, use_mem, out=use)
        np.maximum(requested, requested_mem, out=requested)
        return Judged(rows, use, requested)

    def scores(self, names: Sequence[str], pod: Demand) -> Scores:
        """Return the score of each node, in order."""
        judged = self.judge(names, pod)
        found = scores(judged.use, judged.requested)
        return with_unknown(found, self.board.known.take(judged.rows))

    def written(self, names: Sequence[str], found: Scores) -> bytes | None:
        """Return the answer that tells these scores; none if one of the nodes is a stranger."""
        return self.board.entries.written(self._rows(names), found)

    def all_scores(self, pod: Demand) -> list[int]:
        """Return the score of every node of the board, as if all were asked about."""
        names = self.board.names
        return [NEUTRAL] * len(names) if self.board.resting else self.scores(names, pod).tolist()

    def free(self, name: str, demands: Iterable[Demand]) -> Load | None:
        """Return the requests that a node can still take beside these demands, if it exists."""
        row = self.board.index.get(name)
        if row is None:
            return None
        view, sums = self.board.views[row], self.tally(row, demands)
        offered, asked = view.node.allocatable, view.requested
        return Load(
            offered.cpu_milli - asked.cpu_milli - sums.asked_cpu_milli,
            offered.mem_bytes - asked.mem_bytes - sums.asked_mem_bytes,
        )

    def overloaded(self, names: Sequence[str], pod: Demand) -> set[str]:
        """Return the nodes that the pod would overload, if another known one has room."""
        judged = self.judge(names, pod)
        known = self.board.known.take(judged.rows)
        above = known & (judged.use >= FULL)
        if not above.any() or not (known & ~above).any():
            return set()
        return {names[i] for i in above.nonzero()[0].tolist()}
