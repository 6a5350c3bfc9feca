# SPDX-License-Identifier: Apache-2.0
"""Where a pod goes: the best node of those that every constraint allows.

If no node has room, room is made: a pod that the plan brings to some node goes to another
one instead, which costs nothing, or a pod that lives there moves on, which costs an eviction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Final

import numpy as np

from rebalancer.goals import MARGIN
from rebalancer.planner.draft import Draft
from rebalancer.planner.instance import Flags, Floats, Ints
from rebalancer.planner.movable import Movable
from rebalancer.planner.resources import highest, lowest, some

NEAREST: Final = (16, 6, 4)
"""Nodes where room is made, those that lack least first; fewer for pods that are in the way."""
DEPTH: Final = 3
"""How many pods in a row make room for each other."""
GUESTS: Final = (12, 6, 4)
"""Pods of such a node that are tried elsewhere, likewise."""
PATIENCE: Final = 2_000
"""Evaluations in a row that may be spent on making room without success."""
PER_NODE: Final = 100
"""The same for each node, which is less in a very small cluster."""
PAIRS: Final = 1_000_000
"""The same in pairs of pod and node, which is less in a large cluster."""

Gain = Callable[[Draft, Movable], Flags]
"""The rows where a move for load would gain enough."""


class Placing:
    """Puts pods into a draft, one way or another."""

    def __init__(self, draft: Draft, *, tight: bool, gain: Gain | None = None) -> None:
        self.draft = draft
        self.problem = draft.problem
        self._tight = tight
        self._gain = gain
        self.helping = inf
        """The highest priority of pods that may make room."""
        self._busy: set[Movable] = set()
        nodes = max(1, len(self.problem.nodes))
        self._patience = min(PATIENCE, PER_NODE * nodes, PAIRS // nodes)
        self._luck = self._patience
        self._until = 0

    def place(
        self,
        m: Movable,
        *,
        last_resort: bool = False,
        makes_room: bool = False,
        without: int = -1,
    ) -> bool:
        """Put a pod where it does most good; tell whether there is such a node."""
        row = self.best(m, last_resort=last_resort, makes_room=makes_room, without=without)
        if row is None:
            return False
        self.draft.put(m, row)
        return True

    def relocate(self, m: Movable) -> bool:
        """Put a pod on the best node that its own goal asks for; tell whether there is one."""
        draft = self.draft
        # One such pod may depend on where another has gone, so that is asked for certain.
        draft.exact = True
        mask = draft.targets(m)
        draft.exact = False
        for tier in self.problem.wanted(m) or (mask,):
            row = self._pick(m, (mask & tier).nonzero()[0])
            if row is not None:
                draft.put(m, row)
                return True
        return False

    def settle(self, m: Movable, allowed: Flags) -> None:
        """Put a pod on the best of some nodes, if possible where few replicas of it are."""
        replicas = self.draft.replicas
        spread = [
            f for f in (replicas.hosts_free_of(m), replicas.zones_free_of(m)) if f is not None
        ]
        for mask in (np.logical_and.reduce([allowed, *spread]), allowed):
            row = self._pick(m, mask.nonzero()[0])
            if row is not None:
                self.draft.put(m, row)
                return

    def best(
        self,
        m: Movable,
        *,
        last_resort: bool = False,
        makes_room: bool = False,
        without: int = -1,
    ) -> int | None:
        """Return the best row that is allowed for a pod."""
        mask = self._allowed(m, last_resort=last_resort, without=without)
        if self._gain is not None and not (m.has_to_leave or makes_room):
            mask &= self._gain(self.draft, m)
        row = self._pick(m, mask.nonzero()[0])
        if row is None or not self._doubtful(m):
            return row
        # What moved meanwhile may matter to a pod with ties: ask again, and now for certain.
        self.draft.exact = True
        mask = mask & self._allowed(m, last_resort=last_resort, without=without)
        self.draft.exact = False
        return self._pick(m, mask.nonzero()[0])

    @property
    def can_make_room(self) -> bool:
        """Tell whether it makes sense to try."""
        return self.draft.evaluations.left > 0 and self._luck > 0 and self._any_room()

    def conceivable(self, pods: Sequence[Movable], depth: int = DEPTH) -> list[Movable]:
        """Return the pods for which so many others in a row could make room.

        Each of them needs at least what the one before it needs less the free room of the
        node that it leaves, and the last one has to fit into the free room of some node.
        """
        problem = self.problem
        free = np.maximum((problem.roof - self.draft.load)[problem.houses], 0.0)
        most = np.minimum((depth + 1) * free.max(axis=0, initial=0.0), free.sum(axis=0))
        return [m for m in pods if m.load[0] <= most[0] and m.load[1] <= most[1]]

    def make_room(self, m: Movable, *, evictions: int) -> bool:
        """Put a pod on a node that has no room, by sending pods elsewhere from there.

        A pod that is in the way goes to a node with room, or room is made for it in turn.
        """
        if not self.can_make_room:
            return False
        if not self.conceivable([m]):
            return False
        spent = self.draft.evaluations.spent
        self._until = spent + self._luck
        made = any(self._make_room(m, evictions, depth, 0) for depth in range(1, DEPTH + 1))
        self._luck = self._patience if made else self._luck - (self.draft.evaluations.spent - spent)
        return made

    def make_way(self, m: Movable) -> bool:
        """Put a pod on a node where another pod keeps it out, by moving that one first.

        So it is with required anti-affinity: the node may have room, and a sibling.
        """
        draft = self.draft
        if not draft.fitting.has_ties(m) or not self.can_make_room:
            return False
        rows = draft.targets(m, company_aside=True).nonzero()[0]
        after = draft.joined(m).max(axis=1)[rows]
        nearest = rows[np.argsort(after, kind="stable")][: NEAREST[1]]
        return any(self._make_way_on(int(row), m) for row in nearest)

    def lodgers(self, row: int) -> list[Movable]:
        """Return the pods of a node that may make room for others."""
        pods, moved = self.problem.movables(row), self.draft.moves
        return [q for q in pods if q not in moved and q.priority <= self.helping]

    def _make_way_on(self, row: int, m: Movable) -> bool:
        draft = self.draft
        there = self.lodgers(row)
        for q in sorted(there, key=lambda q: (q.group != m.group, q.number))[: GUESTS[0]]:
            if not draft.possible_without(m, q)[row]:
                continue
            before = dict(draft.moves)
            if self.place(q, makes_room=True, without=row) and self._allowed_without(m, row, q):
                draft.put(m, row)
                return True
            draft.back_to(before)
        return False

    def _allowed_without(self, m: Movable, row: int, gone: Movable) -> bool:
        draft = self.draft
        draft.exact = True
        draft.gone.add(gone)
        allowed = bool(draft.targets(m, under_way=True)[row])
        draft.gone.discard(gone)
        draft.exact = False
        return allowed

    def _make_room(self, m: Movable, evictions: int, depth: int, level: int) -> bool:
        evaluations = self.draft.evaluations
        if level >= depth or evaluations.spent >= self._until or evaluations.left <= 0:
            return False
        if not self.conceivable([m], depth - level):
            return False
        self._busy.add(m)
        rows = self._nearest(m)[: NEAREST[min(level, len(NEAREST) - 1)]]
        made = any(self._make_room_on(int(row), m, evictions, depth, level) for row in rows)
        self._busy.discard(m)
        return made

    def _make_room_on(self, row: int, m: Movable, evictions: int, depth: int, level: int) -> bool:
        last = level + 1 >= depth
        wanted = GUESTS[min(level, len(GUESTS) - 1)]
        guests = self._enough(self.draft.at(row), m, row, last=last)[:wanted]
        if any(self._send_on(guest, row, m, evictions, depth, level) for guest in guests):
            return True
        if not evictions or self.problem.empty[row]:
            return False
        others = self._enough(self.lodgers(row), m, row, last=last)[:wanted]
        return any(self._evict(q, row, m, evictions - 1, depth, level) for q in others)

    def _send_on(
        self, guest: Movable, row: int, m: Movable, evictions: int, depth: int, level: int
    ) -> bool:
        """Let a pod that the plan brings here go elsewhere."""
        draft = self.draft
        draft.take_out(guest)
        if draft.targets(m)[row]:
            draft.put(m, row)
            if self.place(guest, without=row):
                return True
            if self._make_room(guest, evictions, depth, level + 1):
                return True
            draft.take_out(m)
        draft.put(guest, row)
        return False

    def _evict(
        self, lodger: Movable, row: int, m: Movable, evictions: int, depth: int, level: int
    ) -> bool:
        """Let a pod that lives here move on first; what the chain gains is judged at its end."""
        draft = self.draft
        before = dict(draft.moves)
        if self.place(lodger, makes_room=True) or self._make_room(
            lodger, evictions, depth, level + 1
        ):
            if draft.targets(m)[row]:
                draft.put(m, row)
                return True
            draft.back_to(before)
        return False

    def _allowed(self, m: Movable, *, last_resort: bool, without: int) -> Flags:
        mask = self.draft.targets(m, last_resort=last_resort)
        if without >= 0:
            mask[without] = False
        return mask

    def _pick(self, m: Movable, rows: Ints) -> int | None:
        if not rows.size:
            return None
        # Room that another pod has to leave first is the second choice: the move would wait.
        at_once = rows[self.draft.left[rows] == 0]
        rows = at_once if at_once.size else rows
        after = self.draft.joined(m)
        if self._tight:
            left = lowest(self.problem.ceiling - after)[rows]
            return int(rows[np.lexsort((left, left < MARGIN))[0]])
        return int(rows[np.argmin(highest(after)[rows])])

    def _doubtful(self, m: Movable) -> bool:
        return bool(self.draft.moves) and self.draft.fitting.has_ties(m)

    def _any_room(self) -> bool:
        free = self.problem.limit - self.draft.load > 0
        return some(free[:, 0] & free[:, 1] & self.problem.houses)

    def _nearest(self, m: Movable) -> Ints:
        """Return the rows where only room is missing, those that lack least first."""
        rows = self.draft.targets(m, room_aside=True).nonzero()[0]
        lack = self._lack(rows, m).max(axis=1)
        return rows[np.argsort(lack, kind="stable")][: NEAREST[0]]

    def _lack(self, rows: Ints, m: Movable) -> Floats:
        after = self.draft.load[rows] + m.load - self.problem.limit[rows]
        lack: Floats = 100.0 * after / self.problem.capacity[rows]
        return lack

    def _enough(
        self, there: Sequence[Movable], m: Movable, row: int, *, last: bool
    ) -> list[Movable]:
        """Return pods whose going makes room for another, the smallest first.

        Where no more room is made for them, only those that find some as it is.
        """
        others = [q for q in there if q not in self._busy]
        if not others:
            return []
        loads = np.array([q.load for q in others])
        lack = self.draft.load[row] + m.load - self.problem.limit[row] - self.problem.slack[row]
        enough = (loads >= lack).all(axis=1)
        size = (loads / self.problem.capacity[row]).max(axis=1)
        order = np.argsort(size, kind="stable")
        found = [others[i] for i in order if enough[i]]
        return self.draft.may_go(found) if last else found
