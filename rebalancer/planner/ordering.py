"""In which order the moves can be made, and which of them wait for others.

Nobody knows how long an eviction takes, and several run at once. So a pod that leaves counts
as still there, with its load and its requests, for every later move but those that name it
in `needs` and wait until it is gone. What holds in this order then holds whichever of the
moves have been carried out, as long as nobody overtakes what it waits for. Each step is
checked against every constraint once more: what cannot be ordered is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rebalancer.planner.draft import Draft
from rebalancer.planner.instance import Flags, Floats
from rebalancer.planner.levels import smallest
from rebalancer.planner.movable import Movable
from rebalancer.planner.problem import Problem

SETTLING: Final = 4
"""Times that chains are arranged once more."""


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


def arrange(
    draft: Draft,
    moves: Mapping[Movable, int],
    last_resort: Collection[Movable] = (),
    preferred: Sequence[Movable] = (),
) -> Order:
    """Order moves such that every step is allowed when it comes.

    The worst source comes first unless another order is preferred. The draft is a fresh one
    and is used up.
    """
    problem = draft.problem
    table = _Table(problem, draft, last_resort)
    waiting = list(preferred) or sorted(moves, key=lambda m: _urgency(problem, m))
    order = Order()
    while waiting:
        blocked = []
        for m in waiting:
            step = table.step(m, moves[m])
            if step is None:
                blocked.append(m)
            else:
                order.steps.append(step)
        if len(blocked) == len(waiting):
            order.left_out = blocked
            break
        waiting = blocked
    return order


class _Table:
    """The draft with everybody who left still in it."""

    def __init__(self, problem: Problem, draft: Draft, last_resort: Collection[Movable]) -> None:
        self._problem = problem
        self._draft = draft
        self._draft.exact = True
        self._last_resort = last_resort
        self._left: dict[int, list[Movable]] = {}

    def step(self, m: Movable, row: int) -> Step | None:
        """Make a move if it is allowed now; say whom it waits for."""
        mask = self._draft.targets(m, last_resort=m in self._last_resort)
        needs: tuple[Movable, ...] = ()
        if not mask[row] and not self._under_way(m)[row]:
            found = self._needed(m, row)
            if found is None:
                return None
            needs = found
        alternatives = self._next_best(m, row, mask)
        self._make(m, row)
        return Step(m, row, needs, alternatives)

    def _make(self, m: Movable, row: int) -> None:
        self._draft.put(m, row)
        self._hold(m, +1)
        self._left.setdefault(m.row, []).append(m)

    def _under_way(self, m: Movable) -> Flags:
        """Return where a pod may go as one of several moves that belong together."""
        return self._draft.targets(m, last_resort=m in self._last_resort, under_way=True)

    def _needed(self, m: Movable, row: int) -> tuple[Movable, ...] | None:
        """Return few pods, the largest first, that must be gone; none if all are too few."""
        left = sorted(self._left.get(row, ()), key=lambda q: (-q.load.max(), q.number))
        gone = self._draft.gone
        allowed = False
        for q in left:
            self._let_go(q)
            allowed = bool(self._under_way(m)[row])
            if allowed:
                break
        for q in [q for q in left if q in gone][:-1] if allowed else ():
            self._keep(q)
            if not self._under_way(m)[row]:
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
        draft = self._draft
        draft.load[m.row] += sign * m.load
        draft.places[m.row] -= sign
        for line, amount in draft.fitting.held(m):
            draft.free[line, m.row] -= sign * amount

    def _next_best(self, m: Movable, row: int, mask: Flags) -> tuple[int, ...]:
        """Return the next best targets, the least loaded first."""
        rows = np.flatnonzero(mask)
        rows = rows[rows != row]
        level = np.maximum(*self._draft.joined(m).T)[rows]
        best = smallest(level, level, self._problem.demand.settings.alternatives)
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


def settle(
    fresh: Callable[[], Draft],
    moves: Mapping[Movable, int],
    last_resort: Collection[Movable] = (),
    together: Collection[tuple[Movable, Movable]] = (),
) -> tuple[list[list[Step]], list[Movable]]:
    """Return chains that hold in the order in which they stand, and who is left out.

    Moves that belong together stand together, so some come sooner than they were arranged.
    They are arranged once more in the new order, which may join chains, until it stays.
    """
    order = arrange(fresh(), moves, last_resort)
    found, left_out = chains(order.steps, together), order.left_out
    for _ in range(SETTLING):
        listed = [step.m for chain in found for step in chain]
        if listed == [step.m for step in order.steps]:
            break
        order = arrange(fresh(), {m: moves[m] for m in listed}, last_resort, listed)
        found, left_out = chains(order.steps, together), [*left_out, *order.left_out]
    return found, left_out


def _urgency(problem: Problem, m: Movable) -> tuple[bool, float, float, tuple[float, float], int]:
    """Sort by source, those to be emptied first, then the most loaded; large pods first.

    Of equally large ones, those that use more than they asked for.
    """
    level: Floats = 100.0 * problem.load[m.row] / problem.capacity[m.row]
    share = 100.0 * m.load / problem.capacity[m.row]
    return not m.maintenance, -float(level.max()), -float(share.max()), m.turn, m.number
