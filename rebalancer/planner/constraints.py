"""What may not be done to a node, whatever it would gain: the registry of constraints.

Each constraint answers for all nodes at once where a pod may go, or `None` where it has no
objection to any, and can put an objection into words. `CONSTRAINTS` is looked up at each
question, so that a test can take one out. Cheap ones stand first, for they spare the others.

Those that yield are given up for a node that has to be emptied, as the last resort.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from rebalancer.planner.instance import Flags
from rebalancer.planner.movable import Movable
from rebalancer.planner.problem import TOLERANCE

if TYPE_CHECKING:
    from rebalancer.planner.draft import Draft

Allow = Callable[["Draft", Movable], Flags | None]
Words = Callable[["Draft", Movable, int], str]

RESOURCES: Final = ("CPU", "memory")


@dataclass(frozen=True, slots=True)
class Constraint:
    """One reason why a pod may not go to a node."""

    name: str
    allow: Allow
    words: Words
    yields: bool = False
    of_room: bool = False
    """Other pods leaving the node can make it go away."""
    in_the_end: bool = False
    """Has to hold when a chain is done, not while it is under way."""


def _takes(draft: Draft, m: Movable) -> Flags:
    return draft.problem.shelters if m.maintenance else draft.problem.takes


def _refused_words(draft: Draft, m: Movable, row: int) -> str:
    problem = draft.problem
    name, parts = problem.nodes[row], problem.demand.assessment.participation
    if problem.empty[row]:
        return f"{name} is to be emptied"
    refused = parts.refuges_refused if m.maintenance else parts.targets_refused
    return f"{name} takes no pods: " + "; ".join(r.words for r in refused.get(name, ()))


def _starts_pods(draft: Draft, m: Movable) -> Flags | None:
    avoided = draft.problem.last_resorts
    return ~avoided if m.maintenance and avoided.any() else None


def _starts_words(draft: Draft, _: Movable, row: int) -> str:
    name, parts = draft.problem.nodes[row], draft.problem.demand.assessment.participation
    return f"{name}: " + "; ".join(r.words for r in parts.last_resorts.get(name, ()))


def _elsewhere(draft: Draft, m: Movable) -> Flags:
    found = np.ones(len(draft.problem.nodes), dtype=np.bool_)
    found[m.row] = False
    return found


def _own_words(draft: Draft, m: Movable, _: int) -> str:
    return f"it is on {draft.problem.nodes[m.row]} already"


def _under_ceiling(draft: Draft, m: Movable) -> Flags:
    fits = draft.load + m.load <= draft.problem.roof
    return fits[:, 0] & fits[:, 1]


def _ceiling_words(draft: Draft, m: Movable, row: int) -> str:
    problem = draft.problem
    after = draft.joined(m)[row]
    over = int(np.argmax(after - problem.ceiling[row]))
    return (
        f"{problem.nodes[row]} would use {after[over]:.1f} % {RESOURCES[over]}, "
        f"its ceiling is {problem.ceiling[row][over]:g} %"
    )


def _worst_no_worse(draft: Draft, m: Movable) -> Flags | None:
    problem = draft.problem
    if m.maintenance or problem.worst >= problem.highest_ceiling:
        return None
    bearable = draft.joined(m) <= problem.worst + TOLERANCE
    return bearable[:, 0] & bearable[:, 1]


def _worst_words(draft: Draft, m: Movable, row: int) -> str:
    problem = draft.problem
    after = draft.joined(m)[row].max()
    return (
        f"{problem.nodes[row]} would use {after:.1f} %, "
        f"more than the worst node now ({problem.worst:.1f} %)"
    )


def _welcome(draft: Draft, m: Movable) -> Flags:
    return draft.fitting.welcome(m)


def _unwelcome_words(draft: Draft, _: Movable, row: int) -> str:
    return f"{draft.problem.nodes[row]} has a PreferNoSchedule taint that it does not tolerate"


def _hosts(draft: Draft, m: Movable) -> Flags | None:
    return draft.replicas.hosts_free_of(m, draft.gone)


def _host_words(draft: Draft, _: Movable, row: int) -> str:
    return f"{draft.problem.nodes[row]} would have more replicas of it than any host has now"


def _zones(draft: Draft, m: Movable) -> Flags | None:
    return draft.replicas.zones_free_of(m)


def _zone_words(draft: Draft, _: Movable, row: int) -> str:
    return f"the zone of {draft.problem.nodes[row]} would have more replicas than any has now"


def _roomy(draft: Draft, m: Movable) -> Flags:
    return draft.roomy(m)


def _fits_by_itself(draft: Draft, m: Movable) -> Flags | None:
    return None if draft.fitting.has_ties(m) else draft.fitting.possible(m)


def _fits_with_others(draft: Draft, m: Movable) -> Flags | None:
    return draft.possible(m) if draft.fitting.has_ties(m) else None


def _fit_words(draft: Draft, m: Movable, row: int) -> str:
    return f"its replacement does not fit on {draft.problem.nodes[row]}: " + draft.fitting.words(
        m, row
    )


def _spreads(draft: Draft, m: Movable) -> Flags | None:
    return draft.spreads_no_worse(m)


def _spread_words(draft: Draft, _: Movable, row: int) -> str:
    return f"on {draft.problem.nodes[row]} a ScheduleAnyway constraint would be violated more"


CONSTRAINTS: tuple[Constraint, ...] = (
    Constraint("TargetRefused", _takes, _refused_words),
    Constraint("SameNode", _elsewhere, _own_words),
    Constraint("DoesNotFit", _fits_by_itself, _fit_words),
    Constraint("AboveCeiling", _under_ceiling, _ceiling_words, of_room=True),
    Constraint("WorstNodeWorse", _worst_no_worse, _worst_words, of_room=True, in_the_end=True),
    Constraint("NoRoom", _roomy, _fit_words, of_room=True),
    Constraint("StartsNoPods", _starts_pods, _starts_words, yields=True),
    Constraint("Unwelcome", _welcome, _unwelcome_words, yields=True),
    Constraint("PiledUpOnHost", _hosts, _host_words, yields=True),
    Constraint("PiledUpInZone", _zones, _zone_words, yields=True),
    Constraint("DoesNotFit", _fits_with_others, _fit_words),
    Constraint("SpreadWorse", _spreads, _spread_words, yields=True),
)
