# SPDX-License-Identifier: Apache-2.0
"""The fewest evictions that meet the goals, proven by a solver (HiGHS).

The problem is the one of the bounds: each pod moves at most once, to a node that is allowed;
afterwards no node is above its ceiling, unless it was before and no goal asks for it, nodes to
be emptied are empty, and pools are within their spread at a level that is free. What a real
plan keeps besides (budgets, requests, the order of moves) is left out. So no plan needs fewer
evictions than the optimum found here, and an unfinished search still proves its best bound.
All pods that may be moved have to be in the instance.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from bench.milp import Answer, Model, solve
from rebalancer.goals import PRECISION, AtMost, Empty, Goal, Spread
from rebalancer.planner.bounds import LEEWAY, excess, lower_bound, rows_of, source_needs
from rebalancer.planner.instance import TOLERANCE, Flags, Floats, Instance, Ints, movable


class Status(StrEnum):
    """How far the solver came."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    """No plan meets all goals."""
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True, eq=False)
class ExactResult:
    """What is known about the fewest evictions."""

    evictions: int | None
    """Of the best plan found; none while there is none."""
    bound: int
    """No plan needs fewer."""
    status: Status
    assignment: Ints | None
    """[P] row of the node where each pod ends; its own where it stays."""


def exact(
    instance: Instance,
    goals: Sequence[Goal],
    *,
    seconds: float,
    threads: int = 1,
    excluded: Collection[Goal] = (),
) -> ExactResult:
    """Return the fewest evictions that meet the goals, as far as the time allows."""
    wanted = [goal for goal in goals if goal not in frozenset(excluded)]
    known = lower_bound(instance, wanted).evictions
    may = instance.allowed & instance.takes & movable(instance)[:, None]
    may[np.arange(len(instance.pods)), instance.at] = False
    start: Ints | None = None
    near = may & _sources(instance, wanted)[instance.at][:, None]
    if near.sum() < may.sum():
        # A plan that moves only what stands on the nodes in question is found sooner, and if
        # it costs what every plan costs it is the optimum.
        first, spent_s = _solve(instance, wanted, near, known, seconds=seconds, threads=threads)
        if first.evictions == known:
            return first
        seconds = max(0.0, seconds - spent_s)
        start = first.assignment
    found, _ = _solve(instance, wanted, may, known, seconds=seconds, threads=threads, start=start)
    return found


def _solve(
    instance: Instance,
    goals: Sequence[Goal],
    may: Flags,
    known: int,
    *,
    seconds: float,
    threads: int,
    start: Ints | None = None,
) -> tuple[ExactResult, float]:
    pod, node = np.nonzero(may)
    model = Model(np.ones(len(pod)), whole=True)
    _each_pod_once(model, instance, goals, pod)
    _ceilings(model, instance, goals, pod, node)
    for goal in goals:
        if isinstance(goal, Spread):
            _together(model, instance, goal, pod, node)
    _known_needs(model, instance, goals, pod, known)
    _twins_in_order(model, instance, may, pod)
    begun = None if start is None else (start[pod] == node).astype(np.float64)
    answer = solve(model, seconds=seconds, threads=threads, start=begun)
    return _result(answer, instance, pod, node, known), answer.spent_s


def _sources(instance: Instance, goals: Sequence[Goal]) -> Flags:
    """[N] nodes that some goal asks to lose pods."""
    asked = source_needs(instance, goals).most > 0
    if any(isinstance(goal, Spread) for goal in goals):
        asked[:] = True
    return np.asarray(asked)


def _result(answer: Answer, instance: Instance, pod: Ints, node: Ints, known: int) -> ExactResult:
    if answer.infeasible:
        return ExactResult(None, known, Status.INFEASIBLE, None)
    bound = max(known, answer.bound)
    if answer.values is None:
        return ExactResult(None, bound, Status.UNFINISHED, None)
    chosen = answer.values[: len(pod)] > 0.5
    assignment = instance.at.copy()
    assignment[pod[chosen]] = node[chosen]
    evictions = int(chosen.sum())
    status = Status.OPTIMAL if evictions <= bound else Status.UNFINISHED
    return ExactResult(evictions, bound, status, assignment)


def _each_pod_once(model: Model, instance: Instance, goals: Sequence[Goal], pod: Ints) -> None:
    emptied = rows_of(instance, (goal.node for goal in goals if isinstance(goal, Empty)))
    least = np.isin(instance.at, emptied).astype(np.float64)
    columns = np.arange(len(pod))
    model.rows(len(instance.pods), pod, columns, np.ones(len(pod)), least, np.ones(len(least)))


def _ceilings(
    model: Model, instance: Instance, goals: Sequence[Goal], pod: Ints, node: Ints
) -> None:
    over = excess(instance, [goal for goal in goals if isinstance(goal, AtMost)])
    level = instance.percent
    highest = np.where(over > 0.0, level - over, np.maximum(level, instance.ceiling + TOLERANCE))
    for axis in range(level.shape[1]):
        rows, columns, values = _flow(instance, axis, pod, node)
        room = highest[:, axis] - level[:, axis]
        model.rows(len(instance.nodes), rows, columns, values, np.full(len(room), -np.inf), room)


def _flow(instance: Instance, axis: int, pod: Ints, node: Ints) -> tuple[Ints, Ints, Floats]:
    """Return row, column and value of what each move adds to and takes from levels."""
    load, capacity = instance.pod_load[pod, axis], instance.capacity[:, axis]
    source = instance.at[pod]
    columns = np.arange(len(pod))
    return (
        np.concatenate((node, source)),
        np.concatenate((columns, columns)),
        100.0 * np.concatenate((load / capacity[node], -load / capacity[source])),
    )


def _together(model: Model, instance: Instance, goal: Spread, pod: Ints, node: Ints) -> None:
    members = rows_of(instance, goal.nodes)
    if len(members) < max(2, len(goal.nodes)):
        return
    axis = goal.dimension.axis
    level = instance.percent[members, axis]
    rows, columns, values = _flow(instance, axis, pod, node)
    place = np.full(len(instance.nodes), -1)
    place[members] = np.arange(len(members))
    inside = place[rows] >= 0
    rows, columns, values = place[rows[inside]], columns[inside], values[inside]
    if goal.fill_low:
        lowest = model.variable(-np.inf, np.inf)
        extra = np.arange(len(members)), np.full(len(members), lowest), -np.ones(len(members))
        rows, columns, values = (
            np.concatenate(pair) for pair in zip((rows, columns, values), extra, strict=True)
        )
        least, most = -level - TOLERANCE, goal.points - level + LEEWAY
        model.rows(len(members), rows, columns, values, least, most)
    else:
        _below_the_mean(model, goal.points + PRECISION, level, (rows, columns, values))


def _below_the_mean(
    model: Model, points: float, level: Floats, flow: tuple[Ints, Ints, Floats]
) -> None:
    """No node may be more than so many points above the mean of the others."""
    count = len(level)
    mean = model.variable(-np.inf, np.inf)
    rows, columns, values = flow
    # The mean of all nodes, and each node's distance to it: a node that is d above the mean
    # of all is d · count / (count - 1) above the mean of the others.
    total = np.zeros(len(columns) + 1, dtype=np.int64)
    model.rows(
        1,
        total,
        np.append(columns, mean),
        np.append(values, -float(count)),
        np.array([-level.sum()]),
        np.array([-level.sum()]),
    )
    most = points * (count - 1) / count - level + TOLERANCE
    model.rows(
        count,
        np.concatenate((rows, np.arange(count))),
        np.concatenate((columns, np.full(count, mean))),
        np.concatenate((values, -np.ones(count))),
        np.full(count, -np.inf),
        most,
    )


def _known_needs(
    model: Model, instance: Instance, goals: Sequence[Goal], pod: Ints, known: int
) -> None:
    """Tell the solver what is proven already: it would need long to find it out."""
    needs = source_needs(instance, goals).most
    columns, ones = np.arange(len(pod)), np.ones(len(pod))
    endless = np.full(len(needs), np.inf)
    model.rows(len(needs), instance.at[pod], columns, ones, needs.astype(np.float64), endless)
    all_in_one = np.zeros(len(pod), dtype=np.int64)
    model.rows(1, all_in_one, columns, ones, np.array([float(known)]), np.array([np.inf]))


def _twins_in_order(model: Model, instance: Instance, may: Flags, pod: Ints) -> None:
    """Of pods that no goal can tell apart the first leaves first."""
    twins = _twins(instance, may)
    if not twins:
        return
    columns = np.arange(len(pod))
    for first, second in twins:
        mine, other = columns[pod == first], columns[pod == second]
        values = np.concatenate((np.ones(len(mine)), -np.ones(len(other))))
        row = np.zeros(len(values), dtype=np.int64)
        both = np.concatenate((mine, other))
        model.rows(1, row, both, values, np.array([0.0]), np.array([np.inf]))


def _twins(instance: Instance, may: Flags) -> list[tuple[int, int]]:
    seen: dict[tuple[int, bytes, bytes], int] = {}
    found = []
    for number in np.flatnonzero(may.any(axis=1)).tolist():
        face = (
            int(instance.at[number]),
            instance.pod_load[number].tobytes(),
            may[number].tobytes(),
        )
        if face in seen:
            found.append((seen[face], number))
        seen[face] = number
    return found
