"""Takes note of who asks, on the way to who decides.

Only `filter` counts: it is asked for every pod, also where one node is left to choose from.
How many nodes could have been shown is counted at most once a second and scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import numpy as np

from common.cluster.resources import Resources
from extender.asking import AskedPod, Filtered, Verdicts, Victims
from extender.guides import ALL_SHOWN_BELOW, Guides
from extender.scoring import Board
from extender.scoring.board import ASKED_CPU, ASKED_MEM, ONE_CPU, ONE_MEM

_ROUNDING: Final = 1e-9


class Guided:
    """Implements `Verdicts` by asking another, and tells `Guides` who asked."""

    def __init__(
        self, verdicts: Verdicts, guides: Guides, board: Callable[[], Board | None]
    ) -> None:
        self._verdicts = verdicts
        self._guides = guides
        self._board = board

    async def filter(self, pod: AskedPod, names: Sequence[str]) -> Filtered:
        scheduler = pod.record.shape.scheduler_name
        # A single node is a nominated one more often than a whole cluster.
        counts = len(names) > 1 and self._guides.wants_share(scheduler)
        could = self._could(pod.record.requests) if counts else None
        self._guides.called(scheduler, len(names), could)
        return await self._verdicts.filter(pod, names)

    def prioritize(self, pod: AskedPod, names: Sequence[str]) -> Sequence[int]:
        return self._verdicts.prioritize(pod, names)

    def preempt(self, pod: AskedPod, candidates: Mapping[str, Victims]) -> Collection[str]:
        return self._verdicts.preempt(pod, candidates)

    def _could(self, asked: Resources) -> int | None:
        board = self._board()
        if board is None:
            return None
        if len(board.names) < ALL_SHOWN_BELOW:
            return len(board.names)
        return could_take(board, asked)


def could_take(board: Board, asked: Resources) -> int:
    """Return how many nodes are open to pods and have room for these requests."""
    table = board.table[:, :-1]
    room = (table[ASKED_CPU] + asked.cpu_milli * table[ONE_CPU] <= 1.0 + _ROUNDING) & (
        table[ASKED_MEM] + asked.mem_bytes * table[ONE_MEM] <= 1.0 + _ROUNDING
    )
    return int(np.count_nonzero(room & board.opened[:-1]))
