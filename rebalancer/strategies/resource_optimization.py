"""Bring nodes that are above their ceiling under it."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import ClassVar

from common.cluster.records import NodeName
from common.config import Strategy as StrategyName
from common.load import NodeLoad
from rebalancer.goals import PRECISION, AtMost, Ceiling, Dimension, Goal
from rebalancer.strategies.base import Look, Participation
from rebalancer.strategies.pools import percent
from rebalancer.strategies.words import NAMES, some

_KEYS = {Dimension.CPU: "cpuThreshold", Dimension.MEMORY: "memoryThreshold"}


class ResourceOptimization:
    """States a ceiling for each node that is above it."""

    name: ClassVar[StrategyName] = StrategyName.RESOURCE_OPTIMIZATION
    for_load: ClassVar[bool] = True

    def goals(self, look: Look, parts: Participation) -> Sequence[Goal]:
        return [
            at_most(load, parts.ceilings[name], broken)
            for name, load in sorted(look.load.nodes.items())
            if name not in parts.sources_refused and (broken := _broken(load, parts))
        ]

    def notes(self, look: Look, parts: Participation) -> Sequence[str]:
        """Name the nodes that are above their ceiling and are left alone, by reason."""
        by_reason: dict[str, list[NodeName]] = {}
        for name, refusals in sorted(parts.sources_refused.items()):
            load = look.load.nodes.get(name)
            if load is not None and load.known and above(load, parts.ceilings[name]):
                by_reason.setdefault(refusals[0].words, []).append(name)
        return [
            f"Above the ceiling, but not relieved: {some(names)}, for {reason}."
            for reason, names in sorted(by_reason.items())
        ]


def _broken(load: NodeLoad, parts: Participation) -> tuple[Dimension, ...]:
    """Return the resources that are above the ceiling, and were not promised to be at it."""
    ceiling = parts.ceilings[load.name]
    return tuple(
        dimension
        for dimension in above(load, ceiling)
        if parts.promises[dimension].get(load.name, inf) > allowed(ceiling, dimension) + PRECISION
    )


def above(load: NodeLoad, ceiling: Ceiling) -> tuple[Dimension, ...]:
    """Return the resources that are above the ceiling, the one that is furthest above first."""
    if load.cpu_percent <= ceiling.cpu_percent and load.mem_percent <= ceiling.mem_percent:
        return ()  # nearly all nodes; what is settled is never more
    excess = {d: percent(load, d) - allowed(ceiling, d) for d in Dimension}
    return tuple(sorted((d for d in Dimension if excess[d] > PRECISION), key=lambda d: -excess[d]))


def allowed(ceiling: Ceiling, dimension: Dimension) -> float:
    """Return the percentage that a node may use."""
    return ceiling.cpu_percent if dimension is Dimension.CPU else ceiling.mem_percent


def at_most(load: NodeLoad, ceiling: Ceiling, broken: tuple[Dimension, ...]) -> AtMost:
    """Return the goal for a node that is above its ceiling in some resources."""
    used = " and ".join(
        f"{percent(load, d):.0f} % {NAMES[d]} (allowed {allowed(ceiling, d):g} %, {_KEYS[d]})"
        for d in broken
    )
    return AtMost(
        strategy=ResourceOptimization.name,
        node=load.name,
        ceiling=ceiling,
        broken=broken,
        words=f"{load.name} uses {used}",
    )
