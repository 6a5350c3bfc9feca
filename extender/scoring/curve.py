# SPDX-License-Identifier: Apache-2.0
"""The curve: from the predicted use of a node to a score of 0 to 10.

`use` is predicted use divided by threshold, of the resource that is closest to its threshold.
`requested` is the share of allocatable that will be requested, of the resource that is
requested most. Use decides; a node whose requests exceed its use loses a little, because its
pods may one day use what they requested. 0 means overloaded and nothing else does, so that
the worst of the good nodes still beats the best of the bad ones.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

Figures = npt.NDArray[np.float64]
ScoreArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

BEST: Final = 10
NEUTRAL: Final = 5
REQUEST_WEIGHT: Final = 0.2
"""Which share of the gap between requests and use counts against a node."""

_ROUNDING: Final = 1e-9
"""Floating-point errors in sums neither cost nor win a point."""

FULL: Final = 1.0 - _ROUNDING
"""From here on a node is overloaded."""


def strain(use: Figures, requested: Figures) -> Figures:
    """Return use divided by threshold, raised where requests exceed it."""
    gap = np.minimum(requested, 1.0)
    gap -= use
    np.maximum(gap, 0.0, out=gap)
    gap *= REQUEST_WEIGHT
    gap += use
    return gap


def scores(use: Figures, requested: Figures) -> ScoreArray:
    """Return the score of each node: 0 from the threshold on, else 1 to 10."""
    figures = strain(use, requested)
    figures *= -BEST
    figures += BEST - _ROUNDING
    np.ceil(figures, out=figures)
    np.clip(figures, 1, BEST, out=figures)
    figures[use >= FULL] = 0
    return figures.astype(np.int64)


def with_unknown(found: ScoreArray, known: Mask, middle: int | None = None) -> ScoreArray:
    """Return the scores, with `middle` for the unknown nodes, by default that of these nodes."""
    if known.all():
        return found
    return np.where(known, found, middle_of(found[known]) if middle is None else middle)


def middle_of(known: ScoreArray) -> int:
    """Return the score of a node of which only the others are known: their median."""
    return int(np.median(known)) if known.size else NEUTRAL


def likeliest(found: ScoreArray, uid: str) -> int:
    """Return the index of the best score; of several, one chosen by the pod's UID.

    kube-scheduler chooses among equals at random (`Randomizer` in
    pkg/scheduler/schedule_one.go). Always assuming the first would pile the assumed pods of a
    burst on one node, which would then lose score without a reason.
    """
    best = np.flatnonzero(found == found.max())
    return int(best[crc32(uid.encode()) % best.size])
