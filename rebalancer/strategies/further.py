# SPDX-License-Identifier: Apache-2.0
"""Resources besides CPU and memory: on which nodes nothing can be said about them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from common.load import NodeLoad
from rebalancer.goals import BALANCED, Dimension, dimensions_of
from rebalancer.strategies.base import ClusterView
from rebalancer.strategies.pools import further_load

_SHOWN: Final = 3


def is_missing(load: NodeLoad, dimension: Dimension) -> bool:
    """Tell whether a resource of a node is not known; not where the node has none of it."""
    found = further_load(load, dimension.axis)
    return found is None or (not found.known and found.offered != 0.0)


def notes(cluster: ClusterView) -> Iterator[str]:
    """Name the nodes of which a resource is not known."""
    known = [load for load in cluster.load.nodes.values() if load.known]
    for dimension in dimensions_of(cluster.config)[len(BALANCED) :]:
        missing = sorted(load.name for load in known if is_missing(load, dimension))
        if missing:
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            yield (
                f"How much {dimension.label} is used on {', '.join(missing[:_SHOWN])}{more} is not "
                "known, so no pod leaves because of it, and none that uses it is moved there."
            )
