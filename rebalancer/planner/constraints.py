# SPDX-License-Identifier: Apache-2.0
"""Where a pod may not go, whatever it would gain: the registry of constraints.

Each constraint answers for all nodes at once where a pod may go, or `None` if it allows every
node, and can explain an objection. `CONSTRAINTS` is read at each question, so that a test can
take one out. Cheap ones come first, because they save asking the others.

Those that yield are given up for a node that has to be emptied, as the last resort.

Besides, moves have to be worth their evictions. A chain of a plan that brings a node under its
ceiling is, however little each pod of a large node gains. Any other chain has to gain by itself
(a tenth of that is enough where the plan levels a pool that is clearly uneven):
over the nodes that it touches, in the goal's resource, the utilizations afterwards, sorted from
the highest down, must be smaller than before by `minGain` points for each of its evictions, at
the first place where the two differ. So the highest of the touched nodes comes down, or stays
and the next one comes down: a pod never goes back and forth, and a swap that levels two nodes
still counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from common.config import Strategy
from rebalancer.goals import PRECISION
from rebalancer.planner.instance import Flags, Floats
from rebalancer.planner.movable import Movable
from rebalancer.planner.problem import TOLERANCE, Problem
from rebalancer.planner.resources import every, some
from rebalancer.refusals import Reason, Refusal

if TYPE_CHECKING:
    from rebalancer.planner.draft import Draft

Allow = Callable[["Draft", Movable], Flags | None]
Explain = Callable[["Draft", Movable, int], Refusal]

FINE: Final = 0.1
"""The share of `minGain` that is enough for a chain of a plan that levels a clearly uneven pool."""
_SAME: Final = 1e-6
"""Points of utilization by which two levels may differ and still count as equal."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """One reason why a pod may not go to a node."""

    name: Reason
    allow: Allow
    explain: Explain
    yields: bool = False
    of_room: bool = False
    """Room: it no longer holds once enough other pods have left the node."""
    in_the_end: bool = False
    """Has to hold when a chain is complete, not while it is under way."""
    of_company: bool = False
    """A certain pod leaving the node can make it go away."""
    modeled: bool = False
    """The solver is told about it by a rule of its own."""


def _takes(draft: Draft, m: Movable) -> Flags:
    return draft.problem.shelters if m.maintenance else draft.problem.takes


def _target_refused(draft: Draft, m: Movable, row: int) -> Refusal:
    problem = draft.problem
    name, parts = problem.nodes[row], problem.demand.assessment.participation
    if problem.empty[row]:
        return Reason.TARGET_REFUSED.refusal("emptied", node=name)
    refused = parts.refuges_refused if m.maintenance else parts.targets_refused
    return Reason.TARGET_REFUSED.refusal(node=name, causes=_joined(refused.get(name, ())))


def _starts_pods(draft: Draft, m: Movable) -> Flags | None:
    avoided = draft.problem.last_resorts
    return ~avoided if m.maintenance and some(avoided) else None


def _starts_no_pods(draft: Draft, _: Movable, row: int) -> Refusal:
    name, parts = draft.problem.nodes[row], draft.problem.demand.assessment.participation
    causes = _joined(parts.last_resorts.get(name, ()))
    return Reason.STARTS_NO_PODS.refusal("last resort", node=name, causes=causes)


def _elsewhere(draft: Draft, m: Movable) -> Flags:
    found = draft.problem.all_rows.copy()
    found[m.row] = False
    return found


def _same_node(draft: Draft, m: Movable, _: int) -> Refusal:
    return Reason.SAME_NODE.refusal(node=draft.problem.nodes[m.row])


def _under_ceiling(draft: Draft, m: Movable) -> Flags:
    problem = draft.problem
    roof = problem.emptied_roof if m.consolidated else problem.roof
    fits = draft.load + m.load <= (problem.transient_roof if draft.transient else roof)
    return every(fits)


def _above_ceiling(draft: Draft, m: Movable, row: int) -> Refusal:
    problem = draft.problem
    after = draft.joined(m)[row]
    ceiling = problem.emptied_ceiling[row] if m.consolidated else problem.ceiling[row]
    over = int(np.argmax(after - ceiling))
    if problem.ceiling[row][over] <= 0.0:
        return Reason.RESOURCE_UNKNOWN.refusal(
            node=problem.nodes[row], resource=problem.dimensions[over].label
        )
    return Reason.ABOVE_CEILING.refusal(
        node=problem.nodes[row],
        percent=after[over],
        resource=problem.dimensions[over].label,
        ceiling=ceiling[over],
    )


def _worst_no_worse(draft: Draft, m: Movable) -> Flags | None:
    problem = draft.problem
    if m.has_to_leave or problem.worst >= problem.highest_ceiling:
        return None
    if problem.has_own_goal(m):
        return None  # what counts is where it runs, within the ceilings and levels of the pools
    bearable = draft.joined(m) <= problem.worst + TOLERANCE
    return every(bearable)


def _worst_node_worse(draft: Draft, m: Movable, row: int) -> Refusal:
    problem = draft.problem
    after = draft.joined(m)[row].max()
    return Reason.WORST_NODE_WORSE.refusal(
        node=problem.nodes[row], percent=after, worst=problem.worst
    )


def _asked_for(draft: Draft, m: Movable) -> Flags | None:
    tiers = draft.problem.wanted(m)
    found: Flags | None = np.logical_or.reduce(tiers) if tiers else None
    return found


def _not_asked_for(draft: Draft, _: Movable, row: int) -> Refusal:
    return Reason.NOT_ASKED_FOR.refusal(node=draft.problem.nodes[row])


def _keeps_levels(draft: Draft, m: Movable) -> Flags | None:
    problem = draft.problem
    return draft.pool_levels(m) if problem.has_own_goal(m) else None


def _levels_lost(draft: Draft, _: Movable, row: int) -> Refusal:
    return Reason.LEVELS_LOST.refusal(node=draft.problem.nodes[row])


def _welcome(draft: Draft, m: Movable) -> Flags:
    return draft.fitting.welcome(m)


def _unwelcome(draft: Draft, _: Movable, row: int) -> Refusal:
    return Reason.UNWELCOME.refusal(node=draft.problem.nodes[row])


def _preferred(draft: Draft, m: Movable) -> Flags | None:
    """What moves a pod to a node that it prefers, and back, has to be one strategy."""
    problem = draft.problem
    rules = problem.demand.cluster.rules.of_node(m.pod.node)
    own = problem.relocations.get(m.pod.uid)
    if Strategy.PREFERRED_NODES not in rules.enabled_strategies:
        return None
    if own is not None and own.strategy is Strategy.VIOLATIONS:
        return None
    return draft.fitting.suits_no_less(m)


def _less_preferred(draft: Draft, _: Movable, row: int) -> Refusal:
    return Reason.LESS_PREFERRED.refusal(node=draft.problem.nodes[row])


def constraints_decide(problem: Problem, m: Movable) -> bool:
    """Tell whether a goal asks for more pods where there are few, on however few hosts."""
    if m.stateful or not problem.distributes(m.pod):
        return False
    rules = problem.demand.cluster.rules.of_node(m.pod.node)
    return Strategy.DUPLICATES not in rules.enabled_strategies


def _hosts(draft: Draft, m: Movable) -> Flags | None:
    if constraints_decide(draft.problem, m):
        return None
    return draft.replicas.hosts_free_of(m, draft.gone)


def _piled_up_on_host(draft: Draft, _: Movable, row: int) -> Refusal:
    return Reason.PILED_UP_ON_HOST.refusal(node=draft.problem.nodes[row])


def _zones(draft: Draft, m: Movable) -> Flags | None:
    if constraints_decide(draft.problem, m):
        return None
    return draft.replicas.zones_free_of(m)


def _piled_up_in_zone(draft: Draft, _: Movable, row: int) -> Refusal:
    return Reason.PILED_UP_IN_ZONE.refusal(node=draft.problem.nodes[row])


def _roomy(draft: Draft, m: Movable) -> Flags:
    return draft.roomy(m)


def _fits_by_itself(draft: Draft, m: Movable) -> Flags | None:
    return None if draft.fitting.has_ties(m) else draft.fitting.possible(m)


def _fits_with_others(draft: Draft, m: Movable) -> Flags | None:
    return draft.possible(m) if draft.fitting.has_ties(m) else None


def _does_not_fit(draft: Draft, m: Movable, row: int) -> Refusal:
    causes = draft.fitting.why_not(m, row)
    return Reason.DOES_NOT_FIT.refusal(node=draft.problem.nodes[row], causes=causes)


def _no_room(draft: Draft, m: Movable, row: int) -> Refusal:
    causes = draft.fitting.why_not(m, row)
    return Reason.NO_ROOM.refusal(node=draft.problem.nodes[row], causes=causes)


def _spreads(draft: Draft, m: Movable) -> Flags | None:
    return draft.spreads_no_worse(m)


def _spread_worse(draft: Draft, _: Movable, row: int) -> Refusal:
    return Reason.SPREAD_WORSE.refusal(node=draft.problem.nodes[row])


def _keeps_domains(draft: Draft, m: Movable) -> Flags | None:
    return draft.domains.keeping(m, hard=True)


def _domains_worse(draft: Draft, _: Movable, row: int) -> Refusal:
    return Reason.SPREAD_WORSE.refusal("hard", node=draft.problem.nodes[row])


def _keeps_soft_domains(draft: Draft, m: Movable) -> Flags | None:
    return draft.domains.keeping(m, hard=False)


def _joined(refusals: Sequence[Refusal]) -> str:
    return "; ".join(refusal.message for refusal in refusals)


CONSTRAINTS: tuple[Constraint, ...] = (
    Constraint(Reason.TARGET_REFUSED, _takes, _target_refused),
    Constraint(Reason.SAME_NODE, _elsewhere, _same_node),
    Constraint(Reason.DOES_NOT_FIT, _fits_by_itself, _does_not_fit),
    Constraint(Reason.ABOVE_CEILING, _under_ceiling, _above_ceiling, of_room=True, modeled=True),
    Constraint(
        Reason.WORST_NODE_WORSE,
        _worst_no_worse,
        _worst_node_worse,
        of_room=True,
        in_the_end=True,
        modeled=True,
    ),
    Constraint(Reason.NOT_ASKED_FOR, _asked_for, _not_asked_for),
    Constraint(Reason.LEVELS_LOST, _keeps_levels, _levels_lost, of_room=True, in_the_end=True),
    Constraint(Reason.NO_ROOM, _roomy, _no_room, of_room=True, modeled=True),
    Constraint(Reason.STARTS_NO_PODS, _starts_pods, _starts_no_pods, yields=True),
    Constraint(Reason.UNWELCOME, _welcome, _unwelcome, yields=True),
    Constraint(Reason.LESS_PREFERRED, _preferred, _less_preferred, yields=True),
    Constraint(
        Reason.PILED_UP_ON_HOST,
        _hosts,
        _piled_up_on_host,
        yields=True,
        of_company=True,
        modeled=True,
    ),
    Constraint(Reason.PILED_UP_IN_ZONE, _zones, _piled_up_in_zone, yields=True, modeled=True),
    Constraint(
        Reason.DOES_NOT_FIT, _fits_with_others, _does_not_fit, of_company=True, modeled=True
    ),
    Constraint(Reason.SPREAD_WORSE, _spreads, _spread_worse, yields=True, modeled=True),
    Constraint(Reason.SPREAD_WORSE, _keeps_domains, _domains_worse, yields=True, modeled=True),
    Constraint(
        Reason.SPREAD_WORSE,
        _keeps_soft_domains,
        _spread_worse,
        yields=True,
        in_the_end=True,
        modeled=True,
    ),
)


def gained(before: Floats, after: Floats) -> float:
    """Return by how many points the first of the sorted utilizations that differs is lower."""
    fall = np.sort(before)[::-1] - np.sort(after)[::-1]
    differs = (np.abs(fall) > _SAME).nonzero()[0]
    return float(fall[differs[0]]) if differs.size else 0.0


def not_worth_it(
    before: Floats, after: Floats, *, axes: Sequence[int], evictions: int, min_gain: float
) -> Refusal | None:
    """Return why a chain is not worth it; before and after are [touched, R] in percent."""
    gain = max((gained(before[:, axis], after[:, axis]) for axis in axes), default=0.0)
    needed = min_gain * evictions
    if gain >= needed - _SAME and gain > 0.0:
        return None
    moves = "1 eviction" if evictions == 1 else f"{evictions} evictions"
    return Reason.NOT_WORTH_IT.refusal(gain=gain, evictions=moves, needed=needed)


def left_above_ceiling(
    problem: Problem, load: Floats, moves: Sequence[tuple[Movable, int]]
) -> Refusal | None:
    """Return which node moves would leave above its ceiling, and higher than it is now."""
    rows = _touched(moves)
    before, after = touched_levels(problem, load, moves)
    worse = (after > problem.ceiling[rows] + PRECISION) & (after > before + _SAME)
    if not worse.any():
        return None
    number, axis = np.argwhere(worse)[0]
    return Reason.ABOVE_CEILING.refusal(
        node=problem.nodes[rows[number]],
        percent=after[number, axis],
        resource=problem.dimensions[axis].label,
        ceiling=problem.ceiling[rows[number], axis],
    )


def _touched(moves: Sequence[tuple[Movable, int]]) -> list[int]:
    return sorted({row for m, target in moves for row in (m.row, target)})


def touched_levels(
    problem: Problem, load: Floats, moves: Sequence[tuple[Movable, int]]
) -> tuple[Floats, Floats]:
    """[touched, R] return the levels of the nodes that moves touch, before and after them."""
    rows = _touched(moves)
    place = {row: number for number, row in enumerate(rows)}
    before, after, capacity = load[rows], load[rows], problem.capacity[rows]
    for m, target in moves:
        after[place[m.row]] -= m.load
        after[place[target]] += m.load
    return 100.0 * before / capacity, 100.0 * after / capacity


def compared_levels(
    problem: Problem, load: Floats, moves: Sequence[tuple[Movable, int]]
) -> tuple[Floats, Floats]:
    """[touched, R] return the levels by which a gain is judged, before and after moves.

    Nodes above their ceilings are compared by how far they are above them: one that is to use
    less than others may (its pool's threshold is lower, or its tasks wait) gains by a move to a
    node that uses more.
    """
    rows = _touched(moves)
    before, after = touched_levels(problem, load, moves)
    return before + problem.strictness[rows], after + problem.strictness[rows]


def worthwhile(draft: Draft, m: Movable, axes: Sequence[int], min_gain: float) -> Flags:
    """Return the rows to which moving one pod alone gains so many points."""
    problem = draft.problem
    found: Flags | None = None
    for axis in axes:
        load, capacity, amount = draft.load[:, axis], problem.capacity[:, axis], m.load[axis]
        strictness = problem.strictness[:, axis]
        high = 100.0 * load[m.row] / capacity[m.row] + strictness[m.row]
        low = high - 100.0 * amount / capacity[m.row]
        fall = high - np.maximum(low, 100.0 * (load + amount) / capacity + strictness)
        gains = (fall >= min_gain - _SAME) & (fall > _SAME)
        found = gains if found is None else found | gains
    return found if found is not None else np.zeros(len(problem.nodes), dtype=np.bool_)
