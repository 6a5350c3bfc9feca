# SPDX-License-Identifier: Apache-2.0
"""Pods are spread over the domains of their topology spread constraints, one move at a time.

For each constraint it is known how many pods have to move at least. A move is made only if it
brings that number down, summed over all goals that count the pod, and leaves no constraint
worse: so a single constraint is met with the fewest moves, and what cannot be met is approached.
Of several such moves the one that helps most is made, of equal ones that of a pod whose node has
to give anyway, then of the pod whose move costs least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from rebalancer.goals import AtMost, Distribute
from rebalancer.planner.domains import DomainCounts
from rebalancer.planner.draft import Draft
from rebalancer.planner.instance import Flags, Ints
from rebalancer.planner.movable import Cost, Movable
from rebalancer.planner.placing import Placing
from rebalancer.planner.resources import some
from rebalancer.strategies.topologies import Topology

ASKED: Final = 64
"""Pods that are asked about for one move."""
ALIKE: Final = 3
"""Pods of one workload and node that are asked about: they differ in what they use."""


class _Giver(NamedTuple):
    """A pod that could bring goals nearer; the smallest is asked about first."""

    misses: int
    """The moves that it saves, below zero."""
    spares: bool
    """Its node has no goal for which a pod has to leave."""
    cost: Cost
    number: int
    m: Movable
    gains: Ints
    """[N] the moves that it saves on each node."""


class Distribution:
    """Spreads pods in one draft."""

    def __init__(self, placing: Placing) -> None:
        self._placing = placing
        self._draft: Draft = placing.draft
        self._problem = placing.problem
        self._counts: DomainCounts = placing.draft.domains
        self._known: dict[tuple[Topology, ...], dict[tuple[int, ...], Ints]] = {}
        """Gains by constraints and by the domains that the pod leaves, since the last move."""

    def run(self) -> list[Distribute]:
        """Move pods until nothing helps any more; return the goals that are not met."""
        goals = sorted(self._problem.distributions, key=lambda goal: not goal.constraint.hard)
        for goal in goals:
            pods = [m for m in givers(self._draft, goal) if m not in self._draft.moves]
            while self._counts.missing(goal) and self._draft.evaluations.left > 0:
                moved = self._step(pods)
                if moved is None:
                    break
                pods.remove(moved)
        return [goal for goal in goals if self._counts.missing(goal)]

    def _step(self, pods: Iterable[Movable]) -> Movable | None:
        """Make the best move; return the pod, or None if no move helps."""
        self._known.clear()
        best: tuple[int, Movable, Flags] | None = None
        stuck: Counter[tuple[int, object]] = Counter()
        asked = 0
        for giver in sorted(self._helpful(pods), key=lambda giver: giver[:4]):
            if asked >= ASKED or (best is not None and giver.misses >= best[0]):
                break
            kind = (giver.m.row, giver.m.group or giver.number)
            if stuck[kind] >= ALIKE:
                continue
            asked += 1
            found = self._allowed(giver)
            if found is None:
                stuck[kind] += 1
            elif best is None or found[0] < best[0]:
                best = (found[0], giver.m, found[1])
        if best is None:
            return None
        self._placing.settle(best[1], best[2])
        return best[1]

    def _helpful(self, pods: Iterable[Movable]) -> Iterable[_Giver]:
        for m in pods:
            gains = self._gains(m)
            most = int(gains.max(initial=0))
            if most > 0:
                yield _Giver(-most, not self._has_to_give(m.row), m.cost, m.number, m, gains)

    def _has_to_give(self, row: int) -> bool:
        goal = self._problem.goal_of(row)
        return isinstance(goal, AtMost) and not self._draft.meets(goal)

    def _allowed(self, giver: _Giver) -> tuple[int, Flags] | None:
        """Return where a pod may go and helps most; None if it helps nowhere."""
        # Where one pod may go depends on where others have gone, so that is asked for certain.
        self._draft.exact = True
        allowed = self._draft.targets(giver.m) & (giver.gains > 0)
        self._draft.exact = False
        if not some(allowed):
            return None
        most = int(giver.gains[allowed].max())
        return -most, allowed & (giver.gains == most)

    def _gains(self, m: Movable) -> Ints:
        """[N] return by how many moves fewer all goals together are away with a pod there."""
        domains = self._counts.domains
        goals = tuple(domains.of_goal[goal] for goal in domains.goals_of(m))
        leaves = tuple(int(t.ids[m.row]) for t in goals) + tuple(
            int(flag) for t in goals for flag in domains.counts(t, m)
        )
        known = self._known.setdefault(goals, {})
        if leaves not in known:
            known[leaves] = sum(
                (self._counts.gains(topology, m) for topology in goals),
                np.zeros(len(self._problem.nodes), dtype=np.int64),
            )
        return known[leaves]


def givers(draft: Draft, goal: Distribute) -> list[Movable]:
    """Return the pods that may be moved for a goal, except where that was tried without success."""
    gave_up = draft.problem.gave_up
    return [m for m in draft.domains.domains.pods_of(goal) if not gave_up(m)]
