# SPDX-License-Identifier: Apache-2.0
"""In how many samples in a row a goal has been broken.

One bad sample proves little, so goals for load stand only after `observations` new samples
in a row; a pool's spread counts each node at its ends for itself, otherwise in a large pool
a new node's spike in every sample would look like one that lasts.
"""

from __future__ import annotations

from math import isnan
from typing import Literal, NamedTuple

import msgspec

from common.cluster.records import NodeName
from common.load import Observations
from rebalancer.goals import AtMost, Dimension, Goal, Spread
from rebalancer.strategies.base import ClusterView
from rebalancer.strategies.load_balancing import levels_of, spread
from rebalancer.strategies.pools import Levels, most_loaded_first, outliers, percent
from rebalancer.strategies.predicted_levels import PredictedLevels
from rebalancer.strategies.resource_optimization import at_most


class Watch(NamedTuple):
    """What is counted: samples with a node above its ceiling, or too far from its pool."""

    what: Literal["ceiling", "high", "low"]
    node: NodeName
    dimension: Dimension


class Waiting(msgspec.Struct, frozen=True):
    """A goal that is broken now, but not yet in enough samples."""

    goal: Goal
    seen: int
    needed: int
    message: str


class SampleCheck:
    """Checks the goals of one moment against the samples counted so far."""

    def __init__(
        self,
        cluster: ClusterView,
        predicted: PredictedLevels,
        counts: Observations[Watch],
        needed: int,
    ) -> None:
        self._look = cluster
        self._predicted = predicted
        self._counts = counts
        self._needed = needed
        self.standing: dict[Watch, bool] = {}
        self.early: list[NodeName] = []
        """Nodes at the end of a pool that were not there often enough."""

    def at_most(self, goal: AtMost) -> AtMost | Waiting:
        """Return the goal for the resources that were above it often enough."""
        watches = [Watch("ceiling", goal.node, d) for d in goal.broken]
        standing = tuple(w.dimension for w in watches if self._stands(w))
        if standing == goal.broken:
            return goal
        if standing:
            narrowed = at_most(
                self._look.load.nodes[goal.node],
                goal.ceiling,
                standing,
                self._look,
            )
            return msgspec.structs.replace(narrowed, strategy=goal.strategy)
        seen = max(self._counts.count(watch) for watch in watches)
        first = goal.broken[0]
        what = f"{goal.node} above {goal.ceiling.of(first):g} % {first.label}"
        return self._waiting(goal, seen, what)

    def spread(self, goal: Spread) -> Spread | Waiting:
        """Return the goal for the nodes that were at the ends of the pool often enough."""
        predicted = self._predicted[goal.dimension]
        levels = levels_of(self._look, goal.nodes, goal.dimension, predicted)
        left, early = levels, self._early(levels, goal)
        if not early:
            return goal
        while early:
            self.early += early
            left = {name: level for name, level in left.items() if name not in early}
            early = self._early(left, goal)
        narrowed = spread(
            goal.pool, goal.dimension, goal.points, left, predicted, fill_low=goal.fill_low
        )
        if narrowed is None:
            return self._apart(goal, levels)
        return msgspec.structs.replace(narrowed, strategy=goal.strategy)

    def clears(self, watch: Watch) -> bool:
        """Count a good sample; return whether nothing is left to remember."""
        load = self._look.load.nodes.get(watch.node)
        if load is None or not load.known or isnan(percent(load, watch.dimension)):
            return False
        self._observe(watch, broken=False)
        return self._counts.count(watch) == 0

    def _early(self, levels: Levels, goal: Spread) -> set[NodeName]:
        ends = outliers(levels, goal.points, fill_low=goal.fill_low)
        high = {n for n in ends.high if not self._stands(Watch("high", n, goal.dimension))}
        return high | {n for n in ends.low if not self._stands(Watch("low", n, goal.dimension))}

    def _apart(self, goal: Spread, levels: Levels) -> Waiting:
        order = most_loaded_first(levels)
        high = Watch("high", order[0], goal.dimension)
        low = Watch("low", order[-1], goal.dimension)
        seen = self._counts.count(high)
        others = "the mean of the others"
        if goal.fill_low:
            seen, others = min(seen, self._counts.count(low)), low.node
        name = goal.dimension.label
        what = f"{high.node} more than {goal.points:g} points of {name} above {others}"
        return self._waiting(goal, seen, what)

    def _waiting(self, goal: Goal, seen: int, what: str) -> Waiting:
        return Waiting(goal, seen, self._needed, f"{what} in {seen} of {self._needed} samples")

    def _stands(self, watch: Watch) -> bool:
        if watch not in self.standing:
            self.standing[watch] = self._observe(watch, broken=True)
        return self.standing[watch]

    def _observe(self, watch: Watch, *, broken: bool) -> bool:
        load = self._look.load.nodes[watch.node]
        levels = (percent(load, watch.dimension),)
        return self._counts.observe(watch, broken=broken, sample_s=load.sample_end_s, levels=levels)
