# SPDX-License-Identifier: Apache-2.0
"""The scheduler's default scores: which of the nodes that can take a pod is best.

The sum of the weighted scores decides, as in prioritizeNodes (pkg/scheduler/schedule_one.go).
"""

from __future__ import annotations

import numpy as np

from common.fit.index.arrays import Flags, Ints
from common.fit.question import Question
from simulator.scheduler.scores.base import Score
from simulator.scheduler.scores.nodes import (
    BALANCED_ALLOCATION,
    IMAGE_LOCALITY,
    LEAST_ALLOCATED,
    NODE_AFFINITY,
    TAINTS,
)
from simulator.scheduler.scores.pod_affinity import POD_AFFINITY
from simulator.scheduler.scores.topology_spread import TOPOLOGY_SPREAD

__all__ = ("SCORES", "Score", "by_plugin", "totals")

SCORES: tuple[Score, ...] = (
    TAINTS,
    NODE_AFFINITY,
    LEAST_ALLOCATED,
    TOPOLOGY_SPREAD,
    POD_AFFINITY,
    BALANCED_ALLOCATION,
    IMAGE_LOCALITY,
)


def by_plugin(ask: Question, among: Flags | None = None) -> dict[str, Ints]:
    """Return every plugin's weighted scores by row; those without an opinion are left out."""
    feasible = ask.mask() if among is None else among
    ask.seek()
    rated = {score: score.rate(ask, feasible) for score in SCORES}
    return {s.name: s.weight * found for s, found in rated.items() if found is not None}


def totals(ask: Question, among: Flags | None = None) -> Ints:
    """Return the sum of all scores by row, for the nodes that can take the pod."""
    total = np.zeros(ask.index.facts.capacity, dtype=np.int64)
    for weighted in by_plugin(ask, among).values():
        total += weighted
    return total
