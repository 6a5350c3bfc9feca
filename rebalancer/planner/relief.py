# SPDX-License-Identifier: Apache-2.0
"""Nodes that must give: those to be emptied, then those above their ceiling, worst first.

Pods with a goal of their own are moved before, and pods are spread over the domains of their
constraints: what they take along is one eviction less for their nodes.

For a node above its ceiling the sets of pods of the smallest size that cover its excess are
tried until one of them can be placed. If none can, room is made for one; if that fails, one
more eviction is allowed, here or elsewhere. A node whose goal is out of reach is relieved in
part: lowered as far as single pods that are worth an eviction can lower it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import numpy as np

from rebalancer.goals import Distribute, Relocate
from rebalancer.planner.constraints import worthwhile
from rebalancer.planner.distribution import Distribution
from rebalancer.planner.draft import Draft
from rebalancer.planner.instance import Flags, Floats, Ints
from rebalancer.planner.movable import Movable
from rebalancer.planner.placing import Placing
from rebalancer.planner.pod_sets import covering, sizes
from rebalancer.planner.resources import every, highest, some

EXTRA: Final = 2
"""Evictions beyond the fewest that a node may cost."""
TRIES: Final = 64
"""Sets of pods that are tried for one node and size."""
PAIR: Final = 2
"""Evictions of an exchange."""
PARTNERS: Final = 16
"""Nodes with which a hot one may exchange pods, the least loaded first."""
ASKED: Final = 8
"""Pods of a node that are asked about, the largest first, once much has been asked."""
ASKED_IN_PART: Final = 4
"""Pods that are asked about for each that may leave a node whose goal is out of reach."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What is preferred where there is a choice."""

    gentle: bool
    """Of equally large sets of pods, the one that disrupts least; otherwise the smallest.

    Distance to the ceiling comes second to priority, and before the rest.
    """
    tight: bool
    """Of the nodes with room, the one with the least; otherwise the least loaded."""
    hot_first: bool = False


@dataclass(slots=True)
class Result:
    """How far a policy got."""

    draft: Draft
    stuck: list[Movable] = field(default_factory=list)
    """Pods of nodes to be emptied that found no place."""
    hot: list[int] = field(default_factory=list)
    """Rows that stay above their ceiling."""
    lost: list[Relocate] = field(default_factory=list)
    """Goals of single pods that found no place."""
    uneven: list[Distribute] = field(default_factory=list)
    """Constraints over whose domains pods are not spread."""
    extra: int = 0
    """Evictions beyond what the nodes have to give by themselves."""
    last_resort: set[Movable] = field(default_factory=set)
    exchanges: list[tuple[Movable, Movable]] = field(default_factory=list)
    """Pairs of pods that take each other's place."""

    @property
    def rank(self) -> tuple[int, int, int, int]:
        lost = len(self.lost) + len(self.uneven)
        return len(self.stuck), len(self.hot), lost, len(self.draft.moves)


@dataclass(frozen=True, slots=True, eq=False)
class First:
    """What a node that must give looked like before anything moved."""

    excess: Floats
    givers: list[Movable]
    sets: list[tuple[Movable, ...]]
    """The best set of the fewest."""


class Relief:
    """One attempt to meet the goals of nodes that must give."""

    def __init__(self, draft: Draft, policy: Policy) -> None:
        self.draft = draft
        self.problem = draft.problem
        self.policy = policy
        self.result = Result(draft)
        self.placing = Placing(draft, tight=policy.tight, gain=self._gain)
        self._stuck: set[Movable] = set()
        self._first: dict[int, First] = {}
        self._needed = 0
        """Evictions that the nodes have to give by themselves."""

    def run(self) -> Result:
        """Empty and relieve all nodes that must give, as far as they can be."""
        steps = [self._relocate_all, self._empty_all, self._distribute_all, self._relieve_all]
        for step in reversed(steps) if self.policy.hot_first else steps:
            step()
        self._again()
        domains = self.draft.domains
        self.result.uneven = [g for g in self.problem.distributions if domains.missing(g)]
        self.result.extra = len(self.draft.moves) - self._needed
        return self.result

    def _relocate_all(self) -> None:
        for goal in self.problem.relocations.values():
            if not self._relocate(goal):
                self.result.lost.append(goal)

    def _relocate(self, goal: Relocate) -> bool:
        """Move the pod of a goal to the best node that takes it."""
        m = self.problem.relocating(goal)
        if m is None or self.problem.gave_up(m) or self.draft.evaluations.left <= 0:
            return False
        if m in self.draft.moves:
            return self.draft.meets(goal)
        placed = self.placing.relocate(m)
        self._needed += placed
        return placed

    def _distribute_all(self) -> None:
        before = len(self.draft.moves)
        Distribution(self.placing).run()
        self._needed += len(self.draft.moves) - before

    def _empty_all(self) -> None:
        rows = [self.problem.row_of[goal.node] for goal in self.problem.emptied]
        pods = [m for row in rows for m in self.problem.movables(row)]
        self._needed += len(pods)
        for m in sorted(pods, key=self._bulk):
            if not self._house(m):
                self.result.stuck.append(m)

    def _relieve_all(self) -> None:
        rows = [self.problem.row_of[goal.node] for goal in self.problem.hot]
        worst_first = sorted(rows, key=lambda row: (-self._over(row).max(), row))
        for row in worst_first:
            self._prepare(row)
        for row in worst_first:
            if not self._relieve(row):
                self.result.hot.append(row)

    def _again(self) -> None:
        """Try once more what failed: others may have made room, or nothing else is left."""
        stuck, self.result.stuck = self.result.stuck, []
        for m in stuck:
            if self.placing.place(m):
                continue
            if m.maintenance and self.placing.place(m, last_resort=True):
                self.result.last_resort.add(m)
            else:
                self.result.stuck.append(m)
        self.result.lost = [goal for goal in self.result.lost if not self._relocate(goal)]
        if self.draft.moves and self.draft.evaluations.plenty:
            self._stuck.clear()
            self.result.hot = [row for row in self.result.hot if not self._relieve(row)]
        if self.draft.moves:
            self._distribute_all()

    def _house(self, m: Movable) -> bool:
        self.placing.helping = self.problem.priorities.helping(m.row)
        if self.placing.place(m):
            return True
        if m.consolidated:
            return False  # a free node is not worth moving pods of others for it
        return any(self.placing.make_room(m, evictions=extra) for extra in range(EXTRA + 1))

    def _over(self, row: int) -> Floats:
        """Return the points above the ceiling of a node."""
        level = 100.0 * self.draft.load[row] / self.problem.capacity[row]
        over: Floats = level - self.problem.ceiling[row]
        return over

    def _relieve(self, row: int) -> bool:
        """Bring a node under its ceiling with the fewest evictions that can be placed."""
        excess = self.draft.load[row] - self.problem.enough[row]
        if (excess <= 0).all():
            return True
        self.placing.helping = self.problem.priorities.helping(row)
        first = self._first.get(row)
        if first is None or self.draft.left[row] or excess.tobytes() != first.excess.tobytes():
            first = self._examine(row, excess)
        if not first.sets:
            return False
        self._needed += len(first.sets[0])
        return self._one_of(first.sets, None) or self._insist(first.givers, excess)

    def _insist(self, givers: Sequence[Movable], excess: Floats) -> bool:
        """Try all sets of the fewest pods, then make room, then allow another eviction."""
        near = self._near(givers)
        if not near:
            return self._exchange(givers)
        fitting_sizes = list(islice(self._sizes(givers, excess), EXTRA + 1))
        # Skip all sets with a pod that can go nowhere.
        free = self._not_stuck(givers)
        for extra in range(EXTRA + 1):
            for size in (s for s in fitting_sizes if s - fitting_sizes[0] <= extra):
                spare = extra - (size - fitting_sizes[0])
                if not spare and self._one_of(self._sets(free, excess, size), None):
                    return True
                sets = self._sets(near, excess, size) if self.placing.can_make_room else []
                if self._one_of(sets, spare):
                    return True
            if fitting_sizes[0] + extra >= PAIR and self._exchange(givers):
                return True
        return False

    def _exchange(self, givers: Sequence[Movable]) -> bool:
        """Exchange a pod for a smaller one of another node, where none can simply leave."""
        for p, q in self._exchanges(givers)[: self._tries()]:
            if self._swap(p, q) or self._swap(q, p):
                self.result.exchanges.append((p, q))
                return True
        return False

    def _exchanges(self, givers: Sequence[Movable]) -> list[tuple[Movable, Movable]]:
        """Return pairs that would bring the node under its ceiling, the least to move first."""
        problem, load = self.problem, self.draft.load
        rows = np.flatnonzero(problem.takes & every(load <= problem.roof))
        level = highest(problem.percent(load))
        near = rows[np.argsort(level[rows], kind="stable")][:PARTNERS].tolist()
        others = [(q, row) for row in near for q in self.placing.lodgers(row)]
        return self._pairs(givers, [q for q, _ in others], _ints([row for _, row in others]))

    def _pairs(
        self, givers: Sequence[Movable], others: Sequence[Movable], at: Ints
    ) -> list[tuple[Movable, Movable]]:
        """Return the pairs after whose exchange neither node is above its ceiling."""
        if not givers or not others:
            return []
        problem, load, source = self.problem, self.draft.load, givers[0].row
        given, taken = problem.load_rows(givers), problem.load_rows(others)
        fine = np.broadcast_to(at != source, (len(givers), len(others))).copy()
        for axis in problem.axes:
            change = given[:, axis, None] - taken[None, :, axis]
            fine &= load[source, axis] - change <= problem.enough[source, axis]
            fine &= load[at, axis] + change <= problem.roof[at, axis]
        first, second = np.nonzero(fine)
        moved = ((given[first] + taken[second]) / problem.capacity[source]).sum(axis=1).tolist()
        found = [
            (weight, givers[i].number, others[j].number, givers[i], others[j])
            for weight, i, j in zip(moved, first.tolist(), second.tolist(), strict=True)
        ]
        return [(p, q) for *_, p, q in sorted(found, key=lambda each: each[:3])]

    def _swap(self, first: Movable, second: Movable) -> bool:
        """Exchange two pods, the first of which leaves first; or do nothing."""
        draft, (one, other) = self.draft, (first.row, second.row)
        if not draft.in_exchange(first)[other]:
            return False
        draft.put(first, other)
        if draft.targets(second, under_way=True)[one]:
            draft.put(second, one)
            return True
        draft.take_out(first)
        return False

    def _prepare(self, row: int) -> None:
        """Ask about the pods that most likely move while nothing has moved: it is cheaper then."""
        excess = self.draft.load[row] - self.problem.enough[row]
        if self.draft.moves or (excess <= 0).all():
            return
        self._first[row] = self._examine(row, excess)
        for m in (m for pods in self._first[row].sets for m in pods):
            self.draft.fitting.possible(m)

    def _examine(self, row: int, excess: Floats) -> First:
        givers = self._givers(row)
        loads = self.problem.load_rows(givers)
        found = next((found for _, found in _coverings(loads, excess)), None)
        sets = self._best_first(givers, loads, found, 1) if found is not None else []
        return First(excess, givers, sets)

    def _near(self, pods: Sequence[Movable]) -> list[Movable]:
        return [m for m in self.placing.conceivable(pods) if self.draft.reachable(m)]

    def _not_stuck(self, pods: Sequence[Movable]) -> list[Movable]:
        """Return the pods that have a target; moves take room, so a pod without one gets none."""
        asked = [m for m in self.draft.may_go(pods) if m not in self._stuck]
        if not self.draft.evaluations.plenty:
            asked = sorted(asked, key=self._bulk)[:ASKED]
        free = [m for m in asked if self.draft.evaluations.left > 0 and some(self.draft.targets(m))]
        self._stuck.update(set(pods) - set(free))
        return free

    def _givers(self, row: int) -> list[Movable]:
        """Return the pods of a node whose leaving could gain anything."""
        pods = [m for m in self.problem.movables(row) if m not in self.draft.moves]
        over = self._over(row)
        if not pods:
            return []
        share = 100.0 * np.array([m.load for m in pods]) / self.problem.capacity[row]
        helps = (share[:, over > 0] > 0.0).any(axis=1)
        return [m for m, fine in zip(pods, helps, strict=True) if fine]

    def _sizes(self, pods: Sequence[Movable], excess: Floats) -> Iterator[int]:
        return (size for size, _ in _coverings(self.problem.load_rows(pods), excess))

    def _sets(
        self, pods: Sequence[Movable], excess: Floats, size: int
    ) -> list[tuple[Movable, ...]]:
        """Return sets of pods whose leaving suffices, best first."""
        if len(pods) < size or not pods:
            return []
        loads = self.problem.load_rows(pods)
        return self._best_first(pods, loads, covering(loads, excess, size), TRIES)

    def _best_first(
        self, pods: Sequence[Movable], loads: Floats, found: Ints, most: int
    ) -> list[tuple[Movable, ...]]:
        self.draft.evaluations.spend()
        row = pods[0].row
        weight = (loads / self.problem.capacity[row]).sum(axis=1)[found].sum(axis=1)
        # Sorted by the last key first: priority, then whether the node would be near its ceiling
        # again (what returns costs another eviction), then the rest of what moving costs.
        *costs, priority = np.array([m.cost for m in pods])[found].sum(axis=1).T[::-1]
        left = self.draft.load[row] - loads[found].sum(axis=1)
        near = (left > self.problem.aim[row]).any(axis=1)
        if self.policy.gentle:
            keys = (weight, *costs, near, priority)
        else:
            keys = (*costs, priority, weight, near)
        order = np.lexsort(keys)[:most]
        return [tuple(pods[i] for i in found[s]) for s in order]

    def _one_of(self, sets: Sequence[tuple[Movable, ...]], evictions: int | None) -> bool:
        """Place one of the sets; room is made with so many more evictions, or not at all."""
        return any(self._all_of(pods, evictions) for pods in sets[: self._tries()])

    def _tries(self) -> int:
        """Return how many sets to try: fewer in a cluster with much to do."""
        hot = max(1, len(self.problem.hot))
        return int(np.clip(self.draft.evaluations.left // (32 * hot), 2, TRIES))

    def _all_of(self, pods: Sequence[Movable], evictions: int | None) -> bool:
        """Place all pods of a set, or none."""
        before = dict(self.draft.moves)
        for m in sorted(pods, key=self._bulk):
            if self.placing.place(m):
                continue
            if evictions is None or not self._forced(m, evictions):
                self.draft.back_to(before)
                return False
        return True

    def _forced(self, m: Movable, evictions: int) -> bool:
        if self.placing.make_room(m, evictions=evictions):
            return True
        return evictions > 0 and self.placing.make_way(m)

    def _bulk(self, m: Movable) -> tuple[float, int]:
        """Sort large pods first: they are harder to place."""
        return -float((m.load / self.problem.capacity[m.row]).max()), m.number

    def _gain(self, draft: Draft, m: Movable) -> Flags:
        # Meeting the goal is worth its evictions: on 64 cores no single pod gains a point.
        over = self._over(m.row)
        axes = [a for a in self.problem.axes if over[a] > 0] or self.problem.axes
        return worthwhile(draft, m, axes, min_gain=0.0)


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _coverings(loads: Floats, excess: Floats) -> Iterator[tuple[int, Ints]]:
    """Return the sizes of sets that cover an excess, the smallest first, with the sets."""
    for size in sizes(loads, excess):
        found = covering(loads, excess, size)
        if found.size:
            yield size, found


def relieve_in_part(draft: Draft, rows: Sequence[int]) -> None:
    """Move single pods away from nodes above their ceiling while that is worth it.

    Never more of them than would suffice if the largest could go: many small ones that do
    not meet the goal either are not worth their evictions.
    """
    for row in rows:
        left = _fewest_in_part(draft, row)
        for m in _largest_first(draft, row)[: ASKED_IN_PART * left]:
            target = _best_target(draft, m) if left and draft.evaluations.left > 0 else None
            if target is not None:
                draft.put(m, target)
                left -= 1


def _fewest_in_part(draft: Draft, row: int) -> int:
    problem = draft.problem
    pods = [m for m in problem.movables(row) if m not in draft.moves]
    loads = problem.load_rows(pods)
    excess = np.minimum(draft.load[row] - problem.limit[row], loads.sum(axis=0))
    return next(sizes(loads, excess), 0)


def _largest_first(draft: Draft, row: int) -> list[Movable]:
    """Return the pods that relieve a node most, the largest first."""
    problem = draft.problem
    capacity = problem.capacity[row]
    over = 100.0 * draft.load[row] / capacity - problem.ceiling[row]
    wanted = np.maximum(over, 0.0) / capacity
    share = 100.0 * problem.loads(row)[:, over > 0] / capacity[over > 0]
    gains = (share >= problem.demand.cluster.config.min_gain).any(axis=1)
    movables = problem.movables(row)
    pods = draft.may_go(
        [movables[i] for i in np.flatnonzero(gains) if movables[i] not in draft.moves]
    )
    return sorted(pods, key=lambda m: (-float(m.load @ wanted), m.number))


def _best_target(draft: Draft, m: Movable) -> int | None:
    problem = draft.problem
    over = problem.percent(draft.load)[m.row] - problem.ceiling[m.row]
    axes = [axis for axis in problem.axes if over[axis] > 0]
    if not axes:
        return None
    mask = draft.targets(m) & worthwhile(draft, m, axes, problem.demand.cluster.config.min_gain)
    rows = np.flatnonzero(mask)
    if not rows.size:
        return None
    return int(rows[np.argmin(highest(draft.joined(m))[rows])])
