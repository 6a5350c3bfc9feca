"""A plan in the making: what every node would hold if the moves so far were carried out.

Moves are put in and taken out; loads, requested room, places and replicas follow. What may
be put in is for the constraints to say, all of which look at the draft. Each question about
a pod and all nodes is counted, and the count is the planner's budget: the same input leads
to the same plan on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import numpy as np

from common.fit import Change, Leave
from rebalancer.planner import constraints
from rebalancer.planner.fitting import Fitting, Lines
from rebalancer.planner.instance import Flags, Floats, Ints
from rebalancer.planner.movable import Movable
from rebalancer.planner.problem import Problem
from rebalancer.planner.replicas import Census, Replicas
from rebalancer.reasons import Refusal

TIED_COST: Final = 10
"""Asking about a pod with ties to others costs about as much as so many others."""

MODEST: Final = 2_000_000
"""Pairs of pod and node that may have been judged when something is tried once more."""


class Effort:
    """How many evaluations are left."""

    def __init__(self, evaluations: int, nodes: int = 1) -> None:
        self.evaluations = evaluations
        self.spent = 0
        self._modest = min(evaluations // 2, MODEST // max(1, nodes))
        self._most = min(9 * evaluations // 10, MODEST // max(1, nodes))

    @property
    def left(self) -> int:
        return self.evaluations - self.spent

    @property
    def plenty(self) -> bool:
        """Tell whether so little is spent that something may be tried once more."""
        return self.spent <= self._modest

    @property
    def enough(self) -> bool:
        """Tell whether the result may be looked at once more: that comes last."""
        return self.spent <= self._most

    def spend(self, amount: int = 1) -> None:
        self.spent += amount


class Draft:
    """Loads, room and replicas after some moves."""

    def __init__(self, problem: Problem, fitting: Fitting, census: Census, effort: Effort) -> None:
        self.problem = problem
        self.fitting = fitting
        self.effort = effort
        self.load: Floats = problem.load.copy(order="K")
        self.free, self.places = fitting.room()
        self.replicas = Replicas(census)
        self.moves: dict[Movable, int] = {}
        """Target rows, in the order in which the moves were put in."""
        self.left: Ints = np.zeros(len(problem.nodes), dtype=np.int64)
        """How many pods the moves so far take from each node."""
        self.exact = False
        """Ask about pods with ties in the world that the moves have made so far."""
        self.gone: set[Movable] = set()
        """Moved pods that the next one waits for."""
        self._lines: dict[int, Lines] = {}
        self._told: list[Change] = []
        self._told_moves = 0
        """How many of the moves, the first ones, are in it."""
        self._answer: tuple[Movable, int, frozenset[Movable], Flags, Flags | None] | None = None

    def targets(
        self,
        m: Movable,
        *,
        last_resort: bool = False,
        room_aside: bool = False,
        under_way: bool = False,
    ) -> Flags:
        """Return the rows that every constraint allows for a pod."""
        self.effort.spend()
        mask: Flags | None = None
        for constraint in constraints.CONSTRAINTS:
            if (last_resort and constraint.yields) or (room_aside and constraint.of_room):
                continue
            if under_way and constraint.in_the_end:
                continue
            allowed = constraint.allow(self, m)
            if allowed is None:
                continue
            if mask is None:
                mask = allowed.copy()
            else:
                mask &= allowed
            if not mask.any():
                break
        return mask if mask is not None else np.ones(len(self.problem.nodes), dtype=np.bool_)

    def refusals(self, m: Movable, row: int) -> Iterator[Refusal]:
        """Return what every constraint has against a move."""
        for constraint in constraints.CONSTRAINTS:
            allowed = constraint.allow(self, m)
            if allowed is not None and not allowed[row]:
                words = constraint.words(self, m, row)
                yield Refusal(constraint.name, words, for_good=False)

    def may_go(self, pods: Sequence[Movable]) -> list[Movable]:
        """Return the pods for which some node has room under its ceiling, as far as load goes.

        Much cheaper than asking for each of them; most pods of a full cluster end here.
        """
        free = (self.problem.roof - self.load)[self.problem.houses]
        # A node with less of both than another proves nothing that the other does not.
        free = free[(free > 0).all(axis=1)]
        if not pods or not free.size:
            return []
        free = free[np.argsort(-free[:, 0], kind="stable")]
        best = np.maximum.accumulate(free[:, 1])
        loads = np.array([m.load for m in pods])
        # The nodes with enough of the one stand first; the best of them must have the other.
        roomy = np.searchsorted(-free[:, 0], -loads[:, 0], side="right")
        fine = (roomy > 0) & (best[np.maximum(roomy, 1) - 1] >= loads[:, 1])
        return [m for m, goes in zip(pods, fine, strict=True) if goes and self.reachable(m)]

    def reachable(self, m: Movable) -> bool:
        """Tell whether a pod could run anywhere else if there were room; asked once a kind."""
        key = (self.fitting.kind(m), m.maintenance)
        found = self.fitting.reachable.get(key)
        if found is None:
            takes = self.problem.shelters if m.maintenance else self.problem.takes
            cool = (self.problem.load <= self.problem.limit).all(axis=1)
            found = bool((takes & cool & self.fitting.possible(m)).any())
            self.fitting.reachable[key] = found
        return found

    def put(self, m: Movable, row: int) -> None:
        """Move a pod to a node."""
        self.moves[m] = row
        self._shift(m, row, +1)

    def take_out(self, m: Movable) -> int:
        """Leave a pod where it was; return where it would have gone."""
        row = self.moves.pop(m)
        self._told, self._told_moves = [], 0
        self._shift(m, row, -1)
        return row

    def back_to(self, before: Mapping[Movable, int]) -> None:
        """Undo and redo what differs from these moves."""
        for m in [m for m, row in self.moves.items() if before.get(m) != row]:
            self.take_out(m)
        for m, row in before.items():
            if m not in self.moves:
                self.put(m, row)

    def lines(self, m: Movable) -> Lines:
        """Return what the replacement asks for."""
        found = self._lines.get(m.number)
        if found is None:
            found = self._lines[m.number] = self.fitting.lines(m)
            self._heighten(found)
        return found

    def roomy(self, m: Movable) -> Flags:
        """Return the rows with room for what the replacement asks for."""
        lines = self.lines(m)
        found = self.places > 0
        for line, amount in lines:
            found &= self.free[line] >= amount
        return found

    def possible(self, m: Movable) -> Flags:
        """Return the rows where the replacement fits, room aside."""
        if self.exact and self.fitting.has_ties(m):
            return self._answers(m)[0]
        return self.fitting.possible(m)

    def spreads_no_worse(self, m: Movable) -> Flags | None:
        if self.exact and self.fitting.has_ties(m):
            return self._answers(m)[1]
        return self.fitting.spreads_no_worse(m)

    def changes(self) -> tuple[Change, ...]:
        """Return what has happened to the cluster by now, as the next replacement sees it."""
        for m, row in islice(self.moves.items(), self._told_moves, None):
            self._told += self.fitting.move(m, row)
        self._told_moves = len(self.moves)
        if not self.gone:
            return tuple(self._told)
        gone = sorted(self.gone, key=lambda m: m.number)
        return (*self._told, *(Leave(m.pod.uid) for m in gone))

    def at(self, row: int) -> list[Movable]:
        """Return the pods that the moves so far bring to a node."""
        return [m for m, target in self.moves.items() if target == row]

    def percent(self) -> Floats:
        return self.problem.percent(self.load)

    def joined(self, m: Movable) -> Floats:
        """[N, 2] utilisation of every node with a pod more."""
        return self.problem.percent(self.load + m.load)

    def _answers(self, m: Movable) -> tuple[Flags, Flags | None]:
        gone = frozenset(self.gone)
        if self._answer is None or self._answer[:3] != (m, len(self.moves), gone):
            self.effort.spend(TIED_COST)
            self._answer = (m, len(self.moves), gone, *self.fitting.now(m, self.changes()))
        return self._answer[3:]

    def _shift(self, m: Movable, row: int, sign: int) -> None:
        self.load[m.row] -= sign * m.load
        self.load[row] += sign * m.load
        for line, amount in self.lines(m):
            self.free[line, row] -= sign * amount
        for line, amount in self.fitting.held(m):
            self.free[line, m.row] += sign * amount
        self.left[m.row] += sign
        self.places[row] -= sign
        self.places[m.row] += sign
        self.replicas.shift(m, row, sign)
        self._answer = None

    def _heighten(self, lines: Lines) -> None:
        """Make room for resources that no node was known to have."""
        height = max((line for line, _ in lines), default=0) + 1
        missing = height - self.free.shape[0]
        if missing > 0:
            none = np.zeros((missing, self.free.shape[1]), dtype=self.free.dtype)
            self.free = np.concatenate([self.free, none])
