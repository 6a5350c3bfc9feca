# SPDX-License-Identifier: Apache-2.0
"""From a demand to a plan.

The objective is lexicographic: nodes that must be emptied, ceilings, spread, then the fewest
evictions, the least disruption, the best balance. What the search finds is planned on where
goals stay unmet, pruned, improved by the solver, and explained.

Nothing here depends on time, chance or the order of maps: equal demands give equal plans.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import msgspec

from common.cluster.records import NodeName
from common.config import PriorityPolicy
from rebalancer.goals import AtMost, Empty, Goal, Spread, title
from rebalancer.planner.assembly import Outcome, assemble
from rebalancer.planner.bounds import lower_bound
from rebalancer.planner.distribution_bound import with_distributions
from rebalancer.planner.draft import Draft
from rebalancer.planner.improvement import Improvement, Rank
from rebalancer.planner.lookahead import demand_after
from rebalancer.planner.movable import Movable
from rebalancer.planner.ordering import Step
from rebalancer.planner.plan import Plan
from rebalancer.planner.pool_levels import guards
from rebalancer.planner.pool_spreads import unleveled
from rebalancer.planner.postponed import demand_beside, in_one, parted, wanting
from rebalancer.planner.problem import Demand, Problem
from rebalancer.planner.relief import relieve_in_part
from rebalancer.planner.search import Chosen, Marks, Search
from rebalancer.planner.substitution import substitutes

DIGITS: Final = 6
"""Of what goals about pods are short of."""
ROUNDS: Final = 4
"""How many times a plan that leaves goals unmet is extended."""


def make_plan(demand: Demand) -> Plan:
    """Return the plan that meets as many goals as can be met with the fewest evictions.

    A node that is to be emptied whole is left alone if one of its pods finds no place. Goals that
    rules put off take nothing from the others.
    """
    now, later = parted(demand)
    if not (now and later):
        return _plan_for_all(demand)
    plan = _plan_for_all(wanting(demand, now))
    rest = _plan_for_all(demand_beside(demand, later, plan))
    return in_one(demand, plan, rest)


def _plan_for_all(demand: Demand) -> Plan:
    plan, assessment = _Planning(demand).plan(), demand.assessment
    missed = {unmet.goal: unmet for unmet in plan.unmet}
    halves = [goal for goal in assessment.goals if _is_half_emptied(goal, missed)]
    if not halves:
        return plan
    nodes = {goal.node for goal in halves if isinstance(goal, Empty)}
    rest = msgspec.structs.replace(
        assessment,
        goals=tuple(goal for goal in assessment.goals if goal not in halves),
        kept_empty=tuple(name for name in assessment.kept_empty if name not in nodes),
    )
    found = _plan_for_all(replace(demand, assessment=rest))
    unmet = (*found.unmet, *(missed[title(goal)] for goal in halves))
    goals = (*found.goals, *(title(goal) for goal in halves))
    return msgspec.structs.replace(found, unmet=unmet, goals=goals)


def _is_half_emptied(goal: Goal, missed: Collection[str]) -> bool:
    return isinstance(goal, Empty) and goal.ceiling is not None and title(goal) in missed


class _Planning:
    """Makes one plan."""

    def __init__(
        self,
        demand: Demand,
        policy: PriorityPolicy | None = None,
        kept: Mapping[NodeName, float] = MappingProxyType({}),
    ) -> None:
        self._demand = demand
        self._policy = policy
        self._problem = Problem(demand, policy, kept)
        self._search = Search(self._problem)
        self._evaluations = self._search.evaluations

    def plan(self) -> Plan:
        """Search, order, limit and explain."""
        found = self._prolonged(self._search.chosen(self._improved))
        chosen = self._fair(self._improved(self._pruned(found)))
        outcome = Outcome(
            chains=chosen.chains,
            draft=self._search.made(chosen),
            dropped=chosen.dropped,
            leveled=self._search.marks.leveled,
            last_resort=self._search.marks.last_resort,
            fewest_evictions=self._fewest(chosen),
        )
        return assemble(self._problem, outcome)

    def _fewest(self, chosen: Chosen) -> int | None:
        """Return what the same goals take if priorities do not matter."""
        found, problem = len(chosen.steps), self._problem
        if not problem.priorities.hides_pods:
            return found
        if not self._evaluations.plenty:
            return None
        other = _Planning(
            replace(
                self._demand,
                effort=replace(self._demand.effort, evaluations=self._evaluations.left),
            ),
            PriorityPolicy.FEWEST_EVICTIONS,
        )
        fewest = other._pruned(other._prolonged(other._search.chosen()))
        self._evaluations.spend(other._evaluations.spent)
        as_good = self._search.met(chosen) <= other._search.met(fewest)
        return min(found, len(fewest.steps)) if as_good else found

    def _prolonged(self, chosen: Chosen) -> Chosen:
        """Plan on from the result until the next cycle would add nothing."""
        seen = [chosen]
        for _ in range(ROUNDS):
            if not chosen.chains or not self._evaluations.enough:
                break
            if self._search.meets_all(chosen) and not self._unlevels(chosen):
                break
            names = self._problem.nodes
            goes = {step.m.pod.uid: names[step.row] for step in chosen.steps}
            later = _Planning(
                demand_after(self._demand, goes, self._evaluations.left),
                self._policy,
                self._problem.priorities.kept(),
            )
            longer = self._joined(chosen, later, later._search.chosen())
            self._evaluations.spend(later._evaluations.spent)
            if longer is None:
                break
            circle = [c for c in seen if c.targets == longer.targets]
            if circle:
                # What one goal wants another undoes: none of these plans is final, so the
                # one with the fewest evictions is the best of them.
                return min(seen[seen.index(circle[0]) :], key=lambda c: len(c.steps))
            seen.append(longer)
            chosen = longer
        return chosen

    def _pruned(self, chosen: Chosen) -> Chosen:
        """Leave out moves for one goal that those for another have made unnecessary."""
        # For ceilings each node gives the fewest from the start, and rooms are made on purpose.
        leveled = self._problem.spreads and self._search.meets_all(chosen)
        spare = self._search.spare({s.m: s.row for s in chosen.steps}) if leveled else []
        while spare:
            moves = {step.m: step.row for step in chosen.steps if step.m not in spare}
            found = self._search.ordered(moves)
            if not found.dropped and self._search.meets_all(found):
                found.dropped = chosen.dropped
                return found
            # Another move needs the room, or the pod, of one that would stay.
            spare = spare[: len(spare) // 2]
        return chosen

    def _as_stated(self, chosen: Chosen) -> Chosen:
        """Send pods of nodes that are emptied whole where their goals say, if that is better."""
        problem, draft = self._problem, self._search.made(chosen)
        if all(draft.meets(goal) for goal in problem.emptied):
            return chosen
        places = dict(place for goal in problem.emptied for place in goal.places)
        emptied = [m for g in problem.emptied for m in problem.judged(problem.row_of[g.node])]
        moves = {s.m: s.row for s in chosen.steps if s.m.pod.uid not in places}
        moves |= {m: problem.row_of[places[m.pod.uid]] for m in emptied if m.pod.uid in places}
        before, given_up = self._search.marks, problem.take_back()
        found = self._as_found(moves) if places else None
        if found is None or self._rank(found) >= self._rank(chosen):
            self._search.marks = before
            problem.give_up(given_up)
            return chosen
        return found

    def _improved(self, chosen: Chosen) -> Chosen:
        """Let the solver look for a better plan where this one may not be the best."""
        chosen = self._as_stated(chosen)
        solve = self._demand.solve
        if solve is None or not self._problem.goals:
            return chosen
        rank = self._rank(chosen)
        domains = self._search.drafts.domains
        known = lower_bound(self._problem.instance(), self._problem.goals)
        bound = with_distributions(known, self._problem, domains).evictions
        # What one search has tried in vain may be right beside other moves.
        before, given_up = self._search.marks, self._problem.take_back()
        search = Improvement(self._search.drafts, solve, self._rank_of)
        moves = {step.m: step.row for step in chosen.steps}
        better = search.run(moves, rank, bound) if rank > (0, 0, 0, 0, 0, bound) else None
        found = self._as_found(better) if better is not None else None
        if found is None or (self._unlevels(found) and not self._unlevels(chosen)):
            self._search.marks = before
            self._problem.give_up(given_up)
            return chosen
        found.dropped = {m: why for m, why in chosen.dropped.items() if m not in moves}
        return found

    def _unlevels(self, chosen: Chosen) -> bool:
        draft = self._search.made(chosen)
        return unleveled(self._problem, draft.load) or self._spoiled(draft) > 0

    def _spoiled(self, draft: Draft) -> int:
        """Count the spreads of pools that are level now and would not be any more."""
        return sum(not draft.meets(goal) for goal in guards(self._problem))

    def _as_found(self, moves: Mapping[Movable, int]) -> Chosen | None:
        """Put moves of the solver in order; None if one has to be left out."""
        problem, draft = self._problem, self._search.drafts.draft()
        for m, row in moves.items():
            draft.put(m, row)
        # The solver meets a goal or leaves it alone; the latter are approached as ever.
        hot = [problem.row_of[goal.node] for goal in problem.hot if not draft.meets(goal)]
        relieve_in_part(draft, hot)
        others = {m for m in draft.moves if problem.goal_of(m.row) is None}
        # Apart from each other, single moves may gain too little, or make a node worse for a while.
        together = _passing_on(moves) if problem.spreads else []
        for swaps in (together, []) if together else ([],):
            self._search.marks = Marks(others, swaps=swaps) if problem.spreads else Marks()
            found = self._search.ordered(draft.moves)
            if not found.dropped:
                return found
        return None

    def _rank_of(self, moves: Mapping[Movable, int]) -> Rank | None:
        found = self._as_found(moves)
        return self._rank(found) if found is not None else None

    def _rank(self, chosen: Chosen) -> Rank:
        problem, draft = self._problem, self._search.made(chosen)
        pods = (m for g in problem.emptied for m in problem.judged(problem.row_of[g.node]))
        stuck = sum(m not in draft.moves for m in pods)
        unmet = [goal for goal in problem.goals if not draft.meets(goal)]
        hot = sum(isinstance(goal, AtMost) for goal in unmet)
        wide = sum(isinstance(goal, Spread) for goal in unmet) + self._spoiled(draft)
        last = sum(m in self._search.marks.last_resort for m in draft.moves)
        lost = round(sum(draft.lost(goal) for goal in problem.goals), DIGITS)
        return stuck, hot, wide, lost, last, len(chosen.steps)

    def _fair(self, chosen: Chosen) -> Chosen:
        """Prefer pods that use more than they request, if nothing is lost by it."""
        if not chosen.chains:
            return chosen
        draft, marks = self._search.fresh(chosen), self._search.marks
        fixed = marks.swapped | marks.last_resort
        instead = substitutes(draft, fixed) if self._evaluations.left > 0 else {}
        while instead:
            found = self._substituted(chosen, draft, instead)
            if found is not None:
                return found
            # One of them cannot be ordered: keep the substitutions that matter most.
            instead = dict(list(instead.items())[: len(instead) // 2])
        return chosen

    def _substituted(
        self, chosen: Chosen, draft: Draft, instead: Mapping[Movable, Movable]
    ) -> Chosen | None:
        staying = set(instead.values())
        moves = {step.m: step.row for step in chosen.steps if step.m not in staying}
        moves.update({m: draft.moves[m] for m in instead})
        marks = self._search.marks
        leveled = {m for m, other in instead.items() if other in marks.leveled}
        marks.leveled |= leveled
        found, met = self._search.ordered(moves), self._search.met(chosen)
        if found.dropped or not met <= self._search.met(found):
            marks.leveled -= leveled
            return None
        found.dropped = {m: why for m, why in chosen.dropped.items() if m not in moves}
        return found

    def _joined(self, chosen: Chosen, later: _Planning, more: Chosen) -> Chosen | None:
        """Return both plans as one: a pod that moves twice goes straight, or stays.

        Chains of the later plan that cannot be part of it are left to the next cycle.
        """
        marks, added = self._search.marks, later._search.marks
        marks.leveled |= self._known(added.leveled)
        marks.last_resort |= self._known(added.last_resort)
        pairs = ((self._mine(p), self._mine(q)) for p, q in added.swaps)
        marks.swaps += [(p, q) for p, q in pairs if p is not None and q is not None]
        longer = self._with(chosen, more.steps) if more.chains else None
        if longer is not None or len(more.chains) < 2:
            return longer
        for chain in more.chains:
            longer = self._with(longer or chosen, chain) or longer
        return longer

    def _with(self, chosen: Chosen, steps: Sequence[Step]) -> Chosen | None:
        moves = {step.m: step.row for step in chosen.steps}
        for step in steps:
            m = self._mine(step.m)
            if m is None:
                return None
            moves.pop(m, None)
            if step.row != m.row:
                moves[m] = step.row
        found = self._search.ordered(moves)
        if found.dropped:
            return None
        found.dropped = {m: why for m, why in chosen.dropped.items() if m not in moves}
        return found

    def _known(self, found: Iterable[Movable]) -> set[Movable]:
        """Return pods of the later plan as they are now, without those that may not move yet."""
        return {mine for m in found if (mine := self._mine(m)) is not None}

    def _mine(self, m: Movable) -> Movable | None:
        """Return a pod of the later plan as it is now; None if it may not move yet.

        Its namespace may only observe the strategy of a goal that its node has now.
        """
        row = self._problem.row_of[self._problem.snapshot.pods[m.pod.uid].node]
        return next((o for o in self._problem.judged(row) if o.pod.uid == m.pod.uid), None)


def _passing_on(moves: Mapping[Movable, int]) -> list[tuple[Movable, Movable]]:
    """Return moves onto a node with those away from it: they make sense only together."""
    sources: dict[int, list[Movable]] = {}
    for m in moves:
        sources.setdefault(m.row, []).append(m)
    return [(m, q) for m, row in moves.items() for q in sources.get(row, ())]
