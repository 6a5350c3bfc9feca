# SPDX-License-Identifier: Apache-2.0
"""Which pods of a node have to go so that it comes under its ceiling.

Fewest first: a set covers when what leaves is at least the excess in every resource at once.
All sets of the smallest size are checked while there are not too many of them; of a node with
very many pods, only those made of the pods that relieve it most.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Final

import numpy as np

from rebalancer.planner.instance import Flags, Floats, Ints
from rebalancer.planner.resources import mixes

CELLS: Final = 40_000
"""Pods in all sets that are checked together."""


def sizes(loads: Floats, excess: Floats) -> Iterator[int]:
    """Return the sizes that may cover, the smallest first; none if all pods are too few."""
    least = _at_least(loads, excess)
    if least is not None:
        yield from range(max(least, 1), len(loads) + 1)


def covering(loads: Floats, excess: Floats, size: int) -> Ints:
    """[S, size] sets of that size which cover the excess, as indices of pods."""
    pool = _pool(loads, excess, size)
    chosen = pool[_combinations(len(pool), size)]
    gone = loads[chosen].sum(axis=1)
    covers: Flags = (gone >= excess).all(axis=1)
    return chosen[covers]


def _at_least(loads: Floats, excess: Floats) -> int | None:
    """Return how many of the largest are needed in the hardest resource."""
    if (loads.sum(axis=0) < excess).any():
        return None
    sums = np.cumsum(-np.sort(-loads, axis=0), axis=0)
    return int((sums < excess).sum(axis=0).max()) + 1 if (excess > 0).any() else 0


def _pool(loads: Floats, excess: Floats, size: int) -> Ints:
    """Return the pods among which sets are sought: all, or those that relieve most."""
    width = len(loads)
    while width > size and comb(width, size) * size > CELLS:
        width -= max(1, (width - size) // 8)
    if width == len(loads):
        return np.arange(width)
    wanted = np.where(excess > 0, excess, np.inf)
    shares = np.minimum(loads / wanted, 1.0)
    weights = mixes(loads.shape[1])
    ranked = [np.argsort(-(shares @ weight), kind="stable") for weight in weights]
    mixed = np.array(ranked).T.ravel()
    first = np.sort(np.unique(mixed, return_index=True)[1])[:width]
    return np.sort(mixed[first])


@lru_cache(maxsize=256)
def _combinations(width: int, size: int) -> Ints:
    return np.array(list(combinations(range(width), size)), dtype=np.int64)
