# SPDX-License-Identifier: Apache-2.0
"""How well nodes suit what a pod prefers: its preferred node affinity, and soft taints.

Taints with `PreferNoSchedule` that a pod does not tolerate come first, then the weight of the
terms that select the node. kube-scheduler's default weights say the same for a single taint:
3 for TaintToleration, 2 for NodeAffinity (pkg/scheduler/apis/config/v1/default_plugins.go).
Taints that are set for a while, by Kubernetes or an autoscaler, say nothing about what suits.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from common.api.objects import Effect, Taint
from common.cluster.records import NodeName
from common.cluster.shapes import PodShape
from common.cluster.tolerations import tolerated
from common.fit import World
from common.fit.index.arrays import Flags, Ints
from rebalancer.strategies.pools import lasting


class Preference(NamedTuple):
    """How well a node suits a pod; larger is better."""

    untainted: int
    """Minus the soft taints that it does not tolerate."""
    weight: int
    """Of the preferred terms that select the node."""


class Preferences:
    """Answers for one moment; pods that prefer the same share the answer."""

    def __init__(self, world: World) -> None:
        index = world.index
        index.seek(world.snapshot, ())
        self._facts = index.facts
        self._known: dict[Hashable, tuple[Ints, Ints]] = {}

    def of(self, shape: PodShape, name: NodeName) -> Preference:
        """Return how well a node suits a pod."""
        untainted, weight = self._rows(shape)
        row = self._facts.row_of[name]
        return Preference(int(untainted[row]), int(weight[row]))

    def best(self, shape: PodShape, among: Flags) -> Preference:
        """Return how well the best of some nodes, by row of the index, suits a pod."""
        untainted, weight = (values[among] for values in self._rows(shape))
        if not weight.size:
            return Preference(-len(self._facts.row_of), 0)
        most = int(untainted.max())
        return Preference(most, int(weight[untainted == most].max()))

    def weights(self, shape: PodShape) -> Ints:
        """Return the weight of preferred terms by row of the index."""
        return self._rows(shape)[1]

    def _rows(self, shape: PodShape) -> tuple[Ints, Ints]:
        key = (shape.tolerations, shape.preferred_nodes)
        if key not in self._known:
            self._known[key] = self._untainted(shape), self._weights(shape)
        return self._known[key]

    def _untainted(self, shape: PodShape) -> Ints:
        def unwelcome(taints: tuple[Taint, ...]) -> int:
            soft = (taint for taint in lasting(taints) if taint.effect == Effect.PREFER_NO_SCHEDULE)
            return -sum(not tolerated(taint, shape.tolerations) for taint in soft)

        return self._facts.per_taints(unwelcome)

    def _weights(self, shape: PodShape) -> Ints:
        found: Ints = np.zeros(self._facts.capacity, dtype=np.int64)
        for each in shape.preferred_nodes:
            found += each.weight * self._facts.selected(each.term)
        return found
