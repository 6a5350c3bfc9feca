# SPDX-License-Identifier: Apache-2.0
"""Goals that rules put off, beside goals that are acted on now.

A pool that only observes, or a schedule that is closed, puts all moves for a goal off. Planned
together with the others, such moves would take room that they do not need yet, or level a pool on
paper. So what is carried out is planned as if they were not there, and they are planned on what
it leaves: both are shown as one plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import msgspec

from common.api.migrations import Purpose
from common.cluster.records import PodRecord
from common.config import Strategy
from rebalancer.goals import Distribute, Goal, Spread, title
from rebalancer.planner.assembly import plan_id, role_of
from rebalancer.planner.bounds import lower_bound
from rebalancer.planner.explain import NODE_NOT_ASKED
from rebalancer.planner.lookahead import demand_after
from rebalancer.planner.plan import Bound, Move, NodePlan, Plan, Refused, Staying
from rebalancer.planner.problem import Demand, Problem
from rebalancer.refusals import Reason, Refusal

Goals = tuple[Goal, ...]


def parted(demand: Demand) -> tuple[Goals, Goals]:
    """Return the goals that are acted on now, and those that rules put off."""
    rules, nodes = demand.cluster.rules, demand.cluster.snapshot.nodes

    @cache
    def waits_everywhere(strategy: Strategy) -> bool:
        return all(rules.waits(strategy, name) for name in nodes)

    def waits(goal: Goal) -> bool:
        if isinstance(goal, Distribute):
            return waits_everywhere(goal.strategy)
        # The nodes of a spread are of one pool.
        node = goal.nodes[0] if isinstance(goal, Spread) else goal.node
        return rules.waits(goal.strategy, node)

    found: dict[bool, list[Goal]] = {False: [], True: []}
    for goal in demand.assessment.goals:
        found[waits(goal)].append(goal)
    return tuple(found[False]), tuple(found[True])


def wanting(demand: Demand, goals: Goals) -> Demand:
    """Return a demand for some of its goals."""
    return replace(demand, assessment=msgspec.structs.replace(demand.assessment, goals=goals))


def demand_beside(demand: Demand, later: Goals, now: Plan) -> Demand:
    """Return what is wanted later, of a cluster in which the moves of now have been made."""
    goes = {move.uid: move.target for move in now.moves}
    rest, judge = wanting(demand, later), demand.judge
    if goes:
        effort = max(0, demand.effort.evaluations - now.evaluations)
        rest = demand_after(rest, goes, effort)

    def judged(pod: PodRecord, purpose: Purpose) -> tuple[Refusal, ...]:
        return (Reason.MIGRATING.refusal(),) if pod.uid in goes else judge(pod, purpose)

    return replace(
        rest,
        judge=judged,
        assessment=msgspec.structs.replace(rest.assessment, notes=()),
        fingerprints=demand.fingerprints.copy(),
    )


def in_one(demand: Demand, now: Plan, later: Plan) -> Plan:
    """Return both plans as one; chains of the later one have the later numbers."""
    moves = (*now.moves, *_put_off(later.moves, 1 + max((m.chain for m in now.moves), default=-1)))
    fingerprint = demand.fingerprints.of(demand)
    unmet = (*now.unmet, *later.unmet)
    met, every = _bounds(demand, {each.goal for each in unmet}, now, len(moves))
    refused = _refused(now, later, moves)
    return Plan(
        plan_id=plan_id(fingerprint, moves),
        fingerprint=fingerprint,
        strategies=tuple(sorted({*now.strategies, *later.strategies})),
        goals=tuple(map(title, demand.assessment.goals)),
        moves=moves,
        lower_bound=met,
        lower_bound_all=every,
        priority_policy=now.priority_policy,
        fewest_evictions=_sum(now.fewest_evictions, later.fewest_evictions),
        nodes=tuple(map(_node, now.nodes, later.nodes)),
        unmet=unmet,
        refused=refused,
        staying=_staying(now, moves, refused),
        opt_outs=tuple(dict.fromkeys((*now.opt_outs, *later.opt_outs))),
        notes=tuple(dict.fromkeys((*now.notes, *later.notes))),
        kept_empty=tuple(dict.fromkeys((*now.kept_empty, *later.kept_empty))),
        evaluations=now.evaluations + later.evaluations,
    )


def _put_off(moves: Sequence[Move], first: int) -> Iterator[Move]:
    """Yield moves of later; one that no rule puts off answers those that some rule does."""
    why = next((move.deferred_by for move in moves if move.deferred_by), "")
    for move in moves:
        yield msgspec.structs.replace(
            move,
            chain=first + move.chain,
            this_cycle=False,
            deferred_by=move.deferred_by or why,
        )


def _bounds(demand: Demand, missed: set[str], now: Plan, evictions: int) -> tuple[Bound, Bound]:
    """Return what both need at least: for the goals that are met, and for all of them."""
    problem = Problem(demand)
    instance = problem.instance()
    excluded = [goal for goal in problem.goals if title(goal) in missed]
    met = lower_bound(instance, problem.goals, excluded=excluded)
    if not now.lower_bound.evictions <= met.evictions <= evictions:
        # A move of later may undo on paper what one of now does.
        met = now.lower_bound
    every = lower_bound(instance, problem.goals) if missed else met
    return met, every if every.evictions >= met.evictions else met


def _node(now: NodePlan, later: NodePlan) -> NodePlan:
    roles = {now.role, later.role}
    role = role_of(source=bool(roles & {"source", "both"}), target=bool(roles & {"target", "both"}))
    return msgspec.structs.replace(now, after=later.after, role=role)


def _refused(now: Plan, later: Plan, moves: Sequence[Move]) -> tuple[Refused, ...]:
    """Return the pods that stay, each with what the plan says that asked for it."""
    leaving = {move.uid for move in moves}
    found = {each.uid: each for each in (*later.refused, *now.refused)}
    found.update({each.uid: each for each in later.refused if _was_asked(each)})
    found.update({each.uid: each for each in now.refused if _was_asked(each)})
    return tuple(each for each in found.values() if each.uid not in leaving)


def _was_asked(refused: Refused) -> bool:
    return bool(refused.reasons) and refused.reasons[0].name != NODE_NOT_ASKED.name


def _staying(now: Plan, moves: Sequence[Move], refused: Sequence[Refused]) -> tuple[Staying, ...]:
    every = sum(each.pods for each in now.staying) + len(now.moves)
    counts = Counter(each.reasons[0].name for each in refused if each.reasons)
    counts[NODE_NOT_ASKED.name] += every - len(moves) - sum(counts.values())
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple(Staying(reason=name, pods=count) for name, count in ranked if count > 0)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
