# SPDX-License-Identifier: Apache-2.0
"""The fewest evictions that can really be made: every plan in every order.

Unlike a mere assignment of pods to nodes, a plan has to hold its ceilings while it is under
way: two full nodes cannot swap.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

import numpy as np

from rebalancer.goals import AtMost, Dimension, Empty, Goal
from rebalancer.planner.instance import Floats, Instance

SLACK = 1e-6

Moves = Sequence[tuple[int, int]]


def fewest_orderly_evictions(instance: Instance, goals: Sequence[Goal]) -> int | None:
    """Return how many evictions meet ceilings and emptying; none if no plan does."""
    ways = [_ways(instance, pod) for pod in range(len(instance.pods))]
    for count in range(len(instance.pods) + 1):
        for pods in combinations(range(len(instance.pods)), count):
            for targets in product(*(ways[pod] for pod in pods)):
                moves = list(zip(pods, targets, strict=True))
                if _meets(instance, moves, goals) and _orderly(instance, moves):
                    return count
    return None


def _ways(instance: Instance, pod: int) -> list[int]:
    allowed = instance.allowed[pod] & instance.takes
    return [int(row) for row in np.flatnonzero(allowed) if row != instance.at[pod]]


def _meets(instance: Instance, moves: Moves, goals: Sequence[Goal]) -> bool:
    load = instance.load.copy()
    for move in moves:
        _make(instance, load, move)
    left = {pod for pod, _ in moves}
    return all(_met(instance, goal, 100.0 * load / instance.capacity, left) for goal in goals)


def _met(instance: Instance, goal: Goal, level: Floats, left: set[int]) -> bool:
    if isinstance(goal, Empty):
        row = instance.nodes.index(goal.node)
        return set(np.flatnonzero(instance.at == row).tolist()) <= left
    assert isinstance(goal, AtMost)
    found = level[instance.nodes.index(goal.node)]
    limits = {Dimension.CPU: goal.ceiling.cpu_percent, Dimension.MEMORY: goal.ceiling.mem_percent}
    axes = {Dimension.CPU: 0, Dimension.MEMORY: 1}
    return all(found[axes[d]] <= limits[d] + SLACK for d in goal.broken)


def _orderly(instance: Instance, moves: Moves) -> bool:
    """Tell whether some order keeps every target under its ceiling at every step."""
    whole = (1 << len(moves)) - 1
    reached, waiting = {0}, [0]
    while waiting:
        made = waiting.pop()
        for number in range(len(moves)):
            then = made | 1 << number
            if then not in reached and _holds(instance, moves, then, moves[number][1]):
                reached.add(then)
                waiting.append(then)
    return whole in reached


def _holds(instance: Instance, moves: Moves, made: int, row: int) -> bool:
    load = instance.load.copy()
    for number, move in enumerate(moves):
        if made >> number & 1:
            _make(instance, load, move)
    level = 100.0 * load[row] / instance.capacity[row]
    return not (level > instance.ceiling[row] + SLACK).any()


def _make(instance: Instance, load: Floats, move: tuple[int, int]) -> None:
    pod, row = move
    load[instance.at[pod]] -= instance.pod_load[pod]
    load[row] += instance.pod_load[pod]
