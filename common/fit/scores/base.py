"""What a score is: one plugin of the scheduler's scoring, over all nodes at once.

A score is given for the rows in `among`, the nodes that can take the pod; what other rows
hold means nothing. `None` means that the plugin has no opinion on this pod.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from common.fit.index.arrays import Flags, Ints
from common.fit.question import Question

BEST: Final = 100


@dataclass(frozen=True, slots=True)
class Score:
    """A plugin's score, 0 to 100, and its weight among the others."""

    name: str
    weight: int
    rate: Callable[[Question, Flags], Ints | None]


def scaled(raw: Ints, among: Flags, *, reverse: bool = False) -> Ints:
    """Scale so that the highest becomes the best, or the worst (DefaultNormalizeScore)."""
    highest = int(raw[among].max(initial=0))
    if highest == 0:
        return np.full(raw.size, BEST if reverse else 0, dtype=np.int64)
    found = BEST * raw // highest
    return BEST - found if reverse else found
