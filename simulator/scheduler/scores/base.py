# SPDX-License-Identifier: Apache-2.0
"""A score plugin, evaluated for all nodes at once.

Scores are valid for the rows in `among`, the feasible nodes; other rows are meaningless. `None`
means that the plugin does not score this pod.
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
