# SPDX-License-Identifier: Apache-2.0
"""A plan in the making: what every node would hold if the moves so far were carried out.

Moves are put in and taken out; loads, requested room, pod slots and replicas follow. What may
be put in is decided by the constraints, all of which read the draft. Each evaluation of a pod
against all nodes is counted, and the count limits the search instead of a clock: the same
input leads to the same plan on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import numpy as np

from common.fit import Change, Leave
from rebalancer.goals import PRECISION, AtMost, Distribute, Empty, Goal, Relocate
from rebalancer.planner import constraints
from rebalancer.planner.domains import DomainCounts, Domains
from rebalancer.planner.fitting import Fitting, Lines
from rebalancer.planner.instance import Flags, Floats, Ints
from rebalancer.planner.movable import Movable
from rebalancer.planner.moved_ties import MovedTies
from rebalancer.planner.pool_spreads import PoolGuard
from rebalancer.planner.problem import Problem
from rebalancer.planner.replicas import Census, Replicas
from rebalancer.planner.resources import every, some
from rebalancer.refusals import Refusal

REMEMBERED: Final = 20_000_000
"""How many flags of answers a draft keeps, a byte each."""
TIED_COST: Final = 10
"""Evaluations that asking about a pod with ties to other pods is counted as."""

MODEST: Final = 2_000_000
"""Pairs of pod and node that may have been evaluated when something is tried once more."""


class Evaluations:
    """How many times a pod was judged against all nodes, and how often it still may be."""

    def __init__(self, most: int, nodes: int = 1) -> None:
        self.spent = 0
        self._most = most
        self._plenty = min(most // 2, MODEST // max(1, nodes))
        self._enough = min(9 * most // 10, MODEST // max(1, nodes))

    @property
    def left(self) -> int:
        return self._most - self.spent

    @property
    def plenty(self) -> bool:
        """Tell whether so little is spent that something may be tried once more."""
        return self.spent <= self._plenty

    @property
    def enough(self) -> bool:
        """Tell whether the result may be improved once more: that comes last."""
        return self.spent <= self._enough

    def spend(self, amount: int = 1) -> None:
        self.spent += amount


class DraftFactory:
    """Makes drafts of one problem, which share answers about fit and count evaluations together."""

    def __init__(self, problem: Problem) -> None:
        demand = problem.demand
        self.problem = problem
        self.fitting = Fitting(demand.cluster.world, problem.nodes)
        self.census = Census(problem, self.fitting)
        self.domains = Domains(problem, self.fitting)
        self.pool_guard = PoolGuard(problem)
        self.evaluations = Evaluations(demand.effort.evaluations, len(problem.nodes))

    def draft(self) -> Draft:
        """Return a draft without any moves."""
        return Draft(self)


class Draft:
    """Loads, room and replicas after some moves."""

    def __init__(self, shared: DraftFactory) -> None:
        self.problem = problem = shared.problem
        self.fitting = shared.fitting
        self.evaluations = shared.evaluations
        self._pool_guard = shared.pool_guard
        self.load: Floats = problem.load.copy(order="K")
        self.free, self.places = self.fitting.room()
        self.replicas = Replicas(shared.census)
        self.domains = DomainCounts(shared.domains)
        self.moves: dict[Movable, int] = {}
        """Target rows, in the order in which the moves were put in."""
        self.left: Ints = np.zeros(len(problem.nodes), dtype=np.int64)
        """How many pods the moves so far take from each node."""
        self.exact = False
        """Ask about pods with ties in the cluster as the moves so far have changed it."""
        self.transient = False
        """Judge ceilings as they hold between two halves of an exchange."""
        self.gone: set[Movable] = set()
        """Moved pods that the next one waits for."""
        self._moved_ties = MovedTies()
        self._lines: dict[int, Lines] = {}
        self._changes: list[Change] = []
        self._moves_in_changes = 0
        """How many of the moves, the first ones, are in it."""
        self._answer: tuple[Movable, int, frozenset[Movable], Flags, Flags | None] | None = None
        self._targets: dict[tuple[int, tuple[bool, ...]], Flags] = {}
        """What was answered since the last change: half of all questions are asked again."""

    def targets(
        self,
        m: Movable,
        *,
        last_resort: bool = False,
        room_aside: bool = False,
        company_aside: bool = False,
        under_way: bool = False,
        modeled_aside: bool = False,
    ) -> Flags:
        """Return the rows that every constraint allows for a pod."""
        self.evaluations.spend()
        aside = (last_resort, room_aside, company_aside, under_way, modeled_aside)
        if self.exact or self.transient or self.gone:
            return self._allowed(m, aside)
        found = self._targets.get((m.number, aside))
        if found is None:
            if len(self._targets) * len(self.problem.nodes) > REMEMBERED:
                self._targets.clear()
            found = self._targets[m.number, aside] = self._allowed(m, aside)
        return found.copy()

    def _allowed(self, m: Movable, aside: tuple[bool, bool, bool, bool, bool]) -> Flags:
        last_resort, room_aside, company_aside, under_way, modeled_aside = aside
        mask: Flags | None = None
        for constraint in constraints.CONSTRAINTS:
            if (last_resort and constraint.yields) or (room_aside and constraint.of_room):
                continue
            if (under_way and constraint.in_the_end) or (modeled_aside and constraint.modeled):
                continue
            if company_aside and constraint.of_company:
                continue
            allowed = constraint.allow(self, m)
            if allowed is None:
                continue
            if mask is None:
                mask = allowed.copy()
            else:
                mask &= allowed
            if not some(mask):
                break
        return mask if mask is not None else self.problem.all_rows.copy()

    def refusals(self, m: Movable, row: int) -> Iterator[Refusal]:
        """Return what every constraint has against a move."""
        for constraint in constraints.CONSTRAINTS:
            allowed = constraint.allow(self, m)
            if allowed is not None and not allowed[row]:
                yield constraint.explain(self, m, row)

    def may_go(self, pods: Sequence[Movable]) -> list[Movable]:
        """Return the pods for which some node has room under its ceiling, as far as load goes.

        Much cheaper than asking for each of them; most pods of a full cluster end here.
        """
        free = (self.problem.roof - self.load)[self.problem.houses]
        free = free[every(free > 0)]
        if not pods or not free.size:
            return []
        free = free[np.argsort(-free[:, 0], kind="stable")]
        # A node with less of all than another adds nothing that the other does not offer.
        best = np.maximum.accumulate(free, axis=0)
        loads = self.problem.load_rows(pods)
        # The nodes with enough of the first stand first; some of them must have the others.
        roomy = np.searchsorted(-free[:, 0], -loads[:, 0], side="right")
        fine = (roomy > 0) & every(best[np.maximum(roomy, 1) - 1] >= loads)
        return [m for m, goes in zip(pods, fine, strict=True) if goes and self.reachable(m)]

    def reachable(self, m: Movable) -> bool:
        """Tell whether a pod could run anywhere else if there were room; asked once per kind."""
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
        self._changes, self._moves_in_changes = [], 0
        self._shift(m, row, -1)
        return row

    def hold(self, row: int, load: Floats, lines: Lines, sign: int = +1) -> None:
        """Count what a node has to keep for a pod that is no move of this plan, or no longer."""
        self.load[row] += sign * load
        self.places[row] -= sign
        for line, amount in lines:
            self.free[line, row] -= sign * amount
        self._targets.clear()

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
        if self.exact and self._asked_again(m):
            return self._answers(m)[0]
        return self.fitting.possible(m)

    def possible_without(self, m: Movable, other: Movable) -> Flags:
        """Return the rows where the replacement fits once another pod is gone, room aside."""
        self.evaluations.spend(TIED_COST)
        return self.fitting.now(m, (*self.changes(), Leave(other.pod.uid)))[0]

    def in_exchange(self, m: Movable) -> Flags:
        """Return the rows that are allowed for a pod until the other half has left."""
        self.transient = True
        found = self.targets(m, under_way=True)
        self.transient = False
        return found

    def pool_levels(self, m: Movable) -> Flags | None:
        """Return the rows to which a pod can go without making a pool uneven."""
        return self._pool_guard.keeping(m, self.load)

    def spreads_no_worse(self, m: Movable) -> Flags | None:
        if self.exact and self._asked_again(m):
            return self._answers(m)[1]
        return self.fitting.spreads_no_worse(m)

    def _asked_again(self, m: Movable) -> bool:
        """Tell whether the moves so far may have changed where a pod can run."""
        return self.fitting.has_ties(m) and self._moved_ties.concern(self.fitting.ties(m))

    def changes(self) -> tuple[Change, ...]:
        """Return what has happened to the cluster by now, as the next replacement sees it."""
        for m, row in islice(self.moves.items(), self._moves_in_changes, None):
            self._changes += self.fitting.move(m, row)
        self._moves_in_changes = len(self.moves)
        if not self.gone:
            return tuple(self._changes)
        gone = sorted(self.gone, key=lambda m: m.number)
        return (*self._changes, *(Leave(m.pod.uid) for m in gone))

    def at(self, row: int) -> list[Movable]:
        """Return the pods that the moves so far bring to a node."""
        return [m for m, target in self.moves.items() if target == row]

    def meets(self, goal: Goal) -> bool:
        """Tell whether a goal is met once all moves are made."""
        problem = self.problem
        if isinstance(goal, AtMost):
            row = problem.row_of[goal.node]
            return bool((self.load[row] <= problem.enough[row]).all())
        if isinstance(goal, Empty):
            return all(m in self.moves for m in problem.judged(problem.row_of[goal.node]))
        if isinstance(goal, Relocate):
            return self._relocates(goal)
        if isinstance(goal, Distribute):
            return self.domains.missing(goal) == 0
        return problem.gap(goal, self.load) <= goal.points + PRECISION

    def _relocates(self, goal: Relocate) -> bool:
        m = self.problem.relocating(goal)
        row = self.moves.get(m) if m is not None else None
        return m is not None and row is not None and self.problem.suits(m, row)

    def lost(self, goal: Goal) -> float:
        """Return how much of what a goal about pods asks for is not reached."""
        if isinstance(goal, Relocate):
            m = self.problem.relocating(goal)
            row = self.moves.get(m) if m is not None else None
            return self.problem.lost(goal, m, row)
        return float(isinstance(goal, Distribute) and not self.meets(goal))

    def percent(self) -> Floats:
        return self.problem.percent(self.load)

    def joined(self, m: Movable) -> Floats:
        """[N, R] utilization of every node with one more pod."""
        return self.problem.percent(self.load + m.load)

    def _answers(self, m: Movable) -> tuple[Flags, Flags | None]:
        gone = frozenset(self.gone)
        if self._answer is None or self._answer[:3] != (m, len(self.moves), gone):
            self.evaluations.spend(TIED_COST)
            self._answer = (m, len(self.moves), gone, *self.fitting.now(m, self.changes()))
        return self._answer[3:]

    def _shift(self, m: Movable, row: int, sign: int) -> None:
        load = m.load if sign > 0 else -m.load
        self.load[m.row] -= load
        self.load[row] += load
        for line, amount in self.lines(m):
            self.free[line, row] -= sign * amount
        for line, amount in self.fitting.held(m):
            self.free[line, m.row] += sign * amount
        self.left[m.row] += sign
        self.places[row] -= sign
        self.places[m.row] += sign
        self.replicas.shift(m, row, sign)
        self.domains.shift(m, row, sign)
        self._moved_ties.shift(self.fitting.ties(m), sign)
        self._answer = None
        self._targets.clear()

    def _heighten(self, lines: Lines) -> None:
        """Make room for resources that no node was known to have."""
        height = max((line for line, _ in lines), default=0) + 1
        missing = height - self.free.shape[0]
        if missing > 0:
            none = np.zeros((missing, self.free.shape[1]), dtype=self.free.dtype)
            self.free = np.concatenate([self.free, none])
