# SPDX-License-Identifier: Apache-2.0
"""The resources of the model: the one place that says which they are and where they are read.

The last axis of every array of nodes or pods is the resource, in this order. Everything else in
the planner takes the number of resources from here or from the arrays, so another measured
resource is another line here, another `Dimension`, and a field of what is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from itertools import permutations
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from rebalancer.goals import Dimension

if TYPE_CHECKING:
    from collections.abc import Callable

Amounts = tuple[float, ...]
Levels = npt.NDArray[Any]

AXES: Final = {dimension: axis for axis, dimension in enumerate(Dimension)}
ALL_AXES: Final = tuple(AXES.values())
LABELS: Final = tuple(dimension.label for dimension in Dimension)

_AMOUNTS: Final = {Dimension.CPU: "cpu_milli", Dimension.MEMORY: "mem_bytes"}
_CEILINGS: Final = {Dimension.CPU: "cpu_percent", Dimension.MEMORY: "mem_percent"}

amounts: Final[Callable[[Any], Amounts]] = attrgetter(*(_AMOUNTS[each] for each in Dimension))
"""What a load, or a sum of requests, is of each resource."""
ceilings: Final[Callable[[Any], Amounts]] = attrgetter(*(_CEILINGS[each] for each in Dimension))
"""Up to how many percent of each resource a node may be used."""


def rows_of_amounts(values: Sequence[Any]) -> npt.NDArray[np.float64]:
    """[n, R] amounts as an array, also of none."""
    return np.array(values, dtype=np.float64).reshape(len(values), len(AXES))


def highest(levels: Levels) -> Levels:
    """[n] the highest of the resources; column by column, which is much faster than by rows."""
    found: Levels = reduce(np.maximum, levels.T)
    return found


def lowest(levels: Levels) -> Levels:
    """[n] the lowest of the resources."""
    found: Levels = reduce(np.minimum, levels.T)
    return found


def some(flags: npt.NDArray[np.bool_]) -> bool:
    """Tell whether something holds anywhere; on few nodes faster than `any()`."""
    return bool(np.count_nonzero(flags))


def every(flags: Levels) -> Levels:
    """[n] whether something holds for all resources."""
    found: Levels = reduce(np.logical_and, flags.T)
    return found


@lru_cache(maxsize=8)
def mixes(count: int) -> tuple[Amounts, ...]:
    """Return weights of resources: all alike, each alone, and two of them unevenly."""
    alike = (1.0 / count,) * count
    alone = tuple(tuple(float(axis == one) for axis in range(count)) for one in range(count))
    pairs = tuple(
        tuple(0.25 if axis == a else 0.75 if axis == b else 0.0 for axis in range(count))
        for a, b in permutations(range(count), 2)
    )
    return tuple(dict.fromkeys((alike, *reversed(alone), *pairs)))
