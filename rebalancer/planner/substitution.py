# SPDX-License-Identifier: Apache-2.0
"""Which pods are evicted where several would do: the last step of a plan.

The search takes the pods that bring a node closest to its goal, and of equal ones those whose
move costs least. But a little more or less load does not matter where the goal is met either
way. So each move is given to another pod of its node that is preferred for eviction, by
priority and by whether it uses more than it requests, as long as no goal is missed that was
met, none is met more narrowly, and the number of evictions stays the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import numpy as np

from rebalancer.goals import MARGIN, PRECISION, AtMost, Distribute, Empty, Goal, Relocate, Spread
from rebalancer.planner.draft import Draft
from rebalancer.planner.instance import Floats
from rebalancer.planner.movable import Movable
from rebalancer.planner.pool_levels import guards
from rebalancer.planner.problem import TOLERANCE
from rebalancer.planner.resources import highest

CANDIDATES: Final = 8
"""Pods that are tried in place of one, the least costly first."""
TARGETS: Final = 3
"""Nodes that each of them is tried on: where the other one went, then the least loaded."""

Grade = tuple[int, float]
"""How well a goal is met: with distance, at all, or by how many points it is missed."""


def substitutes(draft: Draft, fixed: Collection[Movable]) -> dict[Movable, Movable]:
    """Change the draft; return for each pod that goes now the one that stays in its place."""
    found: dict[Movable, Movable] = {}
    own = draft.problem.has_own_goal
    free = (m for m in draft.moves if m not in fixed and not own(m))
    moves = [m for m in free if not m.has_to_leave]
    payers = [m for m in moves if _candidates(draft, m)]
    if not payers:
        return found
    pools = (*draft.problem.spreads, *_level(draft))
    for m in sorted(payers, key=lambda m: (m.turn, -m.number), reverse=True):
        # This comes last, and only with what the search has left of its budget.
        if not draft.evaluations.enough:
            break
        other = _replaced(draft, m, pools)
        if other is not None:
            found[other] = m
    return found


def _candidates(draft: Draft, m: Movable) -> list[Movable]:
    own = draft.problem.has_own_goal
    pods = [
        q
        for q in draft.problem.movables(m.row)
        if q.turn < m.turn and q not in draft.moves and not own(q)
    ]
    return sorted(pods, key=lambda q: (q.cost, abs(float(q.load[0] - m.load[0])), q.number))


def _replaced(draft: Draft, m: Movable, pools: Sequence[Spread]) -> Movable | None:
    """Let another pod go in place of this one, if one can."""
    own = draft.problem.goal_of(m.row)
    # Ceilings of other nodes are constraints, which every target keeps.
    goals: tuple[Goal, ...] = (*pools,) if own is None else (own, *pools)
    before, worst = _grades(goals, draft), _worst(draft)
    candidates = _candidates(draft, m)[:CANDIDATES]
    home = draft.take_out(m)
    for q in candidates:
        for row in _targets(draft, q, home):
            draft.put(q, row)
            # A node that is worse than any now would have the whole plan refused.
            if _worst(draft) <= worst + TOLERANCE and _no_worse(before, goals, draft):
                return q
            draft.take_out(q)
    draft.put(m, home)
    return None


def _targets(draft: Draft, q: Movable, home: int) -> list[int]:
    mask = draft.targets(q)
    rows = np.flatnonzero(mask)
    level = highest(draft.joined(q))[rows]
    ranked = [int(row) for row in rows[np.argsort(level, kind="stable")] if row != home]
    return [*([home] if mask[home] else []), *ranked][:TARGETS]


def _level(draft: Draft) -> list[Spread]:
    """Return the pools that are level with the plan, and have to stay so."""
    return [goal for goal in guards(draft.problem) if draft.meets(goal)]


def _grades(goals: Iterable[Goal], draft: Draft) -> list[Grade]:
    return [_grade(goal, draft) for goal in goals]


def _no_worse(before: list[Grade], goals: Sequence[Goal], draft: Draft) -> bool:
    return all(now >= then for now, then in zip(_grades(goals, draft), before, strict=True))


def _grade(goal: Goal, draft: Draft) -> Grade:
    """Return 2 for a goal that is met with some distance, 1 if at all, 0 with what is missing."""
    if isinstance(goal, Empty | Relocate | Distribute):
        return int(draft.meets(goal)), 0.0
    over, distance = _over(goal, draft)
    if over > PRECISION + TOLERANCE:
        return 0, -round(over, 6)
    return (2 if over <= -distance else 1), 0.0


def _over(goal: AtMost | Spread, draft: Draft) -> tuple[float, float]:
    """Return the points by which a goal is missed, and those that plans keep from it."""
    if isinstance(goal, Spread):
        return draft.problem.gap(goal, draft.load) - goal.points, 2 * MARGIN
    problem, row = draft.problem, draft.problem.row_of[goal.node]
    over = 100.0 * draft.load[row] / problem.capacity[row] - problem.ceiling[row]
    return float(over.max()), MARGIN


def _worst(draft: Draft) -> float:
    known: Floats = draft.percent()[draft.problem.gives | draft.problem.takes]
    return float(known.max(initial=0.0))
