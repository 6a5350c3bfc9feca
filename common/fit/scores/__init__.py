"""The scheduler's default scores: which of the nodes that can take a pod is best.

The sum decides in kube-scheduler; here it places pods in the simulator and ranks targets.
"""

from __future__ import annotations

import numpy as np

from common.cluster.records import NodeName
from common.fit.index.arrays import Flags, Ints
from common.fit.question import Question
from common.fit.scores.allocation import BALANCED_ALLOCATION, LEAST_ALLOCATED
from common.fit.scores.base import Score
from common.fit.scores.image_locality import IMAGE_LOCALITY
from common.fit.scores.node_affinity import NODE_AFFINITY
from common.fit.scores.pod_affinity import POD_AFFINITY
from common.fit.scores.taints import TAINTS
from common.fit.scores.topology_spread import TOPOLOGY_SPREAD

__all__ = ("SCORES", "Score", "by_plugin", "ranking", "totals")

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
    ask.go()
    rated = {score: score.rate(ask, feasible) for score in SCORES}
    return {s.name: s.weight * found for s, found in rated.items() if found is not None}


def totals(ask: Question, among: Flags | None = None) -> Ints:
    """Return the sum of all scores by row, for the nodes that can take the pod."""
    total = np.zeros(ask.index.facts.capacity, dtype=np.int64)
    for weighted in by_plugin(ask, among).values():
        total += weighted
    return total


def ranking(ask: Question) -> list[tuple[NodeName, int]]:
    """Return the nodes that can take the pod with their sums, the best first."""
    feasible = ask.mask()
    sums = totals(ask, feasible)
    nodes = ask.index.facts.nodes
    found = [(nodes[row], int(sums[row])) for row in np.flatnonzero(feasible)]
    named = [(node.name, total) for node, total in found if node is not None]
    return sorted(named, key=lambda pair: (-pair[1], pair[0]))
