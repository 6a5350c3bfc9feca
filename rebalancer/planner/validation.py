# SPDX-License-Identifier: Apache-2.0
"""Validates a plan again on newer samples: what still holds is carried out.

Chains are checked in their order. A chain that no longer fits, is no longer needed or no
longer gains is dropped whole, with the reason; a target may change to one of the move's
ranked alternatives; nothing is added. The result is put in order as the planner does it: it
holds as it is, and within every limit as of now. Chains of which one has come to wait for
another are one from then on.
Pods that earlier moves have on their way count as arrived, and as not yet gone.

Pure: the moves, a new demand and objections in, a value out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np

from common.api.migrations import MoveReason, Purpose
from common.cluster.records import NodeName
from common.cluster.resources import Resources
from rebalancer.goals import AtMost
from rebalancer.planner.assembly import REASONS
from rebalancer.planner.constraints import (
    FINE,
    compared_levels,
    left_above_ceiling,
    not_worth_it,
)
from rebalancer.planner.cycle import cut, in_turn
from rebalancer.planner.draft import Draft, DraftFactory
from rebalancer.planner.fitting import Lines
from rebalancer.planner.movable import Movable
from rebalancer.planner.ordering import Step, settle
from rebalancer.planner.plan import Chain, Level, Move, Objection
from rebalancer.planner.pool_spreads import clearly_wide
from rebalancer.planner.problem import Demand, Problem
from rebalancer.projection import on_their_way
from rebalancer.refusals import Reason, Refusal, unjudgeable
from rebalancer.strategies import ClusterView

NOT_NEEDED: Final = Reason.NO_LONGER_NEEDED.refusal()


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """A chain that is not carried out."""

    moves: Chain
    why: Refusal

    @property
    def message(self) -> str:
        pods = ", ".join(move.pod for move in self.moves)
        verb = "is" if len(self.moves) == 1 else "are"
        return f"{pods} {verb} not moved after all: {self.why.message}"


class Revalidated(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a plan."""

    chains: tuple[Chain, ...]
    """To be carried out, with the targets, alternatives and needs of now."""
    dropped: tuple[Dropped, ...]
    after: Mapping[NodeName, Level]
    """Every touched node once all of it is carried out."""

    @property
    def needless(self) -> int:
        """How many evictions turned out not to be needed."""
        return sum(len(each.moves) for each in self.dropped if each.why is NOT_NEEDED)


def revalidate(
    chains: Iterable[Chain], demand: Demand, objections: Sequence[Objection] = ()
) -> Revalidated:
    """Return the chains that still hold; the demand is made of the newer samples."""
    review = _Review(demand, objections)
    dropped = []
    for chain in chains:
        try:
            why = review.take(chain)
        except Exception as error:  # the chain is dropped with this reason; the others go on
            why = unjudgeable(error)
        if why is not None:
            dropped.append(Dropped(moves=chain, why=why))
    return Revalidated(chains=review.chains(), dropped=tuple(dropped), after=review.after())


class _Review:
    """The chains that hold so far, and the cluster after them."""

    def __init__(self, demand: Demand, objections: Sequence[Objection]) -> None:
        self._objections = objections
        self._problem = Problem(demand)
        self._drafts = DraftFactory(self._problem)
        self._inbound = list(_inbound(demand.cluster, self._problem))
        self._after = self._draft()
        self._kept: list[dict[Movable, Move]] = []
        self._order: list[list[Step]] = []

    def take(self, chain: Chain) -> Refusal | None:
        """Keep a chain, or return why not."""
        found = self._movables(chain)
        if isinstance(found, Refusal):
            return found
        if not any(self._needed(m, move) for m, move in found.items()):
            return NOT_NEEDED
        refusal: Refusal | None = None
        for rows in self._options(found):
            why = self._try(found, rows)
            if why is None:
                return None
            refusal = refusal or why
        return refusal or Reason.TARGET_GONE.refusal("revalidated")

    def chains(self) -> tuple[Chain, ...]:
        """Return what is kept, as moves."""
        moves = {m: move for kept in self._kept for m, move in kept.items()}
        return tuple(
            tuple(self._move(moves[step.m], step, moves[chain[0].m].chain) for step in chain)
            for chain in self._order
        )

    def after(self) -> dict[NodeName, Level]:
        """Return the utilization of the touched nodes."""
        percent, moves = self._after.percent(), self._after.moves
        rows = sorted({m.row for m in moves} | set(moves.values()))
        return {self._problem.nodes[row]: self._problem.level(row, percent[row]) for row in rows}

    def _movables(self, chain: Chain) -> dict[Movable, Move] | Refusal:
        found: dict[Movable, Move] = {}
        for move in chain:
            m = self._movable(move)
            if isinstance(m, Refusal):
                return m
            found[m] = move
        return found

    def _movable(self, move: Move) -> Movable | Refusal:
        problem, row = self._problem, self._problem.row_of.get(move.source)
        pods = problem.judged(row) if row is not None else ()
        m = next((m for m in pods if m.pod.uid == move.uid), None)
        if m is not None:
            return m
        refusals = problem.refused.get(move.uid, ())
        if refusals:
            return refusals[0]
        if move.uid not in problem.snapshot.pods:
            return Reason.POD_GONE.refusal()
        return Reason.SOURCE_REFUSED.refusal("meanwhile", node=move.source)

    def _needed(self, m: Movable, move: Move) -> bool:
        problem, goal = self._problem, self._problem.goal_of(m.row)
        if m.has_to_leave or m.pod.uid in problem.relocations:
            return True
        if move.reason == MoveReason.TOPOLOGY_SPREAD:
            return self._spreads(m, move)
        if move.reason in REASONS.values():
            return False
        if move.purpose is Purpose.MAINTENANCE:
            return False
        if isinstance(goal, AtMost) and not self._after.meets(goal):
            return True
        # A node above its ceiling mostly stands out of its pool too, and the plan met both.
        return any(
            not self._after.meets(spread)
            for spread in problem.spreads
            if move.source in spread.nodes or move.target in spread.nodes
        )

    def _spreads(self, m: Movable, move: Move) -> bool:
        """Tell whether a pod is spread better with this move."""
        row = self._problem.row_of.get(move.target)
        if row is None or not self._problem.distributes(m.pod):
            return False
        self._after.put(m, row)
        helps = self._after.domains.evens(m) is not None
        self._after.take_out(m)
        return helps

    def _options(self, found: Mapping[Movable, Move]) -> Iterator[dict[Movable, int]]:
        """Yield targets: the planned ones, then one alternative at a time, best first."""
        row_of = self._problem.row_of
        planned = {m: row_of[move.target] for m, move in found.items() if move.target in row_of}
        if len(planned) == len(found):
            yield planned
        for m, move in found.items():
            rest = {other: row for other, row in planned.items() if other is not m}
            if len(rest) == len(found) - 1:
                for name in move.alternatives:
                    if name in row_of:
                        yield {**rest, m: row_of[name]}

    def _try(self, found: Mapping[Movable, Move], rows: Mapping[Movable, int]) -> Refusal | None:
        refusal = self._objection(found, rows)
        if refusal is not None:
            return refusal
        moves = {**self._after.moves, **rows}
        last_resort = {m for m in moves if m.maintenance}
        together = [pair for kept in (*self._kept, found) for pair in pairwise(kept)]
        settled, left_out = settle(self._draft, moves, last_resort, together)
        order = [in_turn(self._problem, chain) for chain in settled]
        if left_out:
            return self._unfit(rows, left_out)
        refusal = (
            self._beyond_limits(found, order)
            or left_above_ceiling(self._problem, self._after.load, list(rows.items()))
            or self._not_worth_it(found, rows)
        )
        if refusal is not None:
            return refusal
        for m, row in rows.items():
            self._after.put(m, row)
        self._kept.append(dict(found))
        self._order = order
        return None

    def _objection(
        self, found: Mapping[Movable, Move], rows: Mapping[Movable, int]
    ) -> Refusal | None:
        names = self._problem.nodes
        asked = (
            objects(move, names[rows[m]])
            for m, move in found.items()
            for objects in self._objections
        )
        return next((why for why in asked if why is not None), None)

    def _unfit(self, rows: Mapping[Movable, int], left_out: Sequence[Movable]) -> Refusal:
        for m in (m for m in left_out if m in rows):
            found = next(iter(self._after.refusals(m, rows[m])), None)
            if found is not None:
                return found
        return Reason.NO_ORDER.refusal("meanwhile")

    def _beyond_limits(
        self, found: Mapping[Movable, Move], order: Sequence[Sequence[Step]]
    ) -> Refusal | None:
        steps = {step.m: step for chain in order for step in chain}
        groups = [[steps[m] for m in kept] for kept in (*self._kept, found)]
        moves = {m: move for kept in (*self._kept, found) for m, move in kept.items()}
        verdicts = cut(self._problem, groups, lambda m: self._held(m, moves[m]))
        limit = next((verdicts[m] for m in found if verdicts[m]), "")
        return Reason.DEFERRED.refusal(limit=limit) if limit else None

    def _held(self, m: Movable, move: Move) -> Refusal | None:
        rules = self._problem.demand.cluster.rules
        return rules.held(move.strategy, move.reason, move.source, m.pod.namespace)

    def _not_worth_it(
        self, found: Mapping[Movable, Move], rows: Mapping[Movable, int]
    ) -> Refusal | None:
        own = self._problem.relocations
        if any(m.has_to_leave or self._relieves(found[m]) or m.pod.uid in own for m in rows):
            return None
        if any(move.reason == MoveReason.TOPOLOGY_SPREAD for move in found.values()):
            return None  # each is needed, or the chain would have been dropped
        before, after = compared_levels(self._problem, self._after.load, list(rows.items()))
        return not_worth_it(
            before,
            after,
            axes=self._axes(found),
            evictions=len(rows),
            min_gain=self._problem.demand.cluster.config.min_gain * self._share(found.values()),
        )

    def _relieves(self, move: Move) -> bool:
        return move.relieves and move.reason != MoveReason.SPREAD

    def _share(self, moves: Iterable[Move]) -> float:
        """Return which share of `minGain` a chain has to gain: less where a pool is leveled."""
        problem = self._problem
        leveled = (m for m in moves if m.relieves and m.reason == MoveReason.SPREAD)
        rows = [problem.row_of[move.source] for move in leveled]
        wide = (problem.inside(g)[rows].any() for g in problem.spreads if clearly_wide(problem, g))
        return FINE if any(wide) else 1.0

    def _axes(self, found: Mapping[Movable, Move]) -> Sequence[int]:
        """Return the resources that the goals of the chain are about."""
        goals = [self._problem.goal_of(m.row) for m in found]
        axes = {d.axis for goal in goals if isinstance(goal, AtMost) for d in goal.broken}
        if not axes or any(move.reason == MoveReason.SPREAD for move in found.values()):
            axes |= {goal.dimension.axis for goal in self._problem.spreads}
        return sorted(axes) or self._problem.axes

    def _draft(self) -> Draft:
        draft = self._drafts.draft()
        unknown = (0.0,) * (len(self._problem.axes) - 2)
        for row, load, lines in self._inbound:
            draft.hold(row, np.array((*load, *unknown)), lines)
        return draft

    def _move(self, move: Move, step: Step, chain: int) -> Move:
        names = self._problem.nodes
        return msgspec.structs.replace(
            move,
            target=names[step.row],
            alternatives=tuple(names[row] for row in step.alternatives),
            chain=chain,
            needs=tuple(need.pod.uid for need in step.needs),
            cpu_milli=step.m.cpu_milli,
            mem_bytes=step.m.mem_bytes,
        )


def _inbound(
    cluster: ClusterView, problem: Problem
) -> Iterator[tuple[int, tuple[float, float], Lines]]:
    """Yield the row, load and requests of every pod that is on its way to a node."""
    for migration in on_their_way(cluster.snapshot):
        row = problem.row_of.get(migration.target)
        if row is None:
            continue
        asked = Resources(round(migration.requests_cpu_milli), round(migration.requests_mem_bytes))
        load = (migration.load_cpu_milli, migration.load_mem_bytes)
        yield row, load, tuple(cluster.world.index.occupancy.lines(asked))
