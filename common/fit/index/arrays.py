# SPDX-License-Identifier: Apache-2.0
"""Arrays with a place for every node.

The last axis counts rows: a node keeps its row as long as it exists, and a freed row is
used again. Arrays are longer than the cluster, so that most new nodes cost nothing.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

A = TypeVar("A", bound=np.generic)


def grown(array: NDArray[A], capacity: int, fill: int = 0) -> NDArray[A]:
    """Return a longer copy; new places hold `fill`."""
    wider = np.full((*array.shape[:-1], capacity), fill, dtype=array.dtype)
    wider[..., : array.shape[-1]] = array
    return wider


def flags_at(capacity: int, rows: list[int]) -> Flags:
    """Return flags that are set in these rows only."""
    found = np.zeros(capacity, dtype=np.bool_)
    found[rows] = True
    return found
