# SPDX-License-Identifier: Apache-2.0
"""Which nodes can be emptied together so that the most, or the most expensive, become free.

Plain numbers in, a set of nodes out. A node is emptied only if every one of its pods finds room
on a node that stays: in each resource at once, where it may run, and with no more replicas of its
workload on one host than allowed. Finding the best set is bin packing, so this is a search:
greedy in several orders, then exchanges of nodes, then for few candidates every set that could be
better. It counts its work instead of measuring time: equal input gives equal sets.

Nodes that are being emptied already come first: they are given up only if their pods have no room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

from rebalancer.strategies.shares import Arrivals, Flags, ReplicaRules

Floats = npt.NDArray[np.float64]

TOLERANCE: Final = 1e-9
EXHAUSTIVE: Final = 12
"""With no more candidates, every set that could be better is tried."""
PLACINGS: Final = 20_000
"""How often a pod may be tried on all nodes: two seconds for a thousand nodes."""
BRANCHES: Final = 2_000
"""Placings that one set is tried with before it counts as impossible."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parcel:
    """A pod that has to leave if its node is emptied."""

    home: int
    weight: Floats
    """[D] what it takes of each resource."""
    allowed: Flags
    """[N] where it may run."""
    replicas: ReplicaRules | None = None
    """Where the replicas of its workload are, and how many a host or zone may hold."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packing:
    """What to choose from."""

    room: Floats
    """[N, D] what each node may still take; nothing on nodes that take no pods."""
    costs: Sequence[float]
    """[N] what a free node saves."""
    parcels: Sequence[Parcel]
    candidates: Sequence[int]
    """Nodes that may be emptied, all pods of which are parcels."""
    kept: Sequence[int] = ()
    """Those of them that are being emptied already."""


Choice = dict[int, dict[int, int]]
"""The nodes to empty, each with the node where each of its parcels finds room."""


def choose(packing: Packing) -> Choice:
    """Return the set of nodes that saves the most, as far as the search finds it."""
    return _Search(packing).run()


class _Search:
    """Looks for the set that saves the most; of equal ones, that with the fewest pods."""

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        self._of: dict[int, list[int]] = {node: [] for node in packing.candidates}
        for number, parcel in enumerate(packing.parcels):
            if parcel.home in self._of:
                self._of[parcel.home].append(number)
        self._left = PLACINGS
        scale = np.maximum(packing.room.max(axis=0, initial=0.0), TOLERANCE)
        self._bulk = [float((each.weight / scale).max(initial=0.0)) for each in packing.parcels]

    def run(self) -> Choice:
        base = _State(self._packing)
        kept = sorted(self._packing.kept, key=lambda n: (sum(self._bulks(n)), n))
        self._add_all(base, kept)
        fixed = frozenset(base.emptied)
        best = base
        for order in self._orders(fixed):
            found = base.copy()
            self._add_all(found, order)
            best = max(best, found, key=self._rank)
        best = self._exchanged(best, fixed)
        best = self._exhaustive(best, fixed)
        return {node: {p: best.place[p] for p in self._of[node]} for node in sorted(best.emptied)}

    def _rank(self, state: _State) -> tuple[float, int]:
        saved = sum(self._packing.costs[node] for node in state.emptied)
        return round(saved, 9), -len(state.place)

    def _bulks(self, node: int) -> list[float]:
        return [self._bulk[p] for p in self._of[node]]

    def _orders(self, fixed: frozenset[int]) -> list[list[int]]:
        """Return the other candidates in the orders that are tried."""
        rest = [n for n in self._packing.candidates if n not in fixed]
        costs, size = self._packing.costs, self._packing.room.sum(axis=1)
        bulk = {n: sum(self._bulks(n)) for n in rest}
        keys = (
            lambda n: (bulk[n] / max(costs[n], TOLERANCE), n),
            lambda n: (bulk[n], n),
            lambda n: (-costs[n], bulk[n], n),
            lambda n: (len(self._of[n]), bulk[n], n),
            lambda n: (max(self._bulks(n), default=0.0), bulk[n], n),
            lambda n: (float(size[n]), bulk[n], n),
        )
        return [sorted(rest, key=key) for key in keys]

    def _add_all(self, state: _State, nodes: Iterable[int]) -> None:
        for node in nodes:
            if node not in state.emptied and self._left > 0:
                self._add(state, node)

    def _add(self, state: _State, node: int) -> bool:
        """Empty one more node, or change nothing; pods that were to go there go elsewhere."""
        displaced = [p for p, target in state.place.items() if target == node]
        before = {p: state.place[p] for p in displaced}
        for p in displaced:
            state.take(p)
        state.emptied.add(node)
        parcels = sorted((*self._of[node], *displaced), key=lambda p: (-self._bulk[p], p))
        for tight in (True, False):
            if self._place(state, parcels, tight=tight):
                return True
        state.emptied.discard(node)
        for p, target in before.items():
            state.put(p, target)
        return False

    def _place(self, state: _State, parcels: Sequence[int], *, tight: bool) -> bool:
        placed: list[int] = []
        for p in parcels:
            self._left -= 1
            target = state.best(p, tight=tight)
            if target is None:
                for other in placed:
                    state.take(other)
                return False
            state.put(p, target)
            placed.append(p)
        return True

    def _exchanged(self, best: _State, fixed: frozenset[int]) -> _State:
        """Give one or two nodes up for others, as long as that is better."""
        improved = True
        while improved and self._left > 0:
            improved = False
            free = sorted(best.emptied - fixed)
            for given_up in (*combinations(free, 1), *combinations(free, 2)):
                if self._left <= 0:
                    break
                found = self._again(sorted(best.emptied.difference(given_up)))
                others = [n for n in self._orders(fixed)[0] if n not in given_up]
                if found is None:
                    continue
                self._add_all(found, others)
                self._add_all(found, given_up)
                if self._rank(found) > self._rank(best):
                    best, improved = found, True
                    break
        return best

    def _again(self, nodes: Sequence[int]) -> _State | None:
        """Return a state with these nodes emptied, packed from scratch; None if that fails."""
        state = _State(self._packing)
        state.emptied.update(nodes)
        parcels = [p for node in nodes for p in self._of[node]]
        by_bulk = sorted(parcels, key=lambda p: (-self._bulk[p], p))
        by_choice = sorted(parcels, key=lambda p: (state.choices(p), -self._bulk[p], p))
        for order, tight in ((by_bulk, True), (by_choice, True), (by_bulk, False)):
            if self._place(state, order, tight=tight):
                return state
        return None

    def _exhaustive(self, best: _State, fixed: frozenset[int]) -> _State:
        """Try every set that would be better, the best first, if there are few candidates."""
        rest = [n for n in self._packing.candidates if n not in fixed]
        if len(rest) > EXHAUSTIVE:
            return best
        sets = [more for size in range(1, len(rest) + 1) for more in combinations(rest, size)]
        ranked = sorted(sets, key=lambda s: (-sum(self._packing.costs[n] for n in s), s))
        for more in ranked:
            nodes = fixed.union(more)
            parcels = [p for node in sorted(nodes) for p in self._of[node]]
            saved = round(sum(self._packing.costs[n] for n in nodes), 9)
            if (saved, -len(parcels)) <= self._rank(best) or self._left <= 0:
                continue
            found = self._proven(nodes, parcels) if self._could(nodes, parcels) else None
            if found is not None:
                best = found
        return best

    def _could(self, nodes: frozenset[int], parcels: Sequence[int]) -> bool:
        """Tell whether there is room enough in sum."""
        self._left -= 1
        stays = [n for n in range(len(self._packing.room)) if n not in nodes]
        room = np.maximum(self._packing.room[stays], 0.0).sum(axis=0)
        need = sum((self._packing.parcels[p].weight for p in parcels), np.zeros(len(room)))
        return bool((need <= room + TOLERANCE).all())

    def _proven(self, nodes: frozenset[int], parcels: Sequence[int]) -> _State | None:
        """Return a way to place all of them by trying every way, as long as there are few."""
        state = _State(self._packing)
        state.emptied.update(nodes)
        order = sorted(parcels, key=lambda p: (state.choices(p), -self._bulk[p], p))
        branches = min(BRANCHES, self._left)
        tried = [branches]
        found = self._deepen(state, order, 0, tried)
        self._left -= branches - max(tried[0], 0)
        return state if found else None

    def _deepen(self, state: _State, order: Sequence[int], depth: int, left: list[int]) -> bool:
        if depth == len(order):
            return True
        for target in state.targets(order[depth]):
            if left[0] <= 0:
                return False
            left[0] -= 1
            state.put(order[depth], target)
            if self._deepen(state, order, depth + 1, left):
                return True
            state.take(order[depth])
        return False


class _State:
    """Some nodes emptied, and where their pods go."""

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        self._free = packing.room.copy()
        self._come: dict[ReplicaRules, Arrivals] = {}
        self.place: dict[int, int] = {}
        self.emptied: set[int] = set()

    def copy(self) -> _State:
        found = _State(self._packing)
        found._free = self._free.copy()
        found._come = {rules: come.copy(rules) for rules, come in self._come.items()}
        found.place, found.emptied = dict(self.place), set(self.emptied)
        return found

    def put(self, number: int, target: int) -> None:
        self._shift(number, target, +1)
        self.place[number] = target

    def take(self, number: int) -> None:
        self._shift(number, self.place.pop(number), -1)

    def _shift(self, number: int, target: int, sign: int) -> None:
        parcel = self._packing.parcels[number]
        self._free[target] -= sign * parcel.weight
        if parcel.replicas is not None:
            self._coming(parcel.replicas).shift(parcel.home, target, sign)

    def _coming(self, rules: ReplicaRules) -> Arrivals:
        if rules not in self._come:
            self._come[rules] = Arrivals(rules)
        return self._come[rules]

    def choices(self, number: int) -> int:
        return int(np.count_nonzero(self._allowed(number)))

    def targets(self, number: int) -> list[int]:
        """Return where a pod may go, the tightest first; of equally free nodes only one."""
        rows = np.flatnonzero(self._allowed(number))
        parcel = self._packing.parcels[number]
        left = (self._free[rows] - parcel.weight).sum(axis=1)
        return [int(rows[i]) for i in np.argsort(left, kind="stable")]

    def best(self, number: int, *, tight: bool) -> int | None:
        rows = np.flatnonzero(self._allowed(number))
        if not rows.size:
            return None
        parcel = self._packing.parcels[number]
        scale = np.maximum(self._packing.room[rows], TOLERANCE)
        left = ((self._free[rows] - parcel.weight) / scale).min(axis=1)
        return int(rows[np.argmin(left) if tight else np.argmax(left)])

    def _allowed(self, number: int) -> Flags:
        parcel = self._packing.parcels[number]
        found = parcel.allowed & (self._free >= parcel.weight - TOLERANCE).all(axis=1)
        found[parcel.home] = False
        if self.emptied:
            found[list(self.emptied)] = False
        if parcel.replicas is not None and found.any():
            come = self._coming(parcel.replicas)
            found &= parcel.replicas.open_to(parcel.home, come, self.emptied)
        return found
