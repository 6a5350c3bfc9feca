# SPDX-License-Identifier: Apache-2.0
"""Bring nodes that are above their ceiling under it, and relieve those under pressure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from common.cluster.records import NodeName
from common.config import NodeRules
from common.config import Strategy as StrategyName
from common.load import NodeLoad
from rebalancer.goals import BALANCED, MARGIN, AtMost, Ceiling, Dimension, Goal, dimensions_of
from rebalancer.strategies import further, pressure
from rebalancer.strategies.base import ClusterView, Participation
from rebalancer.strategies.pools import percent

_SHOWN: Final = 3
_POOL_KEYS: Final = {Dimension.CPU: "cpu_threshold", Dimension.MEMORY: "memory_threshold"}


class ResourceOptimization:
    """States a ceiling for each node that is above it."""

    name: ClassVar[StrategyName] = StrategyName.RESOURCE_OPTIMIZATION
    for_load: ClassVar[bool] = True

    def goals(self, cluster: ClusterView, parts: Participation) -> Sequence[Goal]:
        found = (
            _goal(load, parts.ceilings[name], cluster)
            for name, load in sorted(cluster.load.nodes.items())
            if name not in parts.sources_refused
        )
        return [goal for goal in found if goal is not None]

    def notes(self, cluster: ClusterView, parts: Participation) -> Sequence[str]:
        """Name the nodes that are above their ceiling and do not take part, by reason."""
        noted = [*pressure.notes(cluster), *further.notes(cluster)]
        every = dimensions_of(cluster.config)
        by_reason: dict[str, list[NodeName]] = {}
        for name, refusals in sorted(parts.sources_refused.items()):
            load = cluster.load.nodes.get(name)
            if load is not None and load.known and above(load, parts.ceilings[name], every):
                by_reason.setdefault(refusals[0].message, []).append(name)
        return noted + [
            f"Above the ceiling, but not relieved: {_some(names)}, because {reason}."
            for reason, names in sorted(by_reason.items())
        ]


def _goal(load: NodeLoad, ceiling: Ceiling, cluster: ClusterView) -> AtMost | None:
    """Return what is wanted of a node; None if it is fine.

    While it is settling, its pressure and further resources are not judged yet.
    """
    settings, settling = cluster.config, load.name in cluster.settling
    broken = above(load, ceiling, BALANCED if settling else dimensions_of(settings))
    pressed = () if settling else pressure.under_pressure(load, settings)
    if pressed:
        ceiling = pressure.relieved(ceiling, load, pressed)
        broken = tuple(dict.fromkeys((*broken, *pressed)))
    return at_most(load, ceiling, broken, cluster) if broken else None


def _some(names: Sequence[NodeName]) -> str:
    """Return a few names, and how many more there are."""
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def _set_by(rules: NodeRules, dimension: Dimension) -> str:
    """Return the key that sets a threshold, and the pool that has it if one does."""
    if rules.pool is None:
        return dimension.key
    if dimension.label in rules.pool.resource_thresholds:
        return f"resourceThresholds of {rules.words}"
    own = _POOL_KEYS.get(dimension)
    return f"{dimension.key} of {rules.words}" if own and rules.sets(own) else dimension.key


def above(
    load: NodeLoad, ceiling: Ceiling, resources: Sequence[Dimension] = BALANCED
) -> tuple[Dimension, ...]:
    """Return the resources that are above the ceiling by more than the margin, the worst first."""
    if all(percent(load, d) <= ceiling.of(d) for d in resources):
        return ()  # nearly all nodes
    excess = {d: percent(load, d) - ceiling.of(d) for d in resources}
    return tuple(sorted((d for d in resources if excess[d] > MARGIN), key=lambda d: -excess[d]))


def at_most(
    load: NodeLoad, ceiling: Ceiling, broken: tuple[Dimension, ...], cluster: ClusterView
) -> AtMost:
    """Return the goal for a node that is above its ceiling in some resources, or under pressure."""
    settings, rules = cluster.config, cluster.rules.of_node(load.name)
    figure = settings.load.aggregation.ceilings
    over = "" if figure.is_last else f"{figure}, "
    # Both are named where both call for pods to leave.
    steps = {d: pressure.after_a_step(load, d) for d in pressure.under_pressure(load, settings)}
    pressed = [d for d, step in steps.items() if ceiling.of(d) <= step]
    used = " and ".join(
        f"{percent(load, d):.0f} % {d.label} "
        f"({over if d in BALANCED else ''}allowed {ceiling.of(d):g} %, {_set_by(rules, d)})"
        for d in broken
        if d not in pressed or ceiling.of(d) < steps[d]
    )
    waits = " and ".join(pressure.words(load, d, settings) for d in broken if d in pressed)
    found = (f"uses {used}" if used else "", f"has {waits}" if waits else "")
    return AtMost(
        strategy=ResourceOptimization.name,
        node=load.name,
        ceiling=ceiling,
        broken=broken,
        message=f"{load.name} {' and '.join(filter(None, found))}",
    )
