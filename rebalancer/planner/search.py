# SPDX-License-Identifier: Apache-2.0
"""Which moves a plan is made of: attempts with different preferences, the best of them in order.

Attempts are compared until one needs no more evictions than the nodes have to give by
themselves, or the evaluations are used up. What cannot be put in order, or is not worth it, is
left out, and the search goes on without these pods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from rebalancer.goals import PRECISION, Goal, NodeGoal, Spread
from rebalancer.planner.cycle import in_turn
from rebalancer.planner.draft import Draft, DraftFactory
from rebalancer.planner.movable import Movable
from rebalancer.planner.ordering import Step, settle
from rebalancer.planner.pool_levels import Levels, guards
from rebalancer.planner.pool_spreads import whole_pools
from rebalancer.planner.problem import Problem
from rebalancer.planner.relief import Policy, Relief, Result, relieve_in_part
from rebalancer.planner.spread import Leveling
from rebalancer.planner.worth import Worth
from rebalancer.refusals import Reason, Refusal

POLICIES: Final = (
    Policy(gentle=True, tight=False),
    Policy(gentle=False, tight=True),
    Policy(gentle=False, tight=False),
    Policy(gentle=False, tight=True, hot_first=True),
)
ATTEMPTS: Final = 4
"""How many searches are made, each without the pods whose moves the last one left out."""
MANY: Final = 200
"""Moves of a plan that is large."""


@dataclass(slots=True)
class Chosen:
    """What the search came to: chains in their order, and what was left out."""

    chains: list[list[Step]]
    dropped: dict[Movable, Refusal] = field(default_factory=dict)

    @property
    def steps(self) -> list[Step]:
        return [step for chain in self.chains for step in chain]

    @property
    def targets(self) -> dict[Movable, int]:
        return {step.m: step.row for step in self.steps}


Improve = Callable[[Chosen], Chosen]
"""Returns a better plan if it finds one."""


@dataclass(slots=True)
class Marks:
    """What the search knows about its moves beside where they go."""

    leveled: set[Movable] = field(default_factory=set)
    """Pods that move to level a pool."""
    last_resort: set[Movable] = field(default_factory=set)
    """Pods that found a place only where constraints yield."""
    swaps: list[tuple[Movable, Movable]] = field(default_factory=list)
    """Moves that make sense only together."""

    @property
    def swapped(self) -> set[Movable]:
        return {m for pair in self.swaps for m in pair}


class Search:
    """Searches for the moves of one problem."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.drafts = DraftFactory(problem)
        self.evaluations = self.drafts.evaluations
        self.marks = Marks()
        self._last_made: tuple[Chosen, Draft] | None = None
        self._nothing_spare: dict[Movable, int] = {}
        """Moves of a large plan, of which none is spare."""

    def chosen(self, improve: Improve | None = None) -> Chosen:
        """Search with the lowest priorities that may be enough; raise them where they are not.

        Before they are raised, `improve` may find what the search has missed.
        """
        if not self._problem.goals:
            return Chosen([])
        chosen, priorities = self._attempted(), self._problem.priorities
        low = self._liftable(chosen)
        if low and improve is not None:
            chosen = improve(chosen)
            low = self._liftable(chosen)
        if not low:
            return chosen
        # If not even all pods together can meet a goal, no priority between does.
        priorities.lift(dict.fromkeys(low, inf))
        chosen = self._attempted()
        met = low.keys() - self.unmet(chosen)
        return self._lowest(chosen, {goal: low[goal] for goal in low if goal in met}, improve)

    def _liftable(self, chosen: Chosen) -> dict[NodeGoal, float]:
        """Return the goals that are not met, and that pods of a higher priority might meet."""
        priorities = self._problem.priorities
        low = priorities.state(self.unmet(chosen))
        return {goal: most for goal, most in low.items() if priorities.next_above(most) < inf}

    def _lowest(
        self, chosen: Chosen, low: dict[NodeGoal, float], improve: Improve | None
    ) -> Chosen:
        """Raise the priorities of goals that can be met, one by one, until they are."""
        priorities, wanted = self._problem.priorities, self.met(chosen)
        while low and min(low.values()) < inf and self.evaluations.plenty:
            low = {goal: priorities.next_above(most) for goal, most in low.items()}
            priorities.lift(low)
            found = self._attempted()
            if improve is not None and not wanted <= self.met(found):
                found = improve(found)
            if wanted <= self.met(found):
                return found
            short = [goal for goal in self.unmet(found) if goal in low]
            low = {goal: low[goal] for goal in short or low}
        if low:
            priorities.lift(dict.fromkeys(low, inf))
            chosen = self._attempted()
        return chosen

    def _attempted(self) -> Chosen:
        """Search until every move of the result can be ordered and is worth it."""
        dropped: dict[Movable, Refusal] = {}
        for _ in range(ATTEMPTS):
            chosen = self.ordered(self._without_spare(self._searched().draft))
            if not chosen.dropped:
                break
            dropped.update(chosen.dropped)
            self._problem.give_up(chosen.dropped)
        chosen.dropped = dropped
        return chosen

    def _searched(self) -> Result:
        best = Relief(self.drafts.draft(), POLICIES[0]).run()
        for policy in POLICIES[1:]:
            perfect = not (best.stuck or best.hot or best.lost or best.uneven or best.extra)
            # If no pod could be placed at all, other preferences do not help.
            if perfect or not best.draft.moves or not self.evaluations.plenty:
                break
            found = Relief(self.drafts.draft(), policy).run()
            best = min(best, found, key=lambda result: result.rank)
        relieve_in_part(best.draft, best.hot)
        leveling = Leveling(best.draft)
        leveled = leveling.run()
        self.marks = Marks(leveled, best.last_resort, [*best.exchanges, *leveling.swaps])
        return best

    def _without_spare(self, draft: Draft) -> dict[Movable, int]:
        """Return the moves of a search; in a large plan, what is spare is left out at once.

        Otherwise that comes later, and the rest is put in order twice, which takes long.
        """
        found = dict(draft.moves)
        large = self._problem.spreads and len(found) > MANY
        if large and all(draft.meets(goal) for goal in self._problem.goals):
            for m in self.spare(found):
                del found[m]
            self._nothing_spare = dict(found)
        return found

    def spare(self, moves: Mapping[Movable, int]) -> list[Movable]:
        """Return moves without which every goal is met and every level pool is level still."""
        if moves == self._nothing_spare:
            return []
        draft, problem = self.drafts.draft(), self._problem
        for m, row in moves.items():
            draft.put(m, row)
        level = [g for g in (*guards(problem), *whole_pools(problem)) if draft.meets(g)]
        wanted, levels = (*problem.spreads, *level), Levels(draft)
        swapped = self.marks.swapped
        found = []
        for m in sorted(moves, key=lambda m: m.cost, reverse=True):
            if self._may_stay(m) and m not in swapped and self._is_spare(m, levels, wanted):
                levels.take_out(m)
                found.append(m)
        return found

    def _may_stay(self, m: Movable) -> bool:
        """Tell whether no goal asks for just this pod to move."""
        return not m.has_to_leave and not self._problem.has_own_goal(m)

    def _is_spare(self, m: Movable, levels: Levels, wanted: Sequence[Spread]) -> bool:
        """Tell whether its node's own goal and these are met without a move."""
        problem, row, load = self._problem, levels.draft.moves[m], levels.draft.load
        back, left = load[m.row] + m.load, load[row] - m.load
        # A node's own goal is the quickest to judge.
        if problem.goal_of(m.row) is not None and not (back <= problem.enough[m.row]).all():
            return False
        capacity = problem.capacity
        after = {m.row: 100.0 * back / capacity[m.row], row: 100.0 * left / capacity[row]}
        return all(levels.gap_with(goal, after) <= goal.points + PRECISION for goal in wanted)

    def ordered(self, wanted: Mapping[Movable, int]) -> Chosen:
        """Put the moves in order; leave out chains that cannot be started or are not worth it."""
        moves = dict(wanted)
        dropped: dict[Movable, Refusal] = {}
        while True:
            piled_up = _siblings(self.marks.last_resort, moves)
            settled, left_out = settle(self.drafts.draft, moves, piled_up, self.marks.swaps)
            found = [in_turn(self._problem, chain) for chain in settled]
            blocked = Reason.NO_ORDER.refusal()
            dropped.update(dict.fromkeys(left_out, blocked))
            steps = {step.m: step.row for chain in found for step in chain}
            bad = Worth(self._problem, self.marks.leveled, self._evening(steps)).lacking(found)
            if not bad:
                return Chosen(found, dropped)
            dropped.update(bad)
            moves = {s.m: s.row for chain in found for s in chain if s.m not in bad}

    def _evening(self, moves: Mapping[Movable, int]) -> set[Movable]:
        """Return the moves without which pods would be spread worse over their domains."""
        if not self._problem.distributions:
            return set()
        draft = self.drafts.draft()
        for m, row in moves.items():
            draft.put(m, row)
        return {m for m in moves if draft.domains.evens(m) is not None}

    def made(self, chosen: Chosen) -> Draft:
        """Return a draft with these moves in it, which is not to be changed."""
        if self._last_made is None or self._last_made[0] is not chosen:
            self._last_made = chosen, self.fresh(chosen)
        return self._last_made[1]

    def fresh(self, chosen: Chosen) -> Draft:
        """Return another one, to be changed."""
        draft = self.drafts.draft()
        for step in chosen.steps:
            draft.put(step.m, step.row)
        return draft

    def met(self, chosen: Chosen) -> set[Goal]:
        """Return the goals that these moves meet."""
        draft = self.made(chosen)
        return {goal for goal in self._problem.goals if draft.meets(goal)}

    def unmet(self, chosen: Chosen) -> list[Goal]:
        """Return the goals that they do not meet."""
        draft = self.made(chosen)
        return [goal for goal in self._problem.goals if not draft.meets(goal)]

    def meets_all(self, chosen: Chosen) -> bool:
        """Tell whether they meet every goal."""
        draft = self.made(chosen)
        return all(draft.meets(goal) for goal in self._problem.goals)


def _siblings(pods: Collection[Movable], moves: Collection[Movable]) -> set[Movable]:
    """Return pods with those of the same workload: whichever comes last is piled up."""
    groups = {m.group for m in pods}
    return {m for m in moves if m.maintenance and m.group in groups}
