# SPDX-License-Identifier: Apache-2.0
"""The fewest evictions by trying every plan there is: slow, plain, and beyond doubt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import numpy as np

from rebalancer.goals import AtMost, Dimension, Empty, Goal, Relocate, Spread
from rebalancer.planner.instance import Floats, Instance

SLACK = 1e-9


def fewest_evictions(
    instance: Instance, goals: Sequence[Goal], *, ceilings: bool = False
) -> int | None:
    """Return how many evictions meet all goals; none if no plan does.

    With `ceilings`, no plan may leave a node above its ceiling that was below it, or higher
    than it was.
    """
    for count in range(len(instance.pods) + 1):
        for moves in _plans(instance, count):
            level = _after(instance, moves)
            if ceilings and not _kept(instance, level):
                continue
            left = {pod for pod, _ in moves}
            if all(_met(instance, goal, level, left) for goal in goals):
                return count
    return None


def _plans(instance: Instance, count: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Return all ways to move so many pods, each to a node where it is allowed."""
    ways = [_ways(instance, pod) for pod in range(len(instance.pods))]
    for pods in combinations(range(len(instance.pods)), count):
        for targets in product(*(ways[pod] for pod in pods)):
            yield tuple(zip(pods, targets, strict=True))


def _ways(instance: Instance, pod: int) -> list[int]:
    source = instance.at[pod]
    if not (instance.gives[source] or instance.empty[source]):
        return []
    return [int(n) for n in np.flatnonzero(instance.allowed[pod] & instance.takes) if n != source]


def _after(instance: Instance, moves: Sequence[tuple[int, int]]) -> Floats:
    load = instance.load.copy()
    for pod, target in moves:
        load[instance.at[pod]] -= instance.pod_load[pod]
        load[target] += instance.pod_load[pod]
    return np.asarray(100.0 * load / instance.capacity)


def _kept(instance: Instance, level: Floats) -> bool:
    return bool((level <= np.maximum(instance.ceiling, instance.percent) + SLACK).all())


def _met(instance: Instance, goal: Goal, level: Floats, left: set[int]) -> bool:
    if isinstance(goal, Empty):
        row = instance.nodes.index(goal.node)
        return all(pod in left for pod in np.flatnonzero(instance.at == row).tolist())
    if isinstance(goal, AtMost):
        highest = {
            Dimension.CPU: goal.ceiling.cpu_percent,
            Dimension.MEMORY: goal.ceiling.mem_percent,
        }
        found = level[instance.nodes.index(goal.node)]
        return all(found[_axis(d)] <= highest[d] + SLACK for d in goal.broken)
    if isinstance(goal, Relocate):
        return instance.pods.index(goal.pod) in left
    assert isinstance(goal, Spread), "an instance knows no constraints of pods"
    return _together(instance, goal, level)


def _together(instance: Instance, goal: Spread, level: Floats) -> bool:
    found = level[[instance.nodes.index(name) for name in goal.nodes], _axis(goal.dimension)]
    if len(found) < 2:
        return True
    highest = found.max()
    if goal.fill_low:
        return bool(highest - found.min() <= goal.points + SLACK)
    return bool(highest - (found.sum() - highest) / (len(found) - 1) <= goal.points + SLACK)


def _axis(dimension: Dimension) -> int:
    return dimension.axis
