# SPDX-License-Identifier: Apache-2.0
"""Planning problems in numbers, written by hand, and the goals that belong to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from common.cluster.records import NodeName, PodUid
from common.config import Strategy
from rebalancer.goals import BALANCED, MARGIN, AtMost, Ceiling, Dimension, Empty, Goal, Spread
from rebalancer.planner.instance import Instance

Pair = tuple[float, float]


def instance_of(
    pods: Mapping[str, Sequence[Pair]],
    *,
    size: Mapping[str, float] | None = None,
    empty: Sequence[str] = (),
    fixed: Sequence[str] = (),
    closed: Sequence[str] = (),
    ceiling: Pair = (80.0, 80.0),
) -> Instance:
    """Return an instance in which a unit is a percent of a node of size 100."""
    names = sorted(pods)
    at = [row for row, name in enumerate(names) for _ in pods[name]]
    loads = np.array([pair for name in names for pair in pods[name]], dtype=float).reshape(-1, 2)
    load = np.zeros((len(names), 2))
    np.add.at(load, at, loads)
    allowed = np.array([[row != other for other in range(len(names))] for row in at], dtype=bool)
    return Instance(
        nodes=tuple(NodeName(name) for name in names),
        capacity=np.array([[(size or {}).get(name, 100.0)] * 2 for name in names]),
        load=load,
        ceiling=np.tile(ceiling, (len(names), 1)),
        gives=np.array([name not in fixed for name in names]),
        takes=np.array([name not in closed and name not in empty for name in names]),
        pods=tuple(PodUid(f"p{number}") for number in range(len(at))),
        at=np.array(at, dtype=np.int64),
        pod_load=loads,
        allowed=allowed.reshape(-1, len(names)),
        empty=np.array([name in empty for name in names]),
    )


def cpu(*loads: float) -> list[Pair]:
    return [(load, 0.0) for load in loads]


def ceiling_goals(instance: Instance) -> list[Goal]:
    """Return a goal for every node that is clearly above its ceiling and not to be emptied."""
    return [
        AtMost(
            strategy=Strategy.RESOURCE_OPTIMIZATION,
            node=name,
            ceiling=Ceiling(float(instance.ceiling[row, 0]), float(instance.ceiling[row, 1])),
            broken=tuple(
                dimension
                for axis, dimension in enumerate(BALANCED)
                if instance.percent[row, axis] > instance.ceiling[row, axis] + MARGIN
            ),
            message=f"{name} is above its ceiling",
        )
        for row, name in enumerate(instance.nodes)
        if (instance.percent[row] > instance.ceiling[row] + MARGIN).any()
        and not instance.empty[row]
    ]


def empty_goals(instance: Instance) -> list[Goal]:
    """Return a goal for every node that has to be emptied."""
    return [
        Empty(strategy=Strategy.NODE_MAINTENANCE, node=name, message=f"{name} has to be emptied")
        for row, name in enumerate(instance.nodes)
        if instance.empty[row]
    ]


def spread_goal(
    instance: Instance,
    points: float,
    dimension: Dimension = Dimension.CPU,
    *,
    fill_low: bool = True,
) -> Spread:
    """Return the goal that all nodes which take pods come together."""
    nodes = tuple(n for n, takes in zip(instance.nodes, instance.takes, strict=True) if takes)
    return Spread(
        strategy=Strategy.LOAD_BALANCING,
        pool="",
        dimension=dimension,
        points=points,
        nodes=nodes,
        fill_low=fill_low,
        message=f"the nodes differ by more than {points:g} points",
    )


def goals_of(instance: Instance) -> list[Goal]:
    """Return the goals of ceilings and of emptying."""
    return ceiling_goals(instance) + empty_goals(instance)
