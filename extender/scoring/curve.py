"""The curve: from what a node will use to a score of 0 to 10.

`d` is predicted use over threshold, of the resource that is nearest to its threshold. `q` is
the share of allocatable that will be requested, of the resource that is requested most. Use
decides; a node that is asked for more than it uses loses a little for it, for its pods may
one day use what they asked for. 0 means overloaded and nothing else does, so that the worst
of the good nodes still beats the best of the bad ones.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

Figures = npt.NDArray[np.float64]
Scores = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

BEST: Final = 10
NEUTRAL: Final = 5
SECOND_OPINION: Final = 0.2
"""How much of the gap between requests and use counts against a node."""

_ROUNDING: Final = 1e-9
"""Sums that floating point leaves a hair off neither cost nor win a point."""

FULL: Final = 1.0 - _ROUNDING
"""From here on a node counts as overloaded."""


def strain(use: Figures, requested: Figures) -> Figures:
    """Return `e`: use over threshold, with requests as a second opinion."""
    gap = np.minimum(requested, 1.0)
    gap -= use
    np.maximum(gap, 0.0, out=gap)
    gap *= SECOND_OPINION
    gap += use
    return gap


def scores(use: Figures, requested: Figures) -> Scores:
    """Return each node's score: 0 from the threshold on, else 1 to 10."""
    figures = strain(use, requested)
    figures *= -BEST
    figures += BEST - _ROUNDING
    np.ceil(figures, out=figures)
    np.clip(figures, 1, BEST, out=figures)
    figures[use >= FULL] = 0
    return figures.astype(np.int64)


def with_unknown(found: Scores, known: Mask) -> Scores:
    """Return the scores with the unknown nodes in the middle of the known ones."""
    if known.all():
        return found
    measured = found[known]
    middle = int(np.median(measured)) if measured.size else NEUTRAL
    return np.where(known, found, middle)


def likeliest(found: Scores, uid: str) -> int:
    """Return the place of the best score; of several, one that the pod's uid draws.

    kube-scheduler draws among equals too. Always guessing the first would pile a burst's
    guesses on one node, and the scheduler would then be steered away from it for nothing.
    """
    best = np.flatnonzero(found == found.max())
    return int(best[crc32(uid.encode()) % best.size])
