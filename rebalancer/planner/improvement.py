# SPDX-License-Identifier: Apache-2.0
"""A better plan by exact search: the solver arranges a part of the plan once more.

It is asked where goals stay unmet, pods go where they should not as a last resort, or fewer
evictions might do. What it finds is taken only if it can be put in order, keeps every rule at
every step, and is better: so whatever the solver says, or if it says nothing, a plan is never
worse than without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from rebalancer.planner.draft import Draft, DraftFactory
from rebalancer.planner.formulation import Formulation, Neighborhood
from rebalancer.planner.movable import Movable
from rebalancer.planner.neighborhood import neighborhoods
from rebalancer.planner.program import Solve

RETRIES: Final = 12
"""Solutions of one neighborhood that are tried when the first has no order."""
SOLVED: Final = 16
"""Problems that are solved for one plan."""
TREE: Final = 200
"""Nodes of the search tree for one problem; most are solved at its root."""

Moves = dict[Movable, int]
Rank = tuple[int, int, int, float, int, int]
"""Pods that are stuck, ceilings and spreads that are unmet, what goals about pods are short of,
last resorts, evictions."""


def _better(reached: Rank, rank: Rank) -> bool:
    """Tell whether more goals are met, with fewer last resorts, or all with fewer evictions.

    Evictions that only approach a goal are no reason to prefer a plan without them.
    """
    return reached[:5] < rank[:5] or (not any(rank[:5]) and reached < rank)


class Improvement:
    """Looks for a better plan."""

    def __init__(
        self,
        drafts: DraftFactory,
        solve: Solve,
        ranked: Callable[[Moves], Rank | None],
    ) -> None:
        """A plan is ranked by what is left of it in order; None if a move has to be left out."""
        self._drafts = drafts
        self._solve = solve
        self._ranked = ranked
        self._left = SOLVED

    def run(self, moves: Mapping[Movable, int], rank: Rank, bound: int) -> Moves | None:
        """Return better moves, or None; a plan that meets all with `bound` moves is the best."""
        best, found = dict(moves), False
        for hood in _each_once(neighborhoods(self._draft(best))):
            if not any(rank[:5]) and rank[5] <= bound:
                break
            better = self._better(hood, best, rank)
            if better is not None:
                best, rank = better
                found = True
        return best if found else None

    def _draft(self, moves: Mapping[Movable, int]) -> Draft:
        draft = self._drafts.draft()
        for m, row in moves.items():
            draft.put(m, row)
        return draft

    def _better(self, hood: Neighborhood, moves: Moves, rank: Rank) -> tuple[Moves, Rank] | None:
        kept = {m: row for m, row in moves.items() if m not in hood.pods}
        strict = rank[:2] == (0, 0) and not rank[3]
        base = self._draft(kept)
        asked = Formulation(base, self._drafts.census, hood, strict=strict)
        if asked.empty:
            return None
        best: tuple[Moves, Rank] | None = None
        for _ in range(RETRIES):
            if self._left <= 0:
                break
            self._left -= 1
            answer = self._solve(asked.problem(nodes=TREE))
            changed = asked.moves(answer) if answer is not None else None
            # Solutions become no cheaper: where all goals are met, fewer moves are wanted.
            if changed is None or (not any(rank[:5]) and len(kept) + len(changed) >= rank[5]):
                break
            reached = self._ranked(kept | changed)
            if reached is None:
                asked.exclude(changed)
                continue
            if not _better(reached, rank):
                break
            best, rank = (kept | changed, reached), reached
            if any(rank[:5]) or (answer is not None and answer.proven):
                break  # the best that the solver knows: what comes after it is no better
            asked.fewer(changed)
        return best


def _each_once(hoods: Iterable[Neighborhood]) -> Iterator[Neighborhood]:
    """Yield each neighborhood, then with places that are open only after other moves."""
    seen: dict[tuple[tuple[int, ...], frozenset[Movable]], Neighborhood] = {}
    for hood in hoods:
        if seen.setdefault((hood.rows, frozenset(hood.pods)), hood) is hood:
            yield hood
    for hood in seen.values():
        if any(constraint.hard for m in hood.pods for constraint in m.pod.shape.spread):
            yield replace(hood, domains_aside=True)
