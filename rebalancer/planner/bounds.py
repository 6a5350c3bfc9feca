# SPDX-License-Identifier: Apache-2.0
"""The fewest evictions that could be enough: lower bounds that hold for every plan.

A plan evicts each pod at most once, and each eviction leaves one node and reaches one other.
What a node has to lose can therefore be counted node by node and added up: no eviction is
counted twice, since it leaves only one node. For one node the counts that its goals ask for
combine by max, because one eviction serves them all:

* a node above its ceiling loses at least as many pods as it takes when its largest leave
  first, in every resource, and in every weighting of its broken resources;
* a node to be emptied loses each of its pods that may move;
* a pod with a goal of its own leaves its node.

A topology spread constraint asks for moves of the pods that it counts (`evenness`). Those of
constraints that count different pods add up; of constraints that share pods the largest holds.

So the sum over nodes holds for ceilings and *empty* together. For a spread goal the same sum
is taken with what the level of the pool asks of each node (`spread_bound`); bounds of several
spread goals combine by max.

Goals that the plan does not meet prove nothing and are left out; so is a goal that no plan
can meet. Loads are compared with a tolerance that only ever lowers the bound.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from common.cluster.records import NodeName
from rebalancer.goals import PRECISION, AtMost, Empty, Goal, Relocate, Spread
from rebalancer.planner.instance import (
    TOLERANCE,
    Flags,
    Floats,
    Instance,
    Ints,
    fewest_largest,
    movable,
)
from rebalancer.planner.plan import NO_BOUND, Bound
from rebalancer.planner.resources import mixes
from rebalancer.planner.spread_bound import Known, spread_evictions

LEEWAY: Final = PRECISION + TOLERANCE
"""Points by which a goal may be missed and still counts as met."""


def lower_bound(
    instance: Instance, goals: Sequence[Goal], *, excluded: Collection[Goal] = ()
) -> Bound:
    """Return how many evictions every plan needs that meets all goals except the excluded."""
    unmet = frozenset(excluded)
    wanted = [goal for goal in goals if goal not in unmet]
    needs = source_needs(instance, wanted)
    known = Known(needs.most, movable(instance))
    spreads = (
        (goal, spread_evictions(instance, goal, goal.dimension.axis, known))
        for goal in wanted
        if isinstance(goal, Spread)
    )
    best = max(spreads, key=lambda found: found[1], default=None)
    if best is not None and best[1] > needs.total:
        return Bound(evictions=best[1], proof="spread", message=_spread_message(best[0], best[1]))
    return needs.bound


@dataclass(frozen=True, slots=True, eq=False)
class SourceNeeds:
    """How many pods each node has to lose, and for which goal."""

    ceilings: Ints
    empty: Ints
    single: Ints
    """Of pods with goals of their own."""

    @property
    def most(self) -> Ints:
        """[N] what each node loses at least."""
        return np.maximum(np.maximum(self.ceilings, self.empty), self.single)

    @property
    def total(self) -> int:
        """What all of them lose at least."""
        return int(self.most.sum())

    @property
    def bound(self) -> Bound:
        if not self.total:
            return NO_BOUND
        emptied, above = int(self.empty.sum()), int(self.ceilings.sum())
        proof = "empty" if 2 * emptied >= self.total else "ceilings" if above else "relocate"
        return Bound(evictions=self.total, proof=proof, message=self._message())

    def _message(self) -> str:
        emptied, single = self.empty > 0, self.single > self.ceilings
        above = (self.ceilings > 0) & ~emptied & ~single
        single &= ~emptied
        parts = []
        if above.any():
            parts.append(
                f"{_nodes(above)} above the ceiling, and even if the largest pods leave first, "
                f"{_pods(self.ceilings[above])} to move"
            )
        if emptied.any():
            parts.append(
                f"{_nodes(emptied)} to be emptied, and {_pods(self.empty[emptied])} to move"
            )
        if single.any():
            parts.append(f"{_pods(self.single[single])} to leave the node where it is")
        return "; ".join(parts)


def source_needs(instance: Instance, goals: Iterable[Goal]) -> SourceNeeds:
    """Return how many pods each node has to lose for its own goals."""
    stated = list(goals)
    empties = [goal for goal in stated if isinstance(goal, Empty)]
    return SourceNeeds(
        ceilings=_for_ceilings(instance, [goal for goal in stated if isinstance(goal, AtMost)]),
        empty=_for_emptying(instance, empties),
        single=_for_single_pods(instance, [g for g in stated if isinstance(g, Relocate)]),
    )


def rows_of(instance: Instance, names: Iterable[NodeName]) -> Ints:
    """Return the rows of nodes by name; nodes that are not in the instance are left out."""
    row = {name: number for number, name in enumerate(instance.nodes)}
    return np.array([row[name] for name in names if name in row], dtype=np.int64)


def excess(instance: Instance, goals: Sequence[AtMost]) -> Floats:
    """[N, R] points that have to leave a node for its ceiling, nowhere below zero."""
    found, percent = np.zeros_like(instance.capacity), instance.percent
    row = {name: number for number, name in enumerate(instance.nodes)}
    for goal in goals:
        if goal.node in row:
            at = row[goal.node]
            over = percent[at] - goal.ceiling.percents
            broken = [dimension.axis for dimension in goal.broken]
            found[at, broken] = np.maximum(found[at, broken], over[broken] - LEEWAY)
    return found


def _for_ceilings(instance: Instance, goals: Sequence[AtMost]) -> Ints:
    over = excess(instance, goals)
    hot = over.max(axis=1, initial=0.0) > 0.0
    pods = np.flatnonzero(hot[instance.at] & movable(instance))
    at = instance.at[pods]
    share = 100.0 * instance.pod_load[pods] / instance.capacity[at]
    needs = np.zeros(len(instance.nodes), dtype=np.int64)
    reachable = np.ones(len(instance.nodes), dtype=np.bool_)
    # Any mixture of covering rules is a covering rule; a few of them catch most of the gap
    # between the hardest resource alone and all together.
    for weights in mixes(over.shape[1]):
        weight = np.divide(weights, over, out=np.zeros_like(over), where=over > 0.0)
        target = np.where(over > 0.0, weights, 0.0).sum(axis=1)
        fewest, reached = fewest_largest(at, (share * weight[at]).sum(axis=1), target)
        needs = np.maximum(needs, fewest)
        reachable &= reached
    return np.where(reachable, needs, 0)


def _for_emptying(instance: Instance, goals: Sequence[Empty]) -> Ints:
    here = np.bincount(instance.at, minlength=len(instance.nodes))
    needs = np.zeros(len(instance.nodes), dtype=np.int64)
    rows = rows_of(instance, (goal.node for goal in goals))
    needs[rows] = here[rows]
    return needs


def _for_single_pods(instance: Instance, goals: Sequence[Relocate]) -> Ints:
    rows = rows_of(instance, (goal.node for goal in goals))
    return np.bincount(rows, minlength=len(instance.nodes))


def _nodes(chosen: Flags) -> str:
    count = int(chosen.sum())
    return "1 node is" if count == 1 else f"{count} nodes are"


def _pods(counts: Ints) -> str:
    total = int(counts.sum())
    return "1 pod has" if total == 1 else f"{total} pods have"


def _spread_message(goal: Spread, evictions: int) -> str:
    pool = f"pool {goal.pool}" if goal.pool else "the pool"
    return (
        f"whatever level {pool} settles at, at least {evictions} pods have to leave nodes that "
        f"are more than {goal.points:g} points of {goal.dimension.label} above it, or reach nodes "
        "below it"
    )
