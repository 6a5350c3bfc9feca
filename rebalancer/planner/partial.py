"""What can be done for a node whose goal is out of reach: lower it as far as it goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from rebalancer.planner.cover import sizes
from rebalancer.planner.draft import Draft
from rebalancer.planner.gain import worthwhile
from rebalancer.planner.movable import Movable

ASKED: Final = 4
"""Pods that are asked about for each that may go."""


def relieve_in_part(draft: Draft, rows: Sequence[int]) -> None:
    """Move single pods away from nodes above their ceiling while that is worth it.

    Never more of them than would suffice if the largest could go: many small ones that do
    not meet the goal either are not worth their evictions.
    """
    for row in rows:
        left = _fewest(draft, row)
        for m in _ranked(draft, row)[: ASKED * left]:
            target = _best(draft, m) if left and draft.effort.left > 0 else None
            if target is not None:
                draft.put(m, target)
                left -= 1


def _fewest(draft: Draft, row: int) -> int:
    problem = draft.problem
    pods = [m for m in problem.movables(row) if m not in draft.moves]
    loads = np.array([m.load for m in pods]).reshape(len(pods), 2)
    excess = np.minimum(draft.load[row] - problem.limit[row], loads.sum(axis=0))
    return next(sizes(loads, excess), 0)


def _ranked(draft: Draft, row: int) -> list[Movable]:
    """Return the pods that relieve a node most, the largest first."""
    problem = draft.problem
    capacity = problem.capacity[row]
    over = 100.0 * draft.load[row] / capacity - problem.ceiling[row]
    wanted = np.maximum(over, 0.0) / capacity
    share = 100.0 * problem.loads(row)[:, over > 0] / capacity[over > 0]
    gains = (share >= problem.demand.settings.min_gain).any(axis=1)
    movables = problem.movables(row)
    pods = draft.may_go(
        [movables[i] for i in np.flatnonzero(gains) if movables[i] not in draft.moves]
    )
    return sorted(pods, key=lambda m: (-float(m.load @ wanted), m.number))


def _best(draft: Draft, m: Movable) -> int | None:
    problem = draft.problem
    over = problem.percent(draft.load)[m.row] - problem.ceiling[m.row]
    axes = [axis for axis in (0, 1) if over[axis] > 0]
    if not axes:
        return None
    mask = draft.targets(m) & worthwhile(draft, m, axes, problem.demand.settings.min_gain)
    rows = np.flatnonzero(mask)
    if not rows.size:
        return None
    return int(rows[np.argmin(np.maximum(*draft.joined(m).T)[rows])])
