# SPDX-License-Identifier: Apache-2.0
"""The fewest evictions that bring pods within the skew of their constraints, whatever the plan.

Of each domain only its movable pods can leave. Constraints that count none of the same pods take
moves of their own, so theirs add up; of constraints that share pods, the one that takes most
counts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from common.cluster.records import PodUid
from rebalancer.goals import Distribute, Goal
from rebalancer.planner.domains import Domains
from rebalancer.planner.plan import Bound
from rebalancer.planner.problem import Problem
from rebalancer.strategies.evenness import fewest


class _Need(NamedTuple):
    moves: int
    pods: frozenset[PodUid]


def with_distributions(
    found: Bound, problem: Problem, domains: Domains, missed: Collection[Goal] = ()
) -> Bound:
    """Return the larger of a bound and what the constraints take, except the missed ones."""
    wanted = [goal for goal in problem.distributions if goal not in missed]
    needs = [_need(domains, goal) for goal in wanted]
    total = _together(needs)
    if total <= found.evictions:
        return found
    pods = "1 pod has" if total == 1 else f"{total} pods have"
    constraints = (
        "a topology spread constraint"
        if len(wanted) == 1
        else (f"{len(wanted)} topology spread constraints")
    )
    message = f"whatever domains they go to, at least {pods} to move for {constraints}"
    return Bound(evictions=total, proof="topology", message=message)


def _need(domains: Domains, goal: Distribute) -> _Need:
    topology = domains.of_goal[goal]
    pods = domains.pods_of(goal)
    ids = topology.ids[[m.row for m in pods]] if pods else np.zeros(0, dtype=np.int64)
    movable = np.bincount(ids[ids >= 0], minlength=topology.held.size)
    outside = int((ids < 0).sum())
    moves = fewest(topology.held, movable, topology.skew, short=topology.short, outside=outside)
    return _Need(moves or 0, frozenset(m.pod.uid for m in pods))


def _together(needs: Sequence[_Need]) -> int:
    """Add up the needs of groups that share pods, of each group the largest."""
    groups: list[_Need] = []
    for need in needs:
        near = [group for group in groups if group.pods & need.pods]
        groups = [group for group in groups if group not in near]
        pods = need.pods.union(*(group.pods for group in near))
        groups.append(_Need(max(need.moves, *(group.moves for group in near), 0), pods))
    return sum(group.moves for group in groups)
