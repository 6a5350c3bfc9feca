"""From a demand to a plan.

The objective is lexicographic: nodes that must be emptied, ceilings, spread, then the fewest
evictions, the least disruption, the best balance. Attempts with different preferences are
compared until one needs no more evictions than the nodes have to give by themselves, or the
budget of evaluations is gone. The best is put in order, checked step by step, and explained.

Nothing here depends on time, chance or the order of maps: equal demands give equal plans.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from common.cluster.records import PodRecord
from common.config import Strategy
from rebalancer.goals import AtMost, Goal
from rebalancer.planner.bounds import lower_bound
from rebalancer.planner.draft import Draft, Effort
from rebalancer.planner.explain import Explainer, is_met, title
from rebalancer.planner.fingerprint import fingerprint_of, plan_id_of
from rebalancer.planner.fitting import Fitting
from rebalancer.planner.gain import not_worth_it
from rebalancer.planner.guarding import guards
from rebalancer.planner.instance import CPU, MEMORY, Floats
from rebalancer.planner.leveling import Leveling
from rebalancer.planner.limits import cut, startable
from rebalancer.planner.movable import Movable
from rebalancer.planner.ordering import Step, settle
from rebalancer.planner.partial import relieve_in_part
from rebalancer.planner.plan import Level, Move, NodePlan, Plan
from rebalancer.planner.problem import AXES, Demand, Problem
from rebalancer.planner.relief import Policy, Relief, Result
from rebalancer.planner.replicas import Census
from rebalancer.planner.sequel import demand_after
from rebalancer.planner.substitution import substitutes
from rebalancer.reasons import Refusal

POLICIES: Final = (
    Policy(gentle=True, tight=False),
    Policy(gentle=False, tight=True),
    Policy(gentle=False, tight=False),
    Policy(gentle=False, tight=True, hot_first=True),
)
ATTEMPTS: Final = 4
"""Searches, each without the pods whose moves the last one had to leave out."""
ROUNDS: Final = 4
"""Looks at the result of a plan that leaves goals unmet."""


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

    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        self._problem = Problem(demand)
        self._fitting = Fitting(demand.look.world, self._problem.nodes)
        self._census = Census(self._problem)
        self._effort = Effort(demand.settings.evaluations, len(self._problem.nodes))
        self._levelled: set[Movable] = set()
        self._last_resort: set[Movable] = set()
        self._swaps: list[tuple[Movable, Movable]] = []
        self._last_made: tuple[_Chosen, Draft] | None = None

    def plan(self) -> Plan:
        """Search, order, limit and explain."""
        problem = self._problem
        chosen = self._fair(self._pruned(self._prolonged(self._chosen())))
        draft = self._made(chosen)
        explainer = Explainer(problem, draft, chosen.dropped)
        unmet = explainer.unmet()
        missed = [goal for goal in problem.goals if not is_met(goal, problem, draft)]
        moves = self._moves(chosen)
        print_ = fingerprint_of(self._demand)
        return Plan(
            plan_id=plan_id_of(print_, moves),
            fingerprint=print_,
            strategies=tuple(sorted({goal.strategy for goal in problem.goals})),
            goals=tuple(title(goal) for goal in problem.goals),
            moves=moves,
            lower_bound=lower_bound(problem.instance(), problem.goals, excluded=missed),
            nodes=self._nodes(draft),
            unmet=unmet,
            refused=explainer.refused(),
            opt_outs=explainer.opt_outs(),
            notes=self._demand.assessment.notes,
            evaluations=self._effort.spent,
        )

    def _draft(self) -> Draft:
        return Draft(self._problem, self._fitting, self._census, self._effort)

    def _made(self, chosen: _Chosen) -> Draft:
        if self._last_made is None or self._last_made[0] is not chosen:
            draft = self._draft()
            for step in chosen.steps:
                draft.put(step.m, step.row)
            self._last_made = chosen, draft
        return self._last_made[1]

    def _prolonged(self, chosen: _Chosen) -> _Chosen:
        """Go on from the result until the next look would add nothing."""
        for _ in range(ROUNDS):
            if not chosen.chains or not self._effort.enough or self._meets_all(chosen):
                break
            names = self._problem.nodes
            goes = {step.m.pod.uid: names[step.row] for step in chosen.steps}
            later = _Planning(demand_after(self._demand, goes, self._effort.left))
            longer = self._joined(chosen, later, later._chosen())
            self._effort.spend(later._effort.spent)
            if longer is None:
                break
            chosen = longer
        return chosen

    def _pruned(self, chosen: _Chosen) -> _Chosen:
        """Leave out moves for one goal that those for another have made unnecessary."""
        # For ceilings each node gives the fewest from the start, and rooms are made on purpose.
        levelled = self._problem.spreads and self._meets_all(chosen)
        spare = self._spare(chosen) if levelled else []
        while spare:
            moves = {step.m: step.row for step in chosen.steps if step.m not in spare}
            found = self._ordered(moves)
            if not found.dropped and self._meets_all(found):
                found.dropped = chosen.dropped
                return found
            # Somebody needs the room or the company of one that would stay.
            spare = spare[: len(spare) // 2]
        return chosen

    def _fair(self, chosen: _Chosen) -> _Chosen:
        """Let those pods go first that use more than they asked for, if nothing is lost by it."""
        draft = self._draft()
        for step in chosen.steps:
            draft.put(step.m, step.row)
        fixed = {m for pair in self._swaps for m in pair} | self._last_resort
        instead = substitutes(draft, fixed) if self._effort.left > 0 else {}
        while instead:
            found = self._substituted(chosen, draft, instead)
            if found is not None:
                return found
            # One of them cannot be ordered: keep those that pay most for less.
            instead = dict(list(instead.items())[: len(instead) // 2])
        return chosen

    def _substituted(
        self, chosen: _Chosen, draft: Draft, instead: Mapping[Movable, Movable]
    ) -> _Chosen | None:
        staying = set(instead.values())
        moves = {step.m: step.row for step in chosen.steps if step.m not in staying}
        moves.update({m: draft.moves[m] for m in instead})
        levelled = {m for m, other in instead.items() if other in self._levelled}
        self._levelled |= levelled
        found, met = self._ordered(moves), self._met(chosen)
        if found.dropped or not met <= self._met(found):
            self._levelled -= levelled
            return None
        found.dropped = {m: why for m, why in chosen.dropped.items() if m not in moves}
        return found

    def _met(self, chosen: _Chosen) -> set[Goal]:
        draft = self._made(chosen)
        return {goal for goal in self._problem.goals if is_met(goal, self._problem, draft)}

    def _spare(self, chosen: _Chosen) -> list[Movable]:
        """Return moves without which every goal is met and every level pool is level still."""
        problem, draft = self._problem, self._draft()
        for step in chosen.steps:
            draft.put(step.m, step.row)
        level = [goal for goal in guards(problem) if is_met(goal, problem, draft)]
        swapped = {m for pair in self._swaps for m in pair}
        found = []
        for step in sorted(chosen.steps, key=lambda step: step.m.cost, reverse=True):
            m, own = step.m, problem.goal_of(step.m.row)
            if m.maintenance or m in swapped:
                continue
            wanted = (*problem.spreads, *level, *(() if own is None else (own,)))
            draft.take_out(m)
            if all(is_met(goal, problem, draft) for goal in wanted):
                found.append(m)
            else:
                draft.put(m, step.row)
        return found

    def _meets_all(self, chosen: _Chosen) -> bool:
        draft = self._made(chosen)
        return all(is_met(goal, self._problem, draft) for goal in self._problem.goals)

    def _joined(self, chosen: _Chosen, later: _Planning, more: _Chosen) -> _Chosen | None:
        """Return both plans as one: whoever moves twice goes straight, or stays at home.

        Chains of the later plan that cannot be part of it are left to the next cycle.
        """
        self._levelled |= {self._mine(m) for m in later._levelled}
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
        return next(o for o in self._problem.allowed_to_go(row) if o.pod.uid == m.pod.uid)

    def _searched(self) -> Result:
        best = Relief(self._draft(), POLICIES[0]).run()
        for policy in POLICIES[1:]:
            perfect = not (best.stuck or best.hot or best.extra)
            # Whoever found no place for a single pod will find none with another taste.
            if perfect or not best.draft.moves or not self._effort.plenty:
                break
            found = Relief(self._draft(), policy).run()
            best = min(best, found, key=lambda result: result.rank)
        if self._demand.settings.relieve_in_part:
            relieve_in_part(best.draft, best.hot)
        leveling = Leveling(best.draft)
        self._levelled = leveling.run()
        self._swaps = leveling.swaps
        self._last_resort = best.last_resort
        return best

    def _chosen(self) -> _Chosen:
        """Search until every move of the result can be ordered and is worth it."""
        if not self._problem.goals:
            return _Chosen([])
        dropped: dict[Movable, Refusal] = {}
        for _ in range(ATTEMPTS):
            chosen = self._ordered(self._searched().draft.moves)
            if not chosen.dropped:
                break
            dropped.update(chosen.dropped)
            self._problem.give_up(chosen.dropped)
        chosen.dropped = dropped
        return chosen

    def _ordered(self, wanted: Mapping[Movable, int]) -> _Chosen:
        """Put the moves in order; leave out chains that cannot be started or are not worth it."""
        moves = dict(wanted)
        dropped: dict[Movable, Refusal] = {}
        while True:
            piled_up = _siblings(self._last_resort, moves)
            found, left_out = settle(self._draft, moves, piled_up, self._swaps)
            blocked = Refusal("NoOrder", "no order of the moves lets it go", for_good=False)
            dropped.update(dict.fromkeys(left_out, blocked))
            bad = self._not_worth_it(found)
            if not bad:
                return _Chosen(found, dropped)
            dropped.update(bad)
            moves = {s.m: s.row for chain in found for s in chain if s.m not in bad}

    def _not_worth_it(self, found: Sequence[Sequence[Step]]) -> dict[Movable, Refusal]:
        load = self._problem.load.copy(order="K")
        bad: dict[Movable, Refusal] = {}
        for chain in found:
            refusal = self._judge(load, chain)
            if refusal is not None:
                bad.update({step.m: refusal for step in chain})
                continue
            _shift(load, chain, +1)
        return bad

    def _judge(self, load: Floats, chain: Sequence[Step]) -> Refusal | None:
        refusal = startable(self._problem, chain)
        if refusal is not None or any(step.m.maintenance for step in chain):
            return refusal
        rows = sorted({row for step in chain for row in (step.m.row, step.row)})
        capacity = self._problem.capacity[rows]
        before = 100.0 * load[rows] / capacity
        _shift(load, chain, +1)
        after = 100.0 * load[rows] / capacity
        _shift(load, chain, -1)
        if float(after.max()) > max(self._problem.worst, float(before.max())) + 1e-6:
            words = "a node would be worse than the worst is now"
            return Refusal("WorstNodeWorse", words, for_good=False)
        return not_worth_it(
            before,
            after,
            axes=self._axes(chain),
            evictions=len(chain),
            min_gain=self._demand.settings.min_gain,
        )

    def _axes(self, chain: Sequence[Step]) -> list[int]:
        """Return the resources that the goals of the chain's sources are about."""
        goals = [self._problem.goal_of(step.m.row) for step in chain]
        found = {AXES[d] for goal in goals if isinstance(goal, AtMost) for d in goal.broken}
        if any(step.m in self._levelled for step in chain):
            found |= {AXES[goal.dimension] for goal in self._problem.spreads}
        return sorted(found) or [CPU, MEMORY]

    def _moves(self, chosen: _Chosen) -> tuple[Move, ...]:
        verdicts = cut(self._problem, chosen.chains)
        return tuple(
            self._move(step, number, verdicts[step.m])
            for number, chain in enumerate(chosen.chains)
            for step in chain
        )

    def _move(self, step: Step, chain: int, deferred_by: str) -> Move:
        m, names = step.m, self._problem.nodes
        reason, words = self._reason(m)
        if m in self._last_resort:
            words += "; as the last resort it joins a node or zone that it would rather avoid"
        return Move(
            pod=m.pod.key,
            uid=m.pod.uid,
            owner=self._owner(m.pod),
            source=names[m.row],
            target=names[step.row],
            alternatives=tuple(names[row] for row in step.alternatives),
            strategy=self._strategy(m),
            reason=reason,
            words=words,
            chain=chain,
            needs=tuple(q.pod.uid for q in step.needs),
            cpu_milli=m.cpu_milli,
            mem_bytes=m.mem_bytes,
            this_cycle=not deferred_by,
            deferred_by=deferred_by,
        )

    def _strategy(self, m: Movable) -> Strategy:
        goal = self._problem.goal_of(m.row)
        if goal is None and m in self._levelled:
            return Strategy.LOAD_BALANCING
        return (goal or self._problem.goals[0]).strategy

    def _reason(self, m: Movable) -> tuple[str, str]:
        name, goal = self._problem.nodes[m.row], self._problem.goal_of(m.row)
        if goal is not None:
            return ("Maintenance" if m.maintenance else "AboveCeiling"), goal.words
        if m in self._levelled:
            goals = (g for g in self._problem.spreads if name in g.nodes)
            return "Spread", next((g.words for g in goals), "its pool is uneven")
        return "MakesRoom", f"{name} has to make room for another pod of this plan"

    def _owner(self, pod: PodRecord) -> str:
        found = self._problem.snapshot.top_workload(pod)
        if found is not None:
            return f"{found.kind} {found.key}"
        return f"{pod.owner.kind} {pod.namespace}/{pod.owner.name}" if pod.owner else ""

    def _nodes(self, draft: Draft) -> tuple[NodePlan, ...]:
        problem, parts = self._problem, self._demand.assessment.participation
        before, after = problem.percent(problem.load), draft.percent()
        sources, targets = {m.row for m in draft.moves}, set(draft.moves.values())
        known = self._demand.look.load.nodes
        return tuple(
            NodePlan(
                name=name,
                before=_level(before[row]),
                after=_level(after[row]),
                role=_role(row in sources, row in targets),
                source_refusals=parts.sources_refused.get(name, ()),
                target_refusals=parts.targets_refused.get(name, ()),
                unknown=known[name].why or "",
            )
            for row, name in enumerate(problem.nodes)
        )


def _siblings(pods: Collection[Movable], moves: Collection[Movable]) -> set[Movable]:
    """Return pods with those of the same workload: whichever comes last is piled up."""
    groups = {m.group for m in pods}
    return {m for m in moves if m.maintenance and m.group in groups}


def _shift(load: Floats, chain: Sequence[Step], sign: int) -> None:
    """Let the load of some pods move with them, or back again."""
    for step in chain:
        load[step.m.row] -= sign * step.m.load
        load[step.row] += sign * step.m.load


def _level(percent: Floats) -> Level:
    return Level(cpu=float(percent[0]), memory=float(percent[1]))


def _role(source: bool, target: bool) -> str:
    if source and target:
        return "both"
    return "source" if source else "target" if target else ""
