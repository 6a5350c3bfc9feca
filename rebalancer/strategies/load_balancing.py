"""Bring the nodes of a pool near to each other.

For each pool and resource the highest and the lowest node may differ by `imbalanceThreshold`
points. Nodes that are stuck at an end are taken out first: high ones without a pod that may
be moved, low ones where none may run. What is left can be brought together, or the planner
says why not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import product
from typing import ClassVar, Final

from common.cluster.records import NodeName
from common.config import FillLowNodes
from common.config import Strategy as StrategyName
from rebalancer.goals import MARGIN, PRECISION, Dimension, Goal, Spread
from rebalancer.strategies.base import Look, Participation
from rebalancer.strategies.pools import (
    Levels,
    downwards,
    far,
    fills_low,
    gap,
    percent,
)
from rebalancer.strategies.reach import STUCK
from rebalancer.strategies.words import NAMES

NOTHING: Final[Levels] = {}
MOST_STUCK: Final = 16
"""Nodes of a pool that are looked at, the highest ones, where none of their pods may move."""


class LoadBalancing:
    """States a spread for each pool and resource that is wider than allowed."""

    name: ClassVar[StrategyName] = StrategyName.LOAD_BALANCING
    for_load: ClassVar[bool] = True

    def goals(self, look: Look, parts: Participation) -> Sequence[Goal]:
        stated = (_goal(look, parts, pool, d) for pool in sorted(parts.pools) for d in Dimension)
        return [goal for goal in stated if goal is not None]

    def notes(self, look: Look, parts: Participation) -> Sequence[str]:
        """Name the pools whose low nodes are not filled although nobody has said so."""
        if look.config.fill_low_nodes is not FillLowNodes.AUTO:
            return ()
        return [
            f"Low nodes{_of(pool)} are not filled, for an autoscaler may remove them: {sign} "
            "(fillLowNodes)."
            for pool, sign in sorted(parts.autoscalers.items())
            if sign
        ]


def _goal(look: Look, parts: Participation, pool: str, dimension: Dimension) -> Spread | None:
    names = [name for name in parts.pools[pool] if name not in parts.spread_refused]
    points = look.config.imbalance_threshold
    promised = parts.promises[dimension]
    measured = levels_of(look, names, dimension)
    levels = levels_of(look, names, dimension, promised)
    if min(_width(measured), _width(levels)) <= points + PRECISION:
        return None
    fill_low = fills_low(look.config.fill_low_nodes, parts.autoscalers[pool])
    free = _unstuck(levels, points, parts, fill_low=fill_low)
    return spread(pool, dimension, points, free, promised, fill_low=fill_low)


def levels_of(
    look: Look, names: Iterable[NodeName], dimension: Dimension, promised: Levels = NOTHING
) -> Levels:
    """Return how much nodes use of a resource, or were promised to use."""
    loads = look.load.nodes
    return {
        name: promised[name] if name in promised else percent(loads[name], dimension)
        for name in names
    }


def stuck_highs(look: Look, parts: Participation) -> Iterator[tuple[Spread, NodeName]]:
    """Yield nodes that are too high in their pool and have no pod that may be moved.

    No goal names them, because none could be met. Each comes with the one that there would be.
    """
    if not parts.reach.refused:
        return
    rest = {name for name, why in parts.spread_refused.items() if not STUCK.issuperset(why)}
    for pool, dimension in product(sorted(parts.pools), Dimension):
        names = [name for name in parts.pools[pool] if name not in rest]
        levels, points = levels_of(look, names, dimension), look.config.imbalance_threshold
        fill_low = fills_low(look.config.fill_low_nodes, parts.autoscalers[pool])
        goal = spread(pool, dimension, points, levels, fill_low=fill_low)
        high = far(levels, points, fill_low=fill_low).high if goal is not None else ()
        for name in downwards({name: levels[name] for name in high})[:MOST_STUCK]:
            if goal is not None and not parts.reach.gives(name):
                yield goal, name


def _width(levels: Levels) -> float:
    return max(levels.values(), default=0.0) - min(levels.values(), default=0.0)


def _unstuck(levels: Levels, points: float, parts: Participation, *, fill_low: bool) -> Levels:
    """Return the levels without the nodes that cannot be moved away from an end.

    The low end goes first: a few questions settle all of it, and without a low node that
    nobody can fill most of the others are no longer too high.
    """
    while True:
        ends = far(levels, points, fill_low=fill_low)
        stuck = _stuck_low(ends.low, levels, parts) or _stuck_high(ends.high, parts)
        if not stuck:
            return levels
        levels = {name: level for name, level in levels.items() if name not in stuck}


def _stuck_low(
    low: Sequence[NodeName], levels: Levels, parts: Participation
) -> frozenset[NodeName]:
    return frozenset(low) - parts.reach.takers(low, downwards(levels))


def _stuck_high(high: Sequence[NodeName], parts: Participation) -> frozenset[NodeName]:
    return frozenset(name for name in high if not parts.reach.gives(name))


def spread(
    pool: str,
    dimension: Dimension,
    points: float,
    levels: Levels,
    promised: Collection[NodeName] = (),
    *,
    fill_low: bool,
) -> Spread | None:
    """Return the goal for these nodes; none if they are near enough to each other.

    If one end is where our moves were to bring it, the other may be off by the margin.
    """
    order = downwards(levels)
    one_end = len(order) > 1 and (order[0] in promised) != (order[-1] in promised)
    if gap(levels, fill_low=fill_low) <= points + (MARGIN if one_end else PRECISION):
        return None
    return Spread(
        strategy=LoadBalancing.name,
        pool=pool,
        dimension=dimension,
        points=points,
        nodes=tuple(sorted(levels)),
        fill_low=fill_low,
        words=_words(pool, dimension, points, levels, fill_low=fill_low),
    )


def _words(
    pool: str, dimension: Dimension, points: float, levels: Levels, *, fill_low: bool
) -> str:
    order = downwards(levels)
    high, low = order[0], order[-1]
    apart = f"{gap(levels, fill_low=fill_low):.0f} points"
    allowed = f"allowed {points:g}, imbalanceThreshold"
    top = f"{high} uses {levels[high]:.0f} % {NAMES[dimension]}"
    if fill_low:
        return f"{top} and {low} {levels[low]:.0f} %{_of(pool)}: {apart} apart ({allowed})"
    return f"{top}: {apart} above the mean of the others{_of(pool)} ({allowed})"


def _of(pool: str) -> str:
    return f" of pool {pool}" if pool else ""
