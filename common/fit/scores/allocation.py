"""How free and how evenly used a node would be (plugins/noderesources).

Least allocated counts a minimum for containers that ask for nothing, balanced allocation
counts requests as they are and leaves pods without any alone.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from common.fit.index.arrays import Flags, Floats, Ints
from common.fit.question import Question
from common.fit.scores.base import BEST, Score

_LINES: Final = (0, 1)
"""cpu and memory."""


def least_allocated(ask: Question, _: Flags) -> Ints:
    """Prefer nodes with much to spare (least_allocated.go)."""
    room, shape = ask.index.occupancy, ask.pod.shape
    total = np.zeros(room.pods.size, dtype=np.int64)
    weights = np.zeros(room.pods.size, dtype=np.int64)
    for line, more in zip(_LINES, (shape.scored_cpu_milli, shape.scored_mem_bytes), strict=True):
        whole = room.allocatable[line]
        spare = np.maximum(whole - room.scored[line] - more, 0)
        # Divided as floats, bytes times 100 would lose digits, so whole numbers it is.
        total += np.where(whole > 0, spare * BEST // np.maximum(whole, 1), 0)
        weights += whole > 0
    return np.where(weights > 0, total // np.maximum(weights, 1), 0)


def balanced_allocation(ask: Question, _: Flags) -> Ints | None:
    """Prefer nodes whose cpu and memory the pod brings closer (balanced_allocation.go)."""
    room, asked = ask.index.occupancy, ask.pod.shape.requests
    more = (asked.cpu_milli, asked.mem_bytes)
    if not any(more):
        return None
    whole = [room.allocatable[line] for line in _LINES]
    before = [room.requested[line] for line in _LINES]
    after = [amount + extra for amount, extra in zip(before, more, strict=True)]
    gain = _balance(after, whole) - _balance(before, whole)
    return BEST // 2 + (BEST // 2 + gain) // 2


def _balance(used: list[Ints], whole: list[Ints]) -> Ints:
    both = (whole[0] > 0) & (whole[1] > 0)
    shares = [
        np.minimum(amount / np.maximum(size, 1), 1.0)
        for amount, size in zip(used, whole, strict=True)
    ]
    apart: Floats = np.where(both, np.abs((shares[0] - shares[1]) / 2), 0.0)
    return ((1 - apart) * BEST).astype(np.int64)


LEAST_ALLOCATED: Final = Score("NodeResourcesFit", 1, least_allocated)
BALANCED_ALLOCATION: Final = Score("NodeResourcesBalancedAllocation", 1, balanced_allocation)
