# SPDX-License-Identifier: Apache-2.0
"""Bring the nodes of a pool closer to each other.

For each pool and resource the highest and the lowest node may differ by `imbalanceThreshold`
points. Nodes that are stuck at an end are left out first: high ones without a pod that may
be moved, low ones where none may run. The rest can be leveled, or the planner explains why
not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import product
from typing import ClassVar, Final

from common.cluster.records import NodeName
from common.config import FillLowNodes
from common.config import Strategy as StrategyName
from rebalancer.goals import BALANCED, MARGIN, PRECISION, Dimension, Goal, Spread
from rebalancer.strategies.base import ClusterView, Participation
from rebalancer.strategies.mobility import STUCK
from rebalancer.strategies.pools import (
    Levels,
    fills_low,
    gap,
    most_loaded_first,
    outliers,
    percent,
)

NOTHING: Final[Levels] = {}
MOST_STUCK: Final = 16
"""Nodes of a pool without a movable pod that are reported, the highest first."""


class LoadBalancing:
    """States a spread for each pool and resource that is wider than allowed."""

    name: ClassVar[StrategyName] = StrategyName.LOAD_BALANCING
    for_load: ClassVar[bool] = True

    def goals(self, cluster: ClusterView, parts: Participation) -> Sequence[Goal]:
        stated = (_goal(cluster, parts, pool, d) for pool in sorted(parts.pools) for d in BALANCED)
        return [goal for goal in stated if goal is not None]

    def notes(self, cluster: ClusterView, parts: Participation) -> Sequence[str]:
        """Name the pools whose low nodes are not filled because of an autoscaler."""
        if cluster.config.fill_low_nodes is not FillLowNodes.AUTO:
            return ()
        return [
            f"Low nodes{_of(pool)} are not filled, because an autoscaler may remove them: {sign} "
            "(fillLowNodes)."
            for pool, sign in sorted(parts.autoscalers.items())
            if sign
        ]


def _goal(
    cluster: ClusterView, parts: Participation, pool: str, dimension: Dimension
) -> Spread | None:
    rules = parts.pool_rules[pool]
    if LoadBalancing.name not in rules.enabled_strategies:
        return None
    names = [name for name in parts.pools[pool] if name not in parts.spread_refused]
    points = rules.imbalance_threshold
    predicted = parts.predicted[dimension]
    measured = levels_of(cluster, names, dimension)
    levels = levels_of(cluster, names, dimension, predicted)
    if min(_width(measured), _width(levels)) <= points + PRECISION:
        return None
    fill_low = fills_low(cluster.config.fill_low_nodes, parts.autoscalers[pool])
    free = _unstuck(levels, points, parts, fill_low=fill_low)
    return spread(pool, dimension, points, free, predicted, fill_low=fill_low)


def levels_of(
    cluster: ClusterView,
    names: Iterable[NodeName],
    dimension: Dimension,
    predicted: Levels = NOTHING,
) -> Levels:
    """Return how much nodes use of a resource, or were predicted to use."""
    loads = cluster.load.nodes
    return {
        name: predicted[name] if name in predicted else percent(loads[name], dimension)
        for name in names
    }


def stuck_highs(cluster: ClusterView, parts: Participation) -> Iterator[tuple[Spread, NodeName]]:
    """Yield nodes that are too high in their pool and have no pod that may be moved.

    No goal names them, because none could be met. Each comes with the one that there would be.
    """
    if not parts.mobility.refused:
        return
    rest = {name for name, why in parts.spread_refused.items() if not STUCK.issuperset(why)}
    for pool, dimension in product(sorted(parts.pools), BALANCED):
        names = [name for name in parts.pools[pool] if name not in rest]
        levels = levels_of(cluster, names, dimension)
        points = parts.pool_rules[pool].imbalance_threshold
        fill_low = fills_low(cluster.config.fill_low_nodes, parts.autoscalers[pool])
        goal = spread(pool, dimension, points, levels, fill_low=fill_low)
        high = outliers(levels, points, fill_low=fill_low).high if goal is not None else ()
        for name in most_loaded_first({name: levels[name] for name in high})[:MOST_STUCK]:
            if goal is not None and not parts.mobility.gives(name):
                yield goal, name


def _width(levels: Levels) -> float:
    return max(levels.values(), default=0.0) - min(levels.values(), default=0.0)


def _unstuck(levels: Levels, points: float, parts: Participation, *, fill_low: bool) -> Levels:
    """Return the levels without the nodes that are stuck at an end.

    The low end goes first: a few questions settle all of it, and without a low node that
    nothing can fill most of the others are no longer too high.
    """
    while True:
        ends = outliers(levels, points, fill_low=fill_low)
        stuck = _stuck_low(ends.low, levels, parts) or _stuck_high(ends.high, parts)
        if not stuck:
            return levels
        levels = {name: level for name, level in levels.items() if name not in stuck}


def _stuck_low(
    low: Sequence[NodeName], levels: Levels, parts: Participation
) -> frozenset[NodeName]:
    return frozenset(low) - parts.mobility.takers(low, most_loaded_first(levels))


def _stuck_high(high: Sequence[NodeName], parts: Participation) -> frozenset[NodeName]:
    return frozenset(name for name in high if not parts.mobility.gives(name))


def spread(
    pool: str,
    dimension: Dimension,
    points: float,
    levels: Levels,
    predicted: Collection[NodeName] = (),
    *,
    fill_low: bool,
) -> Spread | None:
    """Return the goal for these nodes; none if they are close enough to each other.

    If one end is where our moves were predicted to bring it, the other may be off by the
    margin.
    """
    order = most_loaded_first(levels)
    one_end = len(order) > 1 and (order[0] in predicted) != (order[-1] in predicted)
    if gap(levels, fill_low=fill_low) <= points + (MARGIN if one_end else PRECISION):
        return None
    return Spread(
        strategy=LoadBalancing.name,
        pool=pool,
        dimension=dimension,
        points=points,
        nodes=tuple(sorted(levels)),
        fill_low=fill_low,
        message=_message(pool, dimension, points, levels, fill_low=fill_low),
    )


def _message(
    pool: str, dimension: Dimension, points: float, levels: Levels, *, fill_low: bool
) -> str:
    order = most_loaded_first(levels)
    high, low = order[0], order[-1]
    apart = f"{gap(levels, fill_low=fill_low):.0f} points"
    allowed = f"allowed {points:g}, imbalanceThreshold"
    top = f"{high} uses {levels[high]:.0f} % {dimension.label}"
    if fill_low:
        return f"{top} and {low} {levels[low]:.0f} %{_of(pool)}: {apart} apart ({allowed})"
    return f"{top}: {apart} above the mean of the others{_of(pool)} ({allowed})"


def _of(pool: str) -> str:
    return f" of pool {pool}" if pool else ""
