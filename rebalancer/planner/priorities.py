# SPDX-License-Identifier: Apache-2.0
"""Low priority first: which pods may leave a node, by their priority.

For every goal there is a priority p, the lowest for which the pods of priority p or lower that
can be placed meet the goal. Only these leave the node, and only these make room for them
elsewhere. Where a search fails with the lowest p for which the loads suffice, p is raised, and
the search is made again: what can be placed shows only then. The pods of a pool that is leveled
have one p in common.

With `priorityPolicy: FewestEvictions` every p is infinite.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Final

import numpy as np

from common.cluster.records import NodeName
from common.config import PriorityPolicy
from rebalancer.goals import PRECISION, AtMost, Empty, Goal, NodeGoal, Spread
from rebalancer.planner.instance import Floats
from rebalancer.planner.resources import rows_of_amounts

if TYPE_CHECKING:
    from rebalancer.planner.movable import Movable
    from rebalancer.planner.problem import Problem

SYSTEM: Final = 2_000_000_000
"""Pods of this priority are never moved (SystemCriticalPriority in pkg/apis/scheduling)."""

Key = str
"""A goal by what its p is kept for: a node, or a pool."""


class Priorities:
    """The priority p of every goal of one problem."""

    def __init__(
        self,
        problem: Problem,
        policy: PriorityPolicy,
        kept: Mapping[NodeName, float],
    ) -> None:
        self._problem = problem
        self.policy = policy
        self.low_first = policy is PriorityPolicy.LOW_FIRST
        self._kept = kept
        """Of nodes whose goals an earlier part of the plan has met."""
        self._most: dict[Key, float] = {}
        self._levels: list[int] | None = None

    def leaving(self, row: int) -> float:
        """Return the highest priority of pods that may leave a node."""
        if not self.low_first or self._problem.empty[row]:
            return inf
        found = [self._of(goal) for goal in self._goals_at(row)]
        return max(found) if found else self._kept.get(self._problem.nodes[row], inf)

    def everywhere(self, lifted: Collection[Goal] = ()) -> Floats:
        """[N] return the same for all nodes; infinite where a goal is lifted."""
        problem = self._problem
        if not self.low_first:
            return np.full(len(problem.nodes), inf)
        found, free = np.full(len(problem.nodes), -inf), frozenset(lifted)
        for goal in problem.spreads:
            rows = problem.rows(goal)
            most = inf if goal in free else self._of(goal)
            found[rows] = np.maximum(found[rows], most)
        own_goals: tuple[AtMost | Empty, ...] = (*problem.hot, *problem.emptied)
        for own in own_goals:
            row = problem.row_of[own.node]
            most = inf if problem.empty[row] or own in free else self._of(own)
            found[row] = max(found[row], most)
        for row in np.flatnonzero(found == -inf).tolist():
            found[row] = self._kept.get(problem.nodes[row], inf)
        return found

    def helping(self, row: int) -> float:
        """Return the highest priority of pods that may make room for those of a node."""
        goal = self._problem.goal_of(row) if self.low_first else None
        return inf if goal is None else self._of(goal)

    @property
    def hides_pods(self) -> bool:
        """Tell whether a pod that was judged may not leave its node, or help another."""
        if not self.low_first:
            return False
        most = min(self._most.values(), default=inf)
        return any(m.priority > most for m in self._problem.pods)

    def kept(self) -> dict[NodeName, float]:
        """Return the highest priority of pods that may leave, for nodes where there is one."""
        found = zip(self._problem.nodes, self.everywhere().tolist(), strict=True)
        return {name: most for name, most in found if most < inf}

    def state(self, goals: Iterable[Goal]) -> dict[NodeGoal, float]:
        """Return p of these goals; those that are about where pods run have none."""
        return {goal: self._of(goal) for goal in goals if isinstance(goal, NodeGoal)}

    def lift(self, most: Mapping[NodeGoal, float]) -> None:
        """Set p of some goals."""
        self._most.update({_key(goal): value for goal, value in most.items()})
        self._problem.start_over()

    def next_above(self, value: float) -> float:
        """Return the next higher priority that a pod of the cluster has; infinite if none."""
        if self._levels is None:
            pods = self._problem.snapshot.pods.values()
            self._levels = sorted({p.shape.priority for p in pods if p.shape.priority < SYSTEM})
        place = bisect_right(self._levels, value)
        return self._levels[place] if place < len(self._levels) else inf

    def _goals_at(self, row: int) -> list[NodeGoal]:
        own = self._problem.goal_of(row)
        found: list[NodeGoal] = [own] if own is not None else []
        return found + [goal for goal in self._problem.spreads if self._problem.inside(goal)[row]]

    def _of(self, goal: NodeGoal) -> float:
        if not self.low_first:
            return inf
        key = _key(goal)
        if key not in self._most:
            self._most[key] = self._first(goal)
        return self._most[key]

    def _first(self, goal: NodeGoal) -> float:
        """Return the lowest priority for which the loads of the pods are enough."""
        problem = self._problem
        if isinstance(goal, Spread):
            return self._for_pool(goal)
        row = problem.row_of[goal.node]
        pods = problem.judged(row)
        if isinstance(goal, Empty):
            return max((m.priority for m in pods), default=inf)
        return _lowest(pods, problem.load[row] - problem.enough[row])

    def _for_pool(self, goal: Spread) -> float:
        """Return the same for a pool: its lowest node is never above the mean of all."""
        problem, axis, rows = self._problem, goal.dimension.axis, self._problem.rows(goal)
        load, capacity = problem.load[rows, axis], problem.capacity[rows, axis]
        most = load.sum() / capacity.sum() + (goal.points + PRECISION) / 100.0
        found = []
        for row in rows[load > most * capacity].tolist():
            excess = np.full(len(problem.axes), -inf)
            excess[axis] = problem.load[row, axis] - most * problem.capacity[row, axis]
            found.append(_lowest(problem.judged(row), excess))
        # All priorities of a large cluster are slow to read.
        return max(found) if found else self.next_above(-inf)


def _key(goal: NodeGoal) -> Key:
    return f"pool {goal.pool}" if isinstance(goal, Spread) else f"node {goal.node}"


def _lowest(pods: Iterable[Movable], excess: Floats) -> float:
    ranked = sorted(pods, key=lambda m: m.priority)
    gone = np.cumsum(rows_of_amounts([m.load for m in ranked], excess.size), axis=0)
    enough = np.flatnonzero((gone >= excess).all(axis=1))
    return ranked[enough[0]].priority if enough.size else inf
