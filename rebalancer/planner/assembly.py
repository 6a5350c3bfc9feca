# SPDX-License-Identifier: Apache-2.0
"""From what the search chose to the plan that people read: moves, nodes, bound, reasons.

Equal demands give plans with equal names, on any machine and at any time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from common.api.migrations import MoveReason
from common.cluster.records import PodRecord
from common.config import Strategy
from rebalancer.goals import AtMost, Distribute, Goal, Relocate, title
from rebalancer.planner.bounds import lower_bound
from rebalancer.planner.cycle import cut
from rebalancer.planner.distribution_bound import with_distributions
from rebalancer.planner.draft import Draft
from rebalancer.planner.explain import Explainer
from rebalancer.planner.movable import Movable
from rebalancer.planner.ordering import Step
from rebalancer.planner.plan import NO_BOUND, Bound, Move, NodePlan, Plan
from rebalancer.planner.pool_spreads import evened
from rebalancer.planner.problem import Problem
from rebalancer.planner.reach import Reach
from rebalancer.refusals import Refusal

REASONS: Final = {
    Strategy.VIOLATIONS: MoveReason.VIOLATION,
    Strategy.DUPLICATES: MoveReason.DUPLICATE,
    Strategy.PREFERRED_NODES: MoveReason.PREFERENCE,
    Strategy.HYGIENE: MoveReason.HYGIENE,
    Strategy.TOPOLOGY_SPREAD: MoveReason.TOPOLOGY_SPREAD,
}
"""Why pods with a goal of their own are moved."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """What the search came to."""

    chains: Sequence[Sequence[Step]]
    """In their order; moves of one chain belong together."""
    draft: Draft
    """With all of these moves in it."""
    dropped: Mapping[Movable, Refusal]
    """Pods whose moves were tried and left out."""
    leveled: Collection[Movable]
    """Pods that move to level a pool."""
    last_resort: Collection[Movable]
    """Pods that found a place only where constraints yield."""
    fewest_evictions: int | None
    """What it takes for the same goals if priorities do not matter; None if not known."""


def assemble(problem: Problem, outcome: Outcome) -> Plan:
    """Return the plan with everything that a reader may ask about it."""
    return _Assembly(problem, outcome).plan()


class _Assembly:
    """Puts one plan together."""

    def __init__(self, problem: Problem, outcome: Outcome) -> None:
        self._problem = problem
        self._outcome = outcome
        self._reach = Reach(problem, outcome.draft.fitting)
        self._evened = evened(problem, outcome.draft.load)

    def plan(self) -> Plan:
        problem, draft = self._problem, self._outcome.draft
        explainer = Explainer(problem, draft, self._outcome.dropped)
        unmet, refused = explainer.unmet(), explainer.refused()
        missed = [goal for goal in problem.goals if not draft.meets(goal)]
        moves, bound = self._moves(), self._bound(missed)
        fingerprint = problem.demand.fingerprints.of(problem.demand)
        return Plan(
            plan_id=plan_id(fingerprint, moves),
            fingerprint=fingerprint,
            strategies=tuple(sorted({goal.strategy for goal in problem.goals})),
            goals=tuple(title(goal) for goal in problem.goals),
            moves=moves,
            lower_bound=bound,
            lower_bound_all=self._bound_for_all(missed, bound) if missed else bound,
            priority_policy=problem.priorities.policy,
            fewest_evictions=self._outcome.fewest_evictions,
            nodes=self._nodes(draft),
            unmet=unmet,
            refused=refused,
            staying=explainer.staying(refused),
            opt_outs=explainer.opt_outs(),
            notes=(*problem.demand.assessment.notes, *self._held_notes()),
            kept_empty=problem.demand.assessment.kept_empty,
            evaluations=draft.evaluations.spent,
        )

    def _bound(self, missed: Collection[Goal]) -> Bound:
        goals, evictions = self._problem.goals, len(self._outcome.draft.moves)
        if len(missed) == len(goals):
            return NO_BOUND
        instance = self._problem.instance(self._reach.of)
        found = self._with_distributions(lower_bound(instance, goals, excluded=missed), missed)
        if found.evictions >= evictions:
            return found  # no other argument can prove more
        tighter = self._reach.tightened(instance, self._problem.leaving())
        return self._with_distributions(lower_bound(tighter, goals, excluded=missed), missed)

    def _with_distributions(self, found: Bound, missed: Collection[Goal] = ()) -> Bound:
        domains = self._outcome.draft.domains.domains
        return with_distributions(found, self._problem, domains, missed)

    def _bound_for_all(self, missed: Collection[Goal], met: Bound) -> Bound:
        # A plan that meets more goals may have to move pods of higher priorities for these.
        instance = self._problem.instance(self._reach.of, missed)
        tighter = self._reach.tightened(instance, self._problem.leaving(missed))
        found = self._with_distributions(lower_bound(tighter, self._problem.goals))
        # Whatever meets all goals meets those that are met, and takes as much for it.
        return found if found.evictions >= met.evictions else met

    def _moves(self) -> tuple[Move, ...]:
        chains = self._outcome.chains
        deferred_by = cut(self._problem, chains, self._held)
        return tuple(
            self._move(step, number, deferred_by[step.m])
            for number, chain in enumerate(chains)
            for step in chain
        )

    def _held(self, m: Movable) -> Refusal | None:
        rules, reason = self._problem.demand.cluster.rules, self._reason(m)[0]
        source, namespace = self._problem.nodes[m.row], m.pod.namespace
        return rules.held(self._strategy(m), reason, source, namespace)

    def _held_notes(self) -> Iterator[str]:
        """Say which rules put moves off, with the number of moves."""
        held = (self._held(step.m) for chain in self._outcome.chains for step in chain)
        for message, count in Counter(why.message for why in held if why is not None).items():
            yield f"{count} planned {'move is' if count == 1 else 'moves are'} put off: {message}."

    def _move(self, step: Step, chain: int, deferred_by: str) -> Move:
        m, names = step.m, self._problem.nodes
        reason, message = self._reason(m)
        if m in self._outcome.last_resort:
            message += "; as a last resort it goes to a node or zone that it should rather avoid"
        return Move(
            pod=m.pod.key,
            uid=m.pod.uid,
            owner=self._owner(m.pod),
            source=names[m.row],
            target=names[step.row],
            alternatives=tuple(names[row] for row in step.alternatives),
            strategy=self._strategy(m),
            reason=reason,
            message=message,
            chain=chain,
            needs=tuple(q.pod.uid for q in step.needs),
            cpu_milli=m.cpu_milli,
            mem_bytes=m.mem_bytes,
            this_cycle=not deferred_by,
            deferred_by=deferred_by,
            surge=m.surges,
            relieves=self._relieves(m),
        )

    def _relieves(self, m: Movable) -> bool:
        goal = self._problem.goal_of(m.row)
        if isinstance(goal, AtMost):
            return self._outcome.draft.meets(goal)
        return m in self._outcome.leveled and bool(self._evened[m.row])

    def _strategy(self, m: Movable) -> Strategy:
        own = self._own(m)
        if own is not None:
            return own.strategy
        goal = self._problem.goal_of(m.row)
        if goal is None and m in self._outcome.leveled:
            return Strategy.LOAD_BALANCING
        return (goal or self._helped()).strategy

    def _helped(self) -> Goal:
        """Return the goal for which pods make room: those of single pods need none."""
        goals = (g for g in self._problem.goals if not isinstance(g, Relocate | Distribute))
        return next(goals, self._problem.goals[0])

    def _reason(self, m: Movable) -> tuple[MoveReason, str]:
        own = self._own(m)
        if own is not None:
            return REASONS[own.strategy], own.message
        name, goal = self._problem.nodes[m.row], self._problem.goal_of(m.row)
        if goal is not None:
            if m.consolidated:
                return MoveReason.CONSOLIDATION, goal.message
            reason = MoveReason.MAINTENANCE if m.maintenance else MoveReason.ABOVE_CEILING
            return reason, goal.message
        if m in self._outcome.leveled:
            goals = (g for g in self._problem.spreads if name in g.nodes)
            return MoveReason.SPREAD, next((g.message for g in goals), "its pool is uneven")
        return MoveReason.MAKES_ROOM, f"{name} has to make room for another pod of this plan"

    def _own(self, m: Movable) -> Relocate | Distribute | None:
        """Return the goal that names a pod, if its move meets it, or one that it brings nearer."""
        goal, draft = self._problem.relocations.get(m.pod.uid), self._outcome.draft
        if goal is not None and draft.meets(goal):
            return goal
        return None if m.has_to_leave else draft.domains.evens(m)

    def _owner(self, pod: PodRecord) -> str:
        found = self._problem.snapshot.top_workload(pod)
        if found is not None:
            return f"{found.kind} {found.key}"
        return f"{pod.owner.kind} {pod.namespace}/{pod.owner.name}" if pod.owner else ""

    def _nodes(self, draft: Draft) -> tuple[NodePlan, ...]:
        problem, parts = self._problem, self._problem.demand.assessment.participation
        before, after = problem.percent(problem.load), draft.percent()
        sources, targets = {m.row for m in draft.moves}, set(draft.moves.values())
        known = self._problem.demand.cluster.load.nodes
        return tuple(
            NodePlan(
                name=name,
                before=problem.level(row, before[row]),
                after=problem.level(row, after[row]),
                role=role_of(source=row in sources, target=row in targets),
                source_refusals=parts.sources_refused.get(name, ()),
                target_refusals=parts.targets_refused.get(name, ()),
                state=parts.states.get(name, ()),
                unknown=known[name].why or "",
            )
            for row, name in enumerate(problem.nodes)
        )


def role_of(*, source: bool, target: bool) -> str:
    """Return the role of a node in a plan."""
    if source and target:
        return "both"
    return "source" if source else "target" if target else ""


def plan_id(fingerprint: str, moves: Sequence[Move]) -> str:
    """Return the name of a plan."""
    digest = blake2b(fingerprint.encode(), digest_size=6)
    for move in moves:
        digest.update(f"{move.uid}>{move.target}\n".encode())
    return f"plan-{digest.hexdigest()}"
