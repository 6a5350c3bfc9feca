# SPDX-License-Identifier: Apache-2.0
"""The resources of the model: how many there are, and where they are read.

The last axis of every array of nodes or pods is the resource: CPU, memory, then those of
`prometheus.resources`. Everything else in the planner takes the number of resources from the
problem or from the arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from itertools import permutations
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from common.load import FurtherLoad, NodeLoad, PodLoad
from rebalancer.goals import Ceiling

if TYPE_CHECKING:
    from collections.abc import Callable

Amounts = tuple[float, ...]
Levels = npt.NDArray[Any]

amounts: Final[Callable[[Any], Amounts]] = attrgetter("cpu_milli", "mem_bytes")
"""What a load, or a sum of requests, is of CPU and memory."""


def pod_amounts(load: PodLoad) -> Amounts:
    """Return what a pod uses of each resource."""
    return (load.cpu_milli, load.mem_bytes, *load.further)


def rows_of_amounts(values: Sequence[Any], count: int) -> npt.NDArray[np.float64]:
    """[n, R] amounts as an array, also of none; R is the count of resources."""
    return np.array(values, dtype=np.float64).reshape(len(values), count)


class FurtherColumns(NamedTuple):
    """[N, F] further resources of nodes.

    A node of which one is not known, or that has none of it, counts as one with a ceiling of
    nothing: it takes no pod that uses any, and is not above its ceiling.
    """

    capacity: npt.NDArray[np.float64]
    now: npt.NDArray[np.float64]
    load: npt.NDArray[np.float64]
    ceiling: npt.NDArray[np.float64]


_UNKNOWN: Final = (0.0, 0.0, 0.0, 0.0)


def further_columns(
    loads: Sequence[NodeLoad], ceilings: Sequence[Ceiling], late: Sequence[bool], count: int
) -> FurtherColumns:
    """Return the further resources of nodes; of a node that is late none is known.

    One whose load is not known, or was read before there were any, has none of them.
    """
    unknown = [_UNKNOWN] * count
    found = [
        [_further(*each) for each in zip(load.further, ceiling.further, strict=True)]
        if len(load.further) == len(ceiling.further) == count and not waits
        else unknown
        for load, ceiling, waits in zip(loads, ceilings, late, strict=True)
    ]
    table = np.array(found, dtype=np.float64).reshape(len(loads), count, 4)
    capacity = table[:, :, 0]
    # What is not known has the size of what is: percentages of it must stay numbers.
    typical = np.maximum(capacity.max(axis=0, initial=0.0), 1.0)
    return FurtherColumns(
        np.where(capacity > 0.0, capacity, typical), table[:, :, 1], table[:, :, 2], table[:, :, 3]
    )


def _further(load: FurtherLoad, most: float) -> tuple[float, float, float, float]:
    if not load.known or load.used is None or load.offered is None:
        return _UNKNOWN
    return (load.offered, load.used, max(0.0, load.used - load.leaving), most)


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
