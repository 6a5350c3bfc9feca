# SPDX-License-Identifier: Apache-2.0
"""In which order the moves can be made, and which of them wait for others.

An eviction takes an unknown time, and several run at once. So a pod that leaves counts as
still there, with its load and its requests, for every later move except those that name it
in `needs` and wait until it is gone. What holds in this order then holds whichever of the
moves have been carried out, as long as no move overtakes what it waits for. Each step is
checked against every constraint once more: what cannot be ordered is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import numpy as np

from rebalancer.planner.draft import Draft
from rebalancer.planner.instance import Flags, Floats
from rebalancer.planner.movable import Movable
from rebalancer.planner.pool_levels import smallest
from rebalancer.planner.problem import Problem
from rebalancer.planner.resources import highest

SETTLING: Final = 6
"""How many times chains are arranged again."""
OPENINGS: Final = 100
"""Orders that are tried where moves wait for each other."""
PAIRS: Final = 200_000
"""Pairs of a move and a node that may be judged for that."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One move at its place in the order."""

    m: Movable
    row: int
    needs: tuple[Movable, ...]
    alternatives: tuple[int, ...]


@dataclass(slots=True)
class Order:
    """The moves that can be made, and those that cannot."""

    steps: list[Step] = field(default_factory=list)
    left_out: list[Movable] = field(default_factory=list)
    opened: list[tuple[Movable, Movable]] = field(default_factory=list)
    """Moves onto a node that is too full until another pod has left it, with that one."""
    skipped: list[int] = field(default_factory=list)
    """How many moves were passed over each time that one had to begin an exchange."""


def arrange(
    draft: Draft,
    moves: Mapping[Movable, int],
    last_resort: Collection[Movable] = (),
    preferred: Sequence[Movable] = (),
    openers: Collection[Movable] = (),
    detour: Detour | None = None,
) -> Order:
    """Order moves such that every step is allowed when it comes.

    The worst source comes first unless another order is preferred. Where all that is left waits
    for each other, one of them goes first, within the transient ceiling; the openers need not
    wait for that. The draft is a fresh one and is used up.
    """
    problem = draft.problem
    late = set(detour.late) if detour is not None else set[Movable]()
    skipped = detour.skipped if detour is not None else ()
    table = _Table(problem, draft, last_resort)
    waiting = list(preferred) or sorted(moves, key=lambda m: _urgency(problem, m))
    order = Order()
    while waiting:
        blocked: list[Movable] = []
        for number, m in enumerate(waiting):
            step = table.step(m, moves[m]) if m not in late else None
            if step is None and m in openers:
                opening = _opening(table, m, moves, [*blocked, *waiting[number + 1 :]])
                step = _open(table, opening, order) if opening is not None else None
            if step is None:
                blocked.append(m)
            else:
                order.steps.append(step)
        if len(blocked) == len(waiting):
            number = len(order.skipped)
            passed_over = skipped[number] if number < len(skipped) else 0
            tried = (
                opening
                for waits in (False, True)
                for m in blocked
                if m not in late
                and (opening := _opening(table, m, moves, blocked, waits=waits)) is not None
            )
            opening = next(islice(tried, passed_over, None), None)
            if opening is None and late:
                late.clear()
                continue
            if opening is None:
                order.left_out = blocked
                break
            order.skipped.append(passed_over)
            first = _open(table, opening, order)
            order.steps.append(first)
            blocked.remove(first.m)
        waiting = blocked
    return order


@dataclass(frozen=True, slots=True)
class Detour:
    """What is done otherwise than in the first order, which has left moves out."""

    late: tuple[Movable, ...] = ()
    """Moves that come only when no other one can."""
    skipped: tuple[int, ...] = ()
    """For each time that one has to begin an exchange, how many that could are passed over."""


@dataclass(frozen=True, slots=True, eq=False)
class _Opening:
    """A move that could begin an exchange or a cycle: it goes where others leave later."""

    m: Movable
    row: int
    needs: tuple[Movable, ...]
    leaving: list[Movable]


def _opening(
    table: _Table,
    m: Movable,
    moves: Mapping[Movable, int],
    later: Sequence[Movable],
    *,
    waits: bool = True,
) -> _Opening | None:
    """Return how a pod could begin one; it may have to wait for pods that left before."""
    leaving = [q for q in later if q.row == moves[m] and q is not m]
    needs = table.needs_to_begin(m, moves[m], waits=waits) if leaving else None
    return _Opening(m, moves[m], needs, leaving) if needs is not None else None


def _open(table: _Table, opening: _Opening, order: Order) -> Step:
    order.opened += [(opening.m, q) for q in opening.leaving]
    return table.begin(opening.m, opening.row, opening.needs)


class _Table:
    """The draft in which pods that left still count where they were."""

    def __init__(self, problem: Problem, draft: Draft, last_resort: Collection[Movable]) -> None:
        self._problem = problem
        self._draft = draft
        self._draft.exact = True
        self._last_resort = last_resort
        self._left: dict[int, list[Movable]] = {}

    def step(self, m: Movable, row: int) -> Step | None:
        """Make a move if it is allowed now; return it with the pods that it waits for."""
        mask = self._draft.targets(m, last_resort=m in self._last_resort)
        needs: tuple[Movable, ...] = ()
        if not mask[row] and not self._under_way(m)[row]:
            found = self._needed(m, row, self._under_way)
            if found is None:
                return None
            needs = found
        alternatives = self._next_best(m, row, mask)
        self._make(m, row)
        return Step(m, row, needs, alternatives)

    def needs_to_begin(self, m: Movable, row: int, *, waits: bool) -> tuple[Movable, ...] | None:
        """Return the pods that the first half of an exchange waits for.

        None if the transient ceiling does not allow it.
        """
        if self._draft.in_exchange(m)[row]:
            return ()
        return self._needed(m, row, self._draft.in_exchange) if waits else None

    def begin(self, m: Movable, row: int, needs: tuple[Movable, ...]) -> Step:
        """Make the first half of an exchange."""
        self._make(m, row)
        return Step(m, row, needs, ())

    def _make(self, m: Movable, row: int) -> None:
        self._draft.put(m, row)
        self._hold(m, +1)
        self._left.setdefault(m.row, []).append(m)

    def _under_way(self, m: Movable) -> Flags:
        """Return where a pod may go as one of several moves that belong together."""
        return self._draft.targets(m, last_resort=m in self._last_resort, under_way=True)

    def _needed(
        self, m: Movable, row: int, judge: Callable[[Movable], Flags]
    ) -> tuple[Movable, ...] | None:
        """Return as few pods as possible that must be gone first; None if even all are too few."""
        left = sorted(self._left.get(row, ()), key=lambda q: (-q.load.max(), q.number))
        gone = self._draft.gone
        allowed = False
        for q in left:
            self._let_go(q)
            allowed = bool(judge(m)[row])
            if allowed:
                break
        for q in [q for q in left if q in gone][:-1] if allowed else ():
            self._keep(q)
            if not judge(m)[row]:
                self._let_go(q)
        needs = tuple(q for q in left if q in gone)
        for q in needs:
            self._keep(q)
        return needs if allowed else None

    def _let_go(self, m: Movable) -> None:
        self._hold(m, -1)
        self._draft.gone.add(m)

    def _keep(self, m: Movable) -> None:
        self._hold(m, +1)
        self._draft.gone.discard(m)

    def _hold(self, m: Movable, sign: int) -> None:
        """Keep what a moved pod holds where it was, or let it go after all."""
        self._draft.hold(m.row, m.load, self._draft.fitting.held(m), sign)

    def _next_best(self, m: Movable, row: int, mask: Flags) -> tuple[int, ...]:
        """Return the next best targets, the least loaded first."""
        rows = np.flatnonzero(mask)
        rows = rows[rows != row]
        level = highest(self._draft.joined(m))[rows]
        best = smallest(level, level, self._problem.demand.effort.alternatives)
        return tuple(int(r) for r in rows[best])


def chains(steps: list[Step], together: Iterable[tuple[Movable, Movable]] = ()) -> list[list[Step]]:
    """Return the moves that belong together, in their order.

    These are moves that wait for each other, and pairs that make sense only together.
    """
    leader: dict[Movable, Movable] = {step.m: step.m for step in steps}

    def find(m: Movable) -> Movable:
        while leader[m] is not m:
            m = leader[m]
        return m

    for step in steps:
        for need in step.needs:
            leader[find(step.m)] = find(need)
    for one, other in together:
        if one in leader and other in leader:
            leader[find(one)] = find(other)
    found: dict[Movable, list[Step]] = {}
    for step in steps:
        found.setdefault(find(step.m), []).append(step)
    return list(found.values())


def _fullest(
    fresh: Callable[[], Draft], moves: Mapping[Movable, int], last_resort: Collection[Movable]
) -> Order:
    """Order moves; where some are left out, try other orders, as many as are affordable."""
    best = order = arrange(fresh(), moves, last_resort)
    late: list[tuple[Movable, ...]] = [(), *((step.m,) for step in reversed(best.steps))]
    skipped = list(best.skipped)
    for _ in range(_tries(fresh, moves) if best.left_out else 0):
        # Depth first: another move begins the last exchange, then the one before it.
        if skipped:
            skipped[-1] += 1
        elif len(late) > 1:
            late.pop(0)
        else:
            break
        detour = Detour(late[0], tuple(skipped))
        order = arrange(fresh(), moves, last_resort, detour=detour)
        # Fewer than asked for: no further move could begin there.
        skipped = order.skipped
        best = min(best, order, key=lambda found: len(found.left_out))
        if not best.left_out:
            break
    return best


def _tries(fresh: Callable[[], Draft], moves: Mapping[Movable, int]) -> int:
    pairs = len(moves) * len(fresh().problem.nodes)
    return min(OPENINGS, PAIRS // max(1, pairs))


def settle(
    fresh: Callable[[], Draft],
    moves: Mapping[Movable, int],
    last_resort: Collection[Movable] = (),
    together: Collection[tuple[Movable, Movable]] = (),
) -> tuple[list[list[Step]], list[Movable]]:
    """Return chains that hold in their order, and the pods that are left out.

    Moves that belong together stand together, so some come sooner than they were arranged.
    They are arranged once more in the new order, which may join chains, until it stays; if it
    never does, all of them are one chain.
    """
    order = _fullest(fresh, moves, last_resort)
    pairs = [*together, *order.opened]
    found, left_out = chains(order.steps, pairs), order.left_out
    for again in range(SETTLING):
        listed = [step.m for chain in found for step in chain]
        if listed == [step.m for step in order.steps]:
            return found, left_out
        openers = {m for m, _ in order.opened}
        # Two orders may lead to each other. Chains that only grow come to an end.
        pairs = [*pairs, *_waits(order.steps)] if again else list(together)
        order = arrange(fresh(), {m: moves[m] for m in listed}, last_resort, listed, openers)
        pairs += order.opened
        found, left_out = chains(order.steps, pairs), [*left_out, *order.left_out]
    steps = order.steps
    stays = [step.m for chain in found for step in chain] == [step.m for step in steps]
    return found if stays else [steps], left_out


def _waits(steps: Iterable[Step]) -> list[tuple[Movable, Movable]]:
    return [(step.m, need) for step in steps for need in step.needs]


def _urgency(problem: Problem, m: Movable) -> tuple[bool, float, float, tuple[float, float], int]:
    """Sort by source, those to be emptied first, then the most loaded; large pods first.

    Of equally large ones, those that use more than they request.
    """
    level: Floats = 100.0 * problem.load[m.row] / problem.capacity[m.row]
    share = 100.0 * m.load / problem.capacity[m.row]
    return not m.maintenance, -float(level.max()), -float(share.max()), m.turn, m.number
