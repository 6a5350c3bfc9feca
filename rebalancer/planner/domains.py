# SPDX-License-Identifier: Apache-2.0
"""The domains of topology spread constraints, and how many of the counted pods each holds.

Constraints with a goal are followed from the start. Where `TopologySpread` is enabled anywhere,
those of any pod that moves are followed too, once it is asked about: what no goal asks for now
must not become uneven by moves for other goals, or the strategy would undo them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np

from common.cluster.records import ControllerId, PodUid
from common.config import Strategy
from common.fit.index.terms import Label, demanded
from rebalancer.goals import Distribute
from rebalancer.planner.fitting import Fitting
from rebalancer.planner.instance import Flags, Ints
from rebalancer.planner.movable import Movable
from rebalancer.planner.problem import Problem
from rebalancer.strategies.evenness import arrivals, widths_after
from rebalancer.strategies.topologies import Topology, constraints_of

_Key = tuple[ControllerId | PodUid, int, int]


class Domains:
    """The constraints of one problem, as the cluster is now."""

    def __init__(self, problem: Problem, fitting: Fitting) -> None:
        self._problem = problem
        self._fitting = fitting
        self.of_goal = {goal: fitting.topology_of(goal) for goal in problem.distributions}
        self._goal_of = {topology: goal for goal, topology in self.of_goal.items()}
        self._by_label: dict[tuple[str, Label | None], list[Topology]] = {}
        """Constraints by a label that the pods have which they count; None: maybe any."""
        for topology in self._goal_of:
            self._list(topology)
        rules = problem.demand.cluster.rules.rules
        self._guards = Strategy.TOPOLOGY_SPREAD in rules.enabled_anywhere()
        self._binding: dict[_Key, tuple[Topology, ...]] = {}
        self._counted: dict[tuple[Topology, int, int], tuple[bool, bool]] = {}
        self._pods: dict[Distribute, list[Movable]] = {}

    def goals_of(self, m: Movable) -> list[Distribute]:
        """Return the goals that count a pod."""
        return [self._goal_of[t] for t in self.counting(m) if t in self._goal_of]

    def counting(self, m: Movable) -> list[Topology]:
        """Return the constraints known so far that count a pod or its replacement."""
        labels = {*m.pod.labels.items(), *self._fitting.candidate(m).labels.items()}
        keys = [*sorted(labels), None] if self._by_label else []
        listed = (self._by_label.get((m.pod.namespace, key), ()) for key in keys)
        found = dict.fromkeys(chain.from_iterable(listed))
        return [topology for topology in found if any(self.counts(topology, m))]

    def _list(self, topology: Topology) -> None:
        for label in demanded(topology.selector):
            self._by_label.setdefault((topology.namespace, label), []).append(topology)

    def pods_of(self, goal: Distribute) -> list[Movable]:
        """Return the pods that a goal counts and that may be moved for it."""
        found = self._pods.get(goal)
        if found is None:
            problem, rules = self._problem, self._problem.demand.cluster.rules
            rows = self.of_goal[goal].at
            names = {row: rules.of_node(problem.nodes[row]).enabled_strategies for row in rows}
            found = self._pods[goal] = [
                m
                for row in rows
                if goal.strategy in names[row]
                for m in problem.judged(row)
                if goal.counts(m.pod.namespace, m.pod.labels)
            ]
        return found

    def binding(self, m: Movable) -> tuple[Topology, ...]:
        """Return the constraints that a move of a pod must not leave worse."""
        if not (self.of_goal or self._guards):
            return ()
        key = (m.group or m.pod.uid, id(m.pod.shape), id(m.pod.labels))
        found = self._binding.get(key)
        if found is None:
            found = self._binding[key] = tuple(self._found(m))
        return found

    def counts(self, topology: Topology, m: Movable) -> tuple[bool, bool]:
        """Tell whether a constraint of its namespace counts a pod, and whether its replacement."""
        after = self._fitting.candidate(m)
        key = (topology, id(m.pod.labels), id(after.labels))
        found = self._counted.get(key)
        if found is None:
            select = topology.selector.matches
            found = self._counted[key] = select(m.pod.labels), select(after.labels)
        return found

    def _found(self, m: Movable) -> Iterable[Topology]:
        goals = self.goals_of(m)
        yield from (self.of_goal[goal] for goal in goals)
        if not self._guards:
            return
        candidate = self._fitting.candidate(m)
        known = {(goal.constraint, goal.selector) for goal in goals}
        for constraint in constraints_of(m.pod, candidate, self._fitting.world):
            topology = self._fitting.spread_of(candidate, constraint)
            if (constraint, topology.selector) not in known:
                self._list(topology)
                yield topology


class DomainCounts:
    """How many pods each domain holds after the moves of a draft."""

    def __init__(self, domains: Domains) -> None:
        self.domains = domains
        self._held: dict[Topology, Ints] = {}
        self._moves: dict[Movable, int] = {}

    def held(self, topology: Topology) -> Ints:
        """Return the pods of each domain."""
        found = self._held.get(topology)
        if found is None:
            found = self._held[topology] = topology.held.copy()
            for m, row in self._moves.items():
                if m.pod.namespace == topology.namespace:
                    self._count(topology, m, row, +1)
        return found

    def shift(self, m: Movable, row: int, sign: int) -> None:
        """Note that a pod goes to a node, or does not after all."""
        if sign > 0:
            self._moves[m] = row
        else:
            del self._moves[m]
        for topology in self.domains.counting(m):
            if topology in self._held:
                self._count(topology, m, row, sign)

    def _count(self, topology: Topology, m: Movable, row: int, sign: int) -> None:
        leaves, arrives = self.domains.counts(topology, m)
        held = self._held[topology]
        if leaves and topology.ids[m.row] >= 0:
            held[topology.ids[m.row]] -= sign
        if arrives and topology.ids[row] >= 0:
            held[topology.ids[row]] += sign

    def missing(self, goal: Distribute) -> int:
        """Return how many pods have to move at least until a goal is met."""
        topology = self.domains.of_goal[goal]
        return topology.distance(self.held(topology))

    def keeping(self, m: Movable, *, hard: bool) -> Flags | None:
        """Return the rows to which a pod can go without leaving a constraint worse."""
        found: Flags | None = None
        for topology in self.domains.binding(m):
            if topology.constraint.hard != hard or not topology.held.size:
                continue
            fine = self._keeping(topology, m)
            found = fine if found is None else found & fine
        return found

    def _keeping(self, topology: Topology, m: Movable) -> Flags:
        held, (source, ends) = self.held(topology), self._course(topology, m)
        now = topology.width(held)
        if now <= topology.skew:
            widths = widths_after(held, source, short=topology.short)
            return np.asarray((widths <= topology.skew)[ends])
        distances, widths = arrivals(held, source, topology.skew, short=topology.short)
        return np.asarray(((distances <= topology.distance(held)) & (widths <= now))[ends])

    def gains(self, topology: Topology, m: Movable) -> Ints:
        """[N] return by how many moves fewer are missing once a pod is on each node."""
        held, (source, ends) = self.held(topology), self._course(topology, m)
        distances, _ = arrivals(held, source, topology.skew, short=topology.short)
        return np.asarray(topology.distance(held) - distances[ends])

    def _course(self, topology: Topology, m: Movable) -> tuple[int, Ints]:
        """Return the domain that a pod leaves, and the one that it would come to by row."""
        leaves, arrives = self.domains.counts(topology, m)
        ends = topology.ids if arrives else np.full_like(topology.ids, -1)
        return int(topology.ids[m.row]) if leaves else -1, ends

    def evens(self, m: Movable) -> Distribute | None:
        """Return a goal for which a move of the draft is made.

        Without it the pods of a goal would be further from being spread, or those of another
        constraint that counts the pod: what one asks for may take a move for the other.
        """
        row = self._moves.get(m)
        goals = self.domains.goals_of(m) if row is not None else []
        if row is None or not goals:
            return None
        for goal in goals:
            if self._spoils(self.domains.of_goal[goal], m, row):
                return goal
        others = (self._spoils(topology, m, row) for topology in self.domains.binding(m))
        return goals[0] if any(others) else None

    def _spoils(self, topology: Topology, m: Movable, row: int) -> bool:
        """Tell whether pods would be spread worse without a move."""
        before = topology.distance(self.held(topology))
        self._count(topology, m, row, -1)
        without = topology.distance(self.held(topology))
        self._count(topology, m, row, +1)
        return without > before
