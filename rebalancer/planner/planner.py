# SPDX-License-Identifier: Apache-2.0
"""From a demand to a plan.

The objective is lexicographic: nodes that must be emptied, ceilings, spread, then the fewest
evictions, the least disruption, the best balance. Attempts with different preferences are
compared until one needs no more evictions than the nodes have to give by themselves, or the
evaluations are used up. The best is put in order, checked step by step, and explained.

Nothing here depends on time, chance or the order of maps: equal demands give equal plans.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Final

from common.cluster.records import NodeName
from common.config import PriorityPolicy
from rebalancer.goals import AtMost, Goal, Spread
from rebalancer.planner.assembly import Outcome, assemble
from rebalancer.planner.bounds import lower_bound
from rebalancer.planner.constraints import left_above_ceiling, not_worth_it, touched_levels
from rebalancer.planner.cycle import startable
from rebalancer.planner.draft import Draft, DraftFactory
from rebalancer.planner.improvement import Improvement, Rank
from rebalancer.planner.instance import Floats
from rebalancer.planner.lookahead import demand_after
from rebalancer.planner.movable import Movable
from rebalancer.planner.ordering import Step, settle
from rebalancer.planner.plan import Plan
from rebalancer.planner.pool_levels import guards
from rebalancer.planner.problem import Demand, Problem
from rebalancer.planner.relief import Policy, Relief, Result, relieve_in_part
from rebalancer.planner.spread import Leveling
from rebalancer.planner.substitution import substitutes
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
ROUNDS: Final = 4
"""How many times a plan that leaves goals unmet is extended."""


def make_plan(demand: Demand) -> Plan:
    """Return the plan that meets as many goals as can be met with the fewest evictions."""
    return _Planning(demand).plan()


@dataclass(slots=True)
class _Chosen:
    """What the search came to: chains in their order, and what was left out."""

    chains: list[list[Step]]
    dropped: dict[Movable, Refusal] = field(default_factory=dict)

    @property
    def steps(self) -> list[Step]:
        return [step for chain in self.chains for step in chain]


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
        self._drafts = DraftFactory(self._problem)
        self._evaluations = self._drafts.evaluations
        self._leveled: set[Movable] = set()
        self._last_resort: set[Movable] = set()
        self._swaps: list[tuple[Movable, Movable]] = []
        self._last_made: tuple[_Chosen, Draft] | None = None

    def plan(self) -> Plan:
        """Search, order, limit and explain."""
        chosen = self._fair(self._improved(self._pruned(self._prolonged(self._chosen()))))
        outcome = Outcome(
            chains=chosen.chains,
            draft=self._made(chosen),
            dropped=chosen.dropped,
            leveled=self._leveled,
            last_resort=self._last_resort,
            fewest_evictions=self._fewest(chosen),
        )
        return assemble(self._problem, outcome)

    def _fewest(self, chosen: _Chosen) -> int | None:
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
        fewest = other._pruned(other._prolonged(other._chosen()))
        self._evaluations.spend(other._evaluations.spent)
        return min(found, len(fewest.steps)) if self._met(chosen) <= other._met(fewest) else found

    def _made(self, chosen: _Chosen) -> Draft:
        if self._last_made is None or self._last_made[0] is not chosen:
            draft = self._drafts.draft()
            for step in chosen.steps:
                draft.put(step.m, step.row)
            self._last_made = chosen, draft
        return self._last_made[1]

    def _prolonged(self, chosen: _Chosen) -> _Chosen:
        """Plan on from the result until the next cycle would add nothing."""
        for _ in range(ROUNDS):
            if not chosen.chains or not self._evaluations.enough or self._meets_all(chosen):
                break
            names = self._problem.nodes
            goes = {step.m.pod.uid: names[step.row] for step in chosen.steps}
            later = _Planning(
                demand_after(self._demand, goes, self._evaluations.left),
                self._policy,
                self._problem.priorities.kept(),
            )
            longer = self._joined(chosen, later, later._chosen())
            self._evaluations.spend(later._evaluations.spent)
            if longer is None:
                break
            chosen = longer
        return chosen

    def _pruned(self, chosen: _Chosen) -> _Chosen:
        """Leave out moves for one goal that those for another have made unnecessary."""
        # For ceilings each node gives the fewest from the start, and rooms are made on purpose.
        leveled = self._problem.spreads and self._meets_all(chosen)
        spare = self._spare({s.m: s.row for s in chosen.steps}) if leveled else []
        while spare:
            moves = {step.m: step.row for step in chosen.steps if step.m not in spare}
            found = self._ordered(moves)
            if not found.dropped and self._meets_all(found):
                found.dropped = chosen.dropped
                return found
            # Another move needs the room, or the pod, of one that would stay.
            spare = spare[: len(spare) // 2]
        return chosen

    def _improved(self, chosen: _Chosen) -> _Chosen:
        """Let the solver look for a better plan where this one may not be the best."""
        solve = self._demand.solve
        if solve is None or not self._problem.goals:
            return chosen
        rank = self._rank(chosen)
        bound = lower_bound(self._problem.instance(), self._problem.goals).evictions
        before = self._leveled, self._swaps, self._last_resort
        search = Improvement(self._drafts, solve, self._rank_of)
        moves = {step.m: step.row for step in chosen.steps}
        better = search.run(moves, rank, bound) if rank > (0, 0, 0, 0, bound) else None
        found = self._as_found(better) if better is not None else None
        if found is None:
            self._leveled, self._swaps, self._last_resort = before
            return chosen
        found.dropped = {m: why for m, why in chosen.dropped.items() if m not in moves}
        return found

    def _as_found(self, moves: Mapping[Movable, int]) -> _Chosen | None:
        """Put moves of the solver in order; None if one has to be left out."""
        problem, draft = self._problem, self._drafts.draft()
        for m, row in moves.items():
            draft.put(m, row)
        # The solver meets a goal or leaves it alone; the latter are approached as ever.
        hot = [problem.row_of[goal.node] for goal in problem.hot if not draft.meets(goal)]
        relieve_in_part(draft, hot)
        others = {m for m in draft.moves if problem.goal_of(m.row) is None}
        self._leveled = others if problem.spreads else set()
        self._swaps = _passing_on(moves) if problem.spreads else []
        self._last_resort = set()
        found = self._ordered(draft.moves)
        return found if not found.dropped else None

    def _rank_of(self, moves: Mapping[Movable, int]) -> Rank | None:
        found = self._as_found(moves)
        return self._rank(found) if found is not None else None

    def _rank(self, chosen: _Chosen) -> Rank:
        problem, draft = self._problem, self._made(chosen)
        pods = (m for g in problem.emptied for m in problem.judged(problem.row_of[g.node]))
        stuck = sum(m not in draft.moves for m in pods)
        unmet = [goal for goal in problem.goals if not draft.meets(goal)]
        hot = sum(isinstance(goal, AtMost) for goal in unmet)
        wide = sum(isinstance(goal, Spread) for goal in unmet)
        last = sum(m in self._last_resort for m in draft.moves)
        return stuck, hot, wide, last, len(chosen.steps)

    def _fair(self, chosen: _Chosen) -> _Chosen:
        """Prefer pods that use more than they request, if nothing is lost by it."""
        if not chosen.chains:
            return chosen
        draft = self._drafts.draft()
        for step in chosen.steps:
            draft.put(step.m, step.row)
        fixed = {m for pair in self._swaps for m in pair} | self._last_resort
        instead = substitutes(draft, fixed) if self._evaluations.left > 0 else {}
        while instead:
            found = self._substituted(chosen, draft, instead)
            if found is not None:
                return found
            # One of them cannot be ordered: keep the substitutions that matter most.
            instead = dict(list(instead.items())[: len(instead) // 2])
        return chosen

    def _substituted(
        self, chosen: _Chosen, draft: Draft, instead: Mapping[Movable, Movable]
    ) -> _Chosen | None:
        staying = set(instead.values())
        moves = {step.m: step.row for step in chosen.steps if step.m not in staying}
        moves.update({m: draft.moves[m] for m in instead})
        leveled = {m for m, other in instead.items() if other in self._leveled}
        self._leveled |= leveled
        found, met = self._ordered(moves), self._met(chosen)
        if found.dropped or not met <= self._met(found):
            self._leveled -= leveled
            return None
        found.dropped = {m: why for m, why in chosen.dropped.items() if m not in moves}
        return found

    def _met(self, chosen: _Chosen) -> set[Goal]:
        draft = self._made(chosen)
        return {goal for goal in self._problem.goals if draft.meets(goal)}

    def _spare(self, moves: Mapping[Movable, int]) -> list[Movable]:
        """Return moves without which every goal is met and every level pool is level still."""
        problem, draft = self._problem, self._drafts.draft()
        for m, row in moves.items():
            draft.put(m, row)
        level = [goal for goal in guards(problem) if draft.meets(goal)]
        swapped = {m for pair in self._swaps for m in pair}
        found = []
        for m in sorted(moves, key=lambda m: m.cost, reverse=True):
            own = problem.goal_of(m.row)
            if m.maintenance or m in swapped:
                continue
            # A node's own goal is the quickest to judge.
            wanted = (*(() if own is None else (own,)), *problem.spreads, *level)
            draft.take_out(m)
            if all(draft.meets(goal) for goal in wanted):
                found.append(m)
            else:
                draft.put(m, moves[m])
        return found

    def _meets_all(self, chosen: _Chosen) -> bool:
        draft = self._made(chosen)
        return all(draft.meets(goal) for goal in self._problem.goals)

    def _joined(self, chosen: _Chosen, later: _Planning, more: _Chosen) -> _Chosen | None:
        """Return both plans as one: a pod that moves twice goes straight, or stays.

        Chains of the later plan that cannot be part of it are left to the next cycle.
        """
        self._leveled |= {self._mine(m) for m in later._leveled}
        self._last_resort |= {self._mine(m) for m in later._last_resort}
        self._swaps += [(self._mine(p), self._mine(q)) for p, q in later._swaps]
        longer = self._with(chosen, more.steps) if more.chains else None
        if longer is not None or len(more.chains) < 2:
            return longer
        for chain in more.chains:
            longer = self._with(longer or chosen, chain) or longer
        return longer

    def _with(self, chosen: _Chosen, steps: Sequence[Step]) -> _Chosen | None:
        moves = {step.m: step.row for step in chosen.steps}
        for step in steps:
            m = self._mine(step.m)
            moves.pop(m, None)
            if step.row != m.row:
                moves[m] = step.row
        found = self._ordered(moves)
        if found.dropped:
            return None
        found.dropped = {m: why for m, why in chosen.dropped.items() if m not in moves}
        return found

    def _mine(self, m: Movable) -> Movable:
        """Return a pod of the later plan as it is now."""
        row = self._problem.row_of[self._problem.snapshot.pods[m.pod.uid].node]
        return next(o for o in self._problem.judged(row) if o.pod.uid == m.pod.uid)

    def _searched(self) -> Result:
        best = Relief(self._drafts.draft(), POLICIES[0]).run()
        for policy in POLICIES[1:]:
            perfect = not (best.stuck or best.hot or best.extra)
            # If no pod could be placed at all, other preferences do not help.
            if perfect or not best.draft.moves or not self._evaluations.plenty:
                break
            found = Relief(self._drafts.draft(), policy).run()
            best = min(best, found, key=lambda result: result.rank)
        relieve_in_part(best.draft, best.hot)
        leveling = Leveling(best.draft)
        self._leveled = leveling.run()
        self._swaps = [*best.exchanges, *leveling.swaps]
        self._last_resort = best.last_resort
        return best

    def _chosen(self) -> _Chosen:
        """Search with the lowest priorities that may be enough; raise them where they are not."""
        if not self._problem.goals:
            return _Chosen([])
        chosen, priorities = self._attempted(), self._problem.priorities
        low = priorities.state(self._unmet(chosen))
        low = {goal: most for goal, most in low.items() if priorities.next_above(most) < inf}
        if not low:
            return chosen
        # If not even all pods together can meet a goal, no priority between does.
        priorities.lift(dict.fromkeys(low, inf))
        chosen = self._attempted()
        met = low.keys() - self._unmet(chosen)
        return self._lowest(chosen, {goal: low[goal] for goal in low if goal in met})

    def _lowest(self, chosen: _Chosen, low: dict[Goal, float]) -> _Chosen:
        """Raise the priorities of goals that can be met, one by one, until they are."""
        priorities, wanted = self._problem.priorities, self._met(chosen)
        while low and min(low.values()) < inf and self._evaluations.plenty:
            low = {goal: priorities.next_above(most) for goal, most in low.items()}
            priorities.lift(low)
            found = self._attempted()
            if wanted <= self._met(found):
                return found
            short = [goal for goal in self._unmet(found) if goal in low]
            low = {goal: low[goal] for goal in short or low}
        if low:
            priorities.lift(dict.fromkeys(low, inf))
            chosen = self._attempted()
        return chosen

    def _unmet(self, chosen: _Chosen) -> list[Goal]:
        draft = self._made(chosen)
        return [goal for goal in self._problem.goals if not draft.meets(goal)]

    def _attempted(self) -> _Chosen:
        """Search until every move of the result can be ordered and is worth it."""
        dropped: dict[Movable, Refusal] = {}
        for _ in range(ATTEMPTS):
            chosen = self._ordered(self._without_spare(self._searched().draft))
            if not chosen.dropped:
                break
            dropped.update(chosen.dropped)
            self._problem.give_up(chosen.dropped)
        chosen.dropped = dropped
        return chosen

    def _without_spare(self, draft: Draft) -> dict[Movable, int]:
        """Return the moves of a search; in a large plan, what is spare is left out at once.

        Otherwise that comes later, and the rest is put in order twice, which takes long.
        """
        found = dict(draft.moves)
        large = self._problem.spreads and len(found) > MANY
        if large and all(draft.meets(goal) for goal in self._problem.goals):
            for m in self._spare(found):
                del found[m]
        return found

    def _ordered(self, wanted: Mapping[Movable, int]) -> _Chosen:
        """Put the moves in order; leave out chains that cannot be started or are not worth it."""
        moves = dict(wanted)
        dropped: dict[Movable, Refusal] = {}
        while True:
            piled_up = _siblings(self._last_resort, moves)
            found, left_out = settle(self._drafts.draft, moves, piled_up, self._swaps)
            blocked = Reason.NO_ORDER.refusal()
            dropped.update(dict.fromkeys(left_out, blocked))
            bad = self._not_worth_it(found)
            if not bad:
                return _Chosen(found, dropped)
            dropped.update(bad)
            moves = {s.m: s.row for chain in found for s in chain if s.m not in bad}

    def _not_worth_it(self, found: Sequence[Sequence[Step]]) -> dict[Movable, Refusal]:
        load, relieved = self._problem.load.copy(order="K"), self._relieved(found)
        bad: dict[Movable, Refusal] = {}
        for chain in found:
            refusal = self._judge(load, chain, relieved)
            if refusal is not None:
                bad.update({step.m: refusal for step in chain})
                continue
            for step in chain:
                load[step.m.row] -= step.m.load
                load[step.row] += step.m.load
        return bad

    def _relieved(self, found: Sequence[Sequence[Step]]) -> set[int]:
        """Return the rows that all chains together bring under their ceiling."""
        problem, end = self._problem, self._problem.load.copy(order="K")
        for step in (step for chain in found for step in chain):
            end[step.m.row] -= step.m.load
            end[step.row] += step.m.load
        rows = (problem.row_of[goal.node] for goal in problem.hot)
        return {row for row in rows if (end[row] <= problem.enough[row]).all()}

    def _judge(
        self, load: Floats, chain: Sequence[Step], relieved: Collection[int]
    ) -> Refusal | None:
        refusal = startable(self._problem, chain)
        if refusal is not None or any(step.m.maintenance for step in chain):
            return refusal
        moves = [(step.m, step.row) for step in chain]
        before, after = touched_levels(self._problem, load, moves)
        if float(after.max()) > max(self._problem.worst, float(before.max())) + 1e-6:
            return Reason.WORST_NODE_WORSE.refusal("chain")
        refusal = left_above_ceiling(self._problem, load, moves)
        if refusal is not None:
            return refusal
        if any(step.m.row in relieved for step in chain):
            return None
        return not_worth_it(
            before,
            after,
            axes=self._axes(chain),
            evictions=len(chain),
            min_gain=self._problem.demand.cluster.config.min_gain,
        )

    def _axes(self, chain: Sequence[Step]) -> Sequence[int]:
        """Return the resources that the goals of the chain's sources are about."""
        goals = [self._problem.goal_of(step.m.row) for step in chain]
        found = {d.axis for goal in goals if isinstance(goal, AtMost) for d in goal.broken}
        if any(step.m in self._leveled for step in chain):
            found |= {goal.dimension.axis for goal in self._problem.spreads}
        return sorted(found) or self._problem.axes


def _passing_on(moves: Mapping[Movable, int]) -> list[tuple[Movable, Movable]]:
    """Return moves onto a node with those away from it: they make sense only together."""
    sources: dict[int, list[Movable]] = {}
    for m in moves:
        sources.setdefault(m.row, []).append(m)
    return [(m, q) for m, row in moves.items() for q in sources.get(row, ())]


def _siblings(pods: Collection[Movable], moves: Collection[Movable]) -> set[Movable]:
    """Return pods with those of the same workload: whichever comes last is piled up."""
    groups = {m.group for m in pods}
    return {m for m in moves if m.maintenance and m.group in groups}
