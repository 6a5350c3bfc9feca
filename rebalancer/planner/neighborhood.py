# SPDX-License-Identifier: Apache-2.0
"""Which part of a plan the solver may change: all of a small cluster, or the nodes in question.

Of a small cluster, first only the pods of nodes that must give may move, which is solved
soonest, then all, or the largest where pools are leveled and there are many. Of a large one,
each node whose goal is not met is tried for itself, worst first, together with nodes that have
room for its pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Final

import numpy as np

from rebalancer.goals import AtMost, Distribute, Empty
from rebalancer.planner.distribution import givers as givers_of
from rebalancer.planner.draft import Draft
from rebalancer.planner.formulation import Neighborhood
from rebalancer.planner.instance import Flags
from rebalancer.planner.movable import Movable
from rebalancer.planner.resources import highest

COLUMNS: Final = 16_000
"""Pairs of pod and node in one problem."""
LEVELED: Final = 4_000
"""The same where pools are leveled, which is much harder."""
PARTNERS: Final = 11
"""Nodes of a large cluster that take part beside the one in question, all of their pods too."""
FEW: Final = 8
"""Pods of every node that are enough to level a pool with."""
FOCI: Final = 6
"""Nodes of a large cluster that are tried."""


def neighborhoods(draft: Draft) -> Iterator[Neighborhood]:
    """Return the neighborhoods of a plan, the most promising first."""
    problem = draft.problem
    rows = np.flatnonzero(problem.houses).tolist()
    names = [*(goal.node for goal in problem.emptied), *(goal.node for goal in problem.hot)]
    givers = [problem.row_of[name] for name in names]
    near = [m for row in givers for m in problem.movables(row)]
    repaired = _repaired(draft)
    spread = [m for goal in problem.distributions for m in givers_of(draft, goal)]
    near = list(dict.fromkeys((*near, *repaired, *spread)))
    yield from _wishes(draft, rows)
    if not (givers or repaired or spread or problem.spreads):
        return
    most = LEVELED if problem.spreads else COLUMNS
    if len(near) * len(rows) > most:
        yield from _of_large(draft)
        return
    if near and not problem.spreads:
        yield Neighborhood(tuple(rows), tuple(near))
    sources = np.flatnonzero(problem.gives).tolist()
    if _pods_at(draft, sources) * len(rows) <= most:
        yield Neighborhood(tuple(rows), tuple(_helpers(draft, givers, sources)))
        return
    each = most // len(rows) // max(1, len(sources))
    if problem.spreads and each >= FEW:
        yield Neighborhood(tuple(rows), tuple(_largest(draft, sources, each)))
    yield from _of_large(draft)


def _wishes(draft: Draft, rows: Sequence[int]) -> Iterator[Neighborhood]:
    """Return the pods with goals for which no other makes room, those that miss most first."""
    problem = draft.problem
    found = ((problem.relocating(goal), draft.lost(goal)) for goal in problem.relocations.values())
    pods = [(lost, m) for m, lost in found if m is not None and not problem.repairs(m)]
    if any(lost for lost, _ in pods):
        ranked = [m for _, m in sorted(pods, key=lambda each: (-each[0], each[1].number))]
        yield Neighborhood(tuple(rows), tuple(ranked[: LEVELED // len(rows)]))


def _largest(draft: Draft, rows: Sequence[int], each: int) -> list[Movable]:
    """Return so many pods of every node, those that level a pool with the fewest evictions.

    What the plan moves already is among them, so that others may move in its place.
    """
    problem = draft.problem
    found = []
    for row in rows:
        size = highest(problem.loads(row) / problem.capacity[row])
        pods = zip(problem.movables(row), size.tolist(), strict=True)
        ranked = sorted(pods, key=lambda pod: (pod[0] not in draft.moves, -pod[1]))
        found += [m for m, _ in ranked[:each]]
    return found


def _pods_at(draft: Draft, rows: Sequence[int]) -> int:
    problem = draft.problem
    return sum(len(problem.snapshot.nodes[problem.nodes[row]].pods) for row in rows)


def _of_large(draft: Draft) -> Iterator[Neighborhood]:
    uneven = [goal for goal in draft.problem.distributions if not draft.meets(goal)]
    yield from (_of_goal(draft, goal) for goal in uneven[:FOCI])
    for row in _unmet(draft)[:FOCI]:
        hood = _around(draft, row)
        if _room_for(draft, row, hood):
            yield hood


def _unmet(draft: Draft) -> list[int]:
    """Return the rows whose own goal is not met, the worst first."""
    problem = draft.problem
    missed = (g for g in problem.goals if isinstance(g, AtMost | Empty) and not draft.meets(g))
    rows = [problem.row_of[goal.node] for goal in missed]
    rows += [m.row for m in _repaired(draft) if m not in draft.moves and m.row not in rows]
    level = draft.percent().max(axis=1)
    return sorted(set(rows), key=lambda row: (not problem.empty[row], -float(level[row]), row))


def _of_goal(draft: Draft, goal: Distribute) -> Neighborhood:
    """Return the pods that a goal counts, and nodes of the emptiest domains."""
    problem, pods = draft.problem, givers_of(draft, goal)
    topology = draft.domains.domains.of_goal[goal]
    held = np.append(draft.domains.held(topology), 0)[topology.ids]
    order = np.lexsort((draft.percent().max(axis=1), held, topology.ids < 0))
    best = [int(row) for row in order if problem.houses[row]]
    used = [draft.moves[m] for m in pods if m in draft.moves]
    rows = list(dict.fromkeys((*used, *best)))[: max(PARTNERS, COLUMNS // max(1, len(pods)))]
    return Neighborhood(tuple(rows), _fewer(pods, len(rows)))


def _room_for(draft: Draft, row: int, hood: Neighborhood) -> bool:
    """Tell whether what has to leave a node can be elsewhere, however pods are arranged."""
    problem = draft.problem
    over = draft.load[row] - problem.enough[row]
    free = np.maximum(problem.roof - draft.load, 0.0)[list(hood.rows)].sum(axis=0)
    return bool(problem.empty[row] or (free >= over).all())


def _around(draft: Draft, row: int) -> Neighborhood:
    problem = draft.problem
    pods = problem.movables(row)
    wanted = np.zeros(len(problem.nodes))
    for m in pods:
        wanted += draft.targets(m, modeled_aside=True)
    used = [draft.moves[m] for m in pods if m in draft.moves]
    level = draft.percent().max(axis=1)
    order = np.lexsort((level, -wanted))
    # Nodes that hardly any pod may go to help as little as full ones.
    fine: Flags = (wanted > 0) & (draft.load <= problem.roof).all(axis=1)
    best = [int(r) for r in order if fine[r]]
    rows = list(dict.fromkeys((*used, *best)))[:PARTNERS]
    others = _helpers(draft, [row], rows)
    return Neighborhood((row, *rows), _fewer((*pods, *others), len(rows) + 1))


def _helpers(draft: Draft, givers: Sequence[int], rows: Sequence[int]) -> list[Movable]:
    """Return the pods of nodes, of those without a goal only what may help the givers."""
    problem = draft.problem
    helped = [problem.priorities.helping(row) for row in givers]
    helped += [m.priority for m in _repaired(draft)]
    most = max(helped, default=inf)
    leveled = {row for goal in problem.spreads for row in problem.rows(goal).tolist()}
    own = leveled | {row for row in rows if problem.goal_of(row) is not None}
    named = problem.relocations
    return [
        m
        for row in rows
        for m in problem.movables(row)
        if row in own or m.priority <= most or m.pod.uid in named
    ]


def _repaired(draft: Draft) -> list[Movable]:
    """Return the pods for which others make room, and that may be moved."""
    problem = draft.problem
    found = (problem.relocating(goal) for goal in problem.relocations.values())
    return [m for m in found if m is not None and problem.repairs(m) and not problem.gave_up(m)]


def _fewer(pods: Sequence[Movable], rows: int) -> tuple[Movable, ...]:
    """Return as many of the pods as make a problem of modest size."""
    return tuple(pods[: COLUMNS // rows])
