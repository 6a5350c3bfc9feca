"""Where a pod goes: the best node of those that every constraint allows.

If no node has room, room is made: a pod that the plan brings to some node goes to another
one instead, which costs nothing, or a pod that lives there moves on, which costs an eviction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from rebalancer.planner.draft import Draft
from rebalancer.planner.instance import Flags, Floats, Ints
from rebalancer.planner.movable import Movable

NEAREST: Final = 16
"""Nodes where room is made, those that lack least first."""
GUESTS: Final = 12
"""Pods of such a node that are tried elsewhere."""
PATIENCE: Final = 24
"""After so many failures in a row no room is made any more; many more in a small cluster."""

Gain = Callable[[Draft, Movable], Flags]
"""The rows where a move for load would be worth its while."""


class Placing:
    """Puts pods into a draft, one way or another."""

    def __init__(self, draft: Draft, *, tight: bool, gain: Gain | None = None) -> None:
        self.draft = draft
        self.problem = draft.problem
        self._tight = tight
        self._gain = gain
        self._busy: set[Movable] = set()
        self._patience = max(PATIENCE, 20 * PATIENCE // max(1, len(self.problem.nodes)) * 10)
        self._luck = self._patience

    def place(self, m: Movable, *, last_resort: bool = False, without: int = -1) -> bool:
        """Put a pod where it does most good; tell whether there is such a node."""
        row = self.best(m, last_resort=last_resort, without=without)
        if row is None:
            return False
        self.draft.put(m, row)
        return True

    def best(self, m: Movable, *, last_resort: bool = False, without: int = -1) -> int | None:
        """Return the best row that is allowed for a pod."""
        mask = self._allowed(m, last_resort=last_resort, without=without)
        row = self._pick(m, np.flatnonzero(mask))
        if row is None or not self._doubtful(m):
            return row
        # What moved meanwhile may matter to a pod with ties: ask again, and now for certain.
        self.draft.exact = True
        mask = mask & self._allowed(m, last_resort=last_resort, without=without)
        self.draft.exact = False
        return self._pick(m, np.flatnonzero(mask))

    @property
    def can_make_room(self) -> bool:
        """Tell whether it makes sense to try."""
        return self.draft.effort.left > 0 and self._luck > 0 and self._any_room()

    def make_room(self, m: Movable, *, evictions: int, depth: int = 2) -> bool:
        """Put a pod on a node that has no room, by sending pods elsewhere from there."""
        if depth <= 0 or not self.can_make_room:
            return False
        self._busy.add(m)
        made = any(self._make_room_on(int(row), m, evictions, depth) for row in self._nearest(m))
        self._busy.discard(m)
        self._luck = self._patience if made else self._luck - 1
        return made

    def _make_room_on(self, row: int, m: Movable, evictions: int, depth: int) -> bool:
        guests = self._enough(self.draft.at(row), m, row)
        if any(self._send_on(guest, row, m, evictions, depth) for guest in guests):
            return True
        if not evictions or self.problem.empty[row]:
            return False
        moved = self.draft.moves
        lodgers = [q for q in self.problem.movables(row) if q not in moved]
        return any(
            self._evict(q, row, m, evictions - 1, depth) for q in self._enough(lodgers, m, row)
        )

    def _send_on(self, guest: Movable, row: int, m: Movable, evictions: int, depth: int) -> bool:
        """Let a pod that the plan brings here go elsewhere."""
        draft = self.draft
        draft.take_out(guest)
        if draft.targets(m)[row]:
            draft.put(m, row)
            if self.place(guest, without=row):
                return True
            if self.make_room(guest, evictions=evictions, depth=depth - 1):
                return True
            draft.take_out(m)
        draft.put(guest, row)
        return False

    def _evict(self, lodger: Movable, row: int, m: Movable, evictions: int, depth: int) -> bool:
        """Let a pod that lives here move on first."""
        draft = self.draft
        if not self.place(lodger, without=row):
            return False
        if draft.targets(m)[row]:
            draft.put(m, row)
            return True
        draft.take_out(lodger)
        return False

    def _allowed(self, m: Movable, *, last_resort: bool, without: int) -> Flags:
        mask = self.draft.targets(m, last_resort=last_resort)
        if without >= 0:
            mask[without] = False
        if self._gain is not None and not m.maintenance:
            mask &= self._gain(self.draft, m)
        return mask

    def _pick(self, m: Movable, rows: Ints) -> int | None:
        if not rows.size:
            return None
        # Room that somebody has to leave first is the second choice: the move would wait.
        at_once = rows[self.draft.left[rows] == 0]
        rows = at_once if at_once.size else rows
        after = 100.0 * (self.draft.load[rows] + m.load) / self.problem.capacity[rows]
        if self._tight:
            left = (self.problem.ceiling[rows] - after).min(axis=1)
            return int(rows[np.argmin(left)])
        return int(rows[np.argmin(after.max(axis=1))])

    def _doubtful(self, m: Movable) -> bool:
        return bool(self.draft.moves) and self.draft.fitting.has_ties(m)

    def _any_room(self) -> bool:
        free = self.problem.limit - self.draft.load
        takes = self.problem.takes | self.problem.shelters
        return bool((free[takes] > 0).all(axis=1).any())

    def _nearest(self, m: Movable) -> Ints:
        """Return the rows where only room is missing, those that lack least first."""
        rows = np.flatnonzero(self.draft.targets(m, room_aside=True))
        lack = self._lack(rows, m).max(axis=1)
        return rows[np.argsort(lack, kind="stable")][:NEAREST]

    def _lack(self, rows: Ints, m: Movable) -> Floats:
        after = self.draft.load[rows] + m.load - self.problem.limit[rows]
        lack: Floats = 100.0 * after / self.problem.capacity[rows]
        return lack

    def _enough(self, there: Sequence[Movable], m: Movable, row: int) -> list[Movable]:
        """Return pods whose going makes room for another, the smallest first."""
        others = [q for q in there if q not in self._busy]
        if not others:
            return []
        loads = np.array([q.load for q in others])
        most = (self.problem.limit - self.draft.load).max(axis=0)
        lack = self.draft.load[row] + m.load - self.problem.limit[row] - self.problem.slack[row]
        enough = ((loads >= lack) & (loads <= most)).all(axis=1)
        size = (loads / self.problem.capacity[row]).max(axis=1)
        order = np.argsort(size, kind="stable")
        return [others[i] for i in order if enough[i]][:GUESTS]
