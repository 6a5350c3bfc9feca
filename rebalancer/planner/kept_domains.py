# SPDX-License-Identifier: Apache-2.0
"""Pods that a hard topology spread constraint keeps in their domain, whatever a plan does.

If each domain has as many replicas, `maxSkew: 1` lets the replacement of one that leaves run
only in the domain that it left, since every other would then have two more than that. The next
move finds the domains as level as this one did. So no order of moves takes such a replica into
another domain, and where its own domain has no other node it cannot be moved at all.

That is certain only if all pods that are counted follow the same constraints: others could move
first and make the domains uneven.
"""

from __future__ import annotations

from collections.abc import Iterable

from common.cluster.shapes import Spread
from common.fit.candidate import Candidate
from common.fit.index.arrays import Flags, Ints
from common.fit.predicates.topology_spread import Spreading, spreadings
from common.fit.world import World
from rebalancer.planner.movable import Movable
from rebalancer.planner.resources import some


class KeptDomains:
    """Answers for the pods of one cluster; those of one template share what is worked out."""

    def __init__(self, world: World, rows: Ints) -> None:
        """`rows` are those of the index, in the order of the nodes of the problem."""
        self._world = world
        self._rows = rows
        self._level: dict[int, tuple[Candidate, list[Ints]]] = {}
        self._domains: dict[str, Ints] = {}

    def hold(self, m: Movable, candidate: Candidate, allowed: Flags) -> bool:
        """Tell whether a pod cannot move: its domains, which it cannot leave, have no other node.

        `allowed` are the nodes where it could run otherwise.
        """
        keys = [each.topology_key for each in candidate.shape.spread if _is_strict(each)]
        # Most domains have other nodes: then it does not matter whether they are level.
        if not keys or _others(m, allowed, map(self._domain_of, keys)):
            return False
        levels = self._levels(m, candidate)
        return bool(levels) and not _others(m, allowed, levels)

    def _domain_of(self, key: str) -> Ints:
        found = self._domains.get(key)
        if found is None:
            found = self._domains[key] = self._world.index.facts.column(key).ids[self._rows]
        return found

    def _levels(self, m: Movable, candidate: Candidate) -> list[Ints]:
        """Return the domain of each node, for each constraint that keeps pods in theirs."""
        # The candidate is kept beside the answer, because an id can be reused.
        found = self._level.get(id(candidate))
        if found is None:
            question = self._world.ask(candidate)
            question.seek()
            asked = spreadings(question)
            level = [each.column.ids[self._rows] for each in asked if self._keeps(m, each)]
            found = self._level[id(candidate)] = candidate, level
        return found[1]

    def _keeps(self, m: Movable, spreading: Spreading) -> bool:
        counts = spreading.counts[spreading.domains]
        if not (_is_strict(spreading.constraint) and spreading.itself and len(counts) > 1):
            return False
        # `least` is 0 where there are fewer domains than `minDomains`.
        level = spreading.least > 0 and bool((counts == spreading.least).all())
        return level and self._alike(m, spreading) == int(counts.sum())

    def _alike(self, m: Movable, spreading: Spreading) -> int:
        """Return how many of the pods that are counted follow the constraints of this one."""
        replicas = self._world.snapshot.siblings(m.pod).values()
        return sum(
            each.shape.spread == m.pod.shape.spread and spreading.selector.matches(each.labels)
            for each in replicas
            if not (each.terminating or each.finished) and each.node
        )


def _others(m: Movable, allowed: Flags, domains: Iterable[Ints]) -> bool:
    """Tell whether a pod is allowed on another node that is in all of its domains."""
    found = allowed.copy()
    found[m.row] = False
    for domain_of in domains:
        found &= domain_of == domain_of[m.row]
    return some(found)


def _is_strict(constraint: Spread) -> bool:
    return constraint.hard and constraint.max_skew == 1
