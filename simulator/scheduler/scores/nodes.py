# SPDX-License-Identifier: Apache-2.0
"""Scores from what a node itself has: free resources, images, labels and taints.

Follow noderesources, imagelocality, nodeaffinity and tainttoleration in
pkg/scheduler/framework/plugins of v1.36. Least allocated counts a minimum for containers without
requests; balanced allocation counts requests as they are and has no opinion on pods without any.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from common.api.objects import Effect, Taint
from common.cluster.tolerations import tolerated
from common.fit.index.arrays import Flags, Floats, Ints
from common.fit.question import Question
from simulator.scheduler.scores.base import BEST, Score, scaled

_LINES: Final = (0, 1)
"""cpu and memory."""


def least_allocated(ask: Question, _: Flags) -> Ints:
    """Prefer nodes with much to spare (least_allocated.go)."""
    room, shape = ask.index.occupancy, ask.pod.shape
    total = np.zeros(room.pods.size, dtype=np.int64)
    weights = np.zeros(room.pods.size, dtype=np.int64)
    for line, more in zip(_LINES, (shape.scored_cpu_milli, shape.scored_mem_bytes), strict=True):
        whole = room.allocatable[line]
        spare = np.maximum(whole - room.scored[line] - more, 0)
        # Integers, because bytes times 100 would lose digits as floats.
        total += np.where(whole > 0, spare * BEST // np.maximum(whole, 1), 0)
        weights += whole > 0
    return np.where(weights > 0, total // np.maximum(weights, 1), 0)


def balanced_allocation(ask: Question, _: Flags) -> Ints | None:
    """Prefer nodes whose cpu and memory the pod brings closer (balanced_allocation.go)."""
    room, asked = ask.index.occupancy, ask.pod.shape.requests
    more = (asked.cpu_milli, asked.mem_bytes)
    if not any(more):
        return None
    whole = [room.allocatable[line] for line in _LINES]
    before = [room.requested[line] for line in _LINES]
    after = [amount + extra for amount, extra in zip(before, more, strict=True)]
    gain = _balance(after, whole) - _balance(before, whole)
    return BEST // 2 + (BEST // 2 + gain) // 2


def _balance(used: list[Ints], whole: list[Ints]) -> Ints:
    both = (whole[0] > 0) & (whole[1] > 0)
    shares = [
        np.minimum(amount / np.maximum(size, 1), 1.0)
        for amount, size in zip(used, whole, strict=True)
    ]
    apart: Floats = np.where(both, np.abs((shares[0] - shares[1]) / 2), 0.0)
    return ((1 - apart) * BEST).astype(np.int64)


LEAST_ALLOCATED: Final = Score("NodeResourcesFit", 1, least_allocated)
BALANCED_ALLOCATION: Final = Score("NodeResourcesBalancedAllocation", 1, balanced_allocation)


_MB: Final = 1024 * 1024
_SMALLEST: Final = 23 * _MB
_LARGEST: Final = 1000 * _MB


def image_locality(ask: Question, _: Flags) -> Ints:
    """Prefer nodes with large images of the pod that many nodes have."""
    facts = ask.index.facts
    total = np.zeros(facts.capacity, dtype=np.int64)
    nodes = len(facts.row_of)
    for image in ask.pod.shape.images:
        sizes = facts.image_sizes(_normalized(image))
        share = np.count_nonzero(sizes) / max(nodes, 1)
        total += (sizes * share).astype(np.int64)
    most = _LARGEST * max(ask.pod.shape.containers, 1)
    return BEST * (np.clip(total, _SMALLEST, most) - _SMALLEST) // (most - _SMALLEST)


def _normalized(image: str) -> str:
    """Return the name under which nodes report an image."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


IMAGE_LOCALITY: Final = Score("ImageLocality", 1, image_locality)


def preferred_affinity(ask: Question, among: Flags) -> Ints | None:
    """Prefer nodes by the weights of the preferred terms that select them."""
    preferred = ask.pod.shape.preferred_nodes
    if not preferred:
        return None
    facts = ask.index.facts
    total = np.zeros(facts.capacity, dtype=np.int64)
    for each in preferred:
        total += each.weight * facts.selected(each.term)
    return scaled(total, among)


NODE_AFFINITY: Final = Score("NodeAffinity", 2, preferred_affinity)


def soft_taints(ask: Question, among: Flags) -> Ints:
    """Prefer nodes with the fewest PreferNoSchedule taints that are not tolerated."""
    leave = [
        toleration
        for toleration in ask.pod.shape.tolerations
        if toleration.effect in ("", Effect.PREFER_NO_SCHEDULE)
    ]

    def unwelcome(taints: tuple[Taint, ...]) -> int:
        soft = (taint for taint in taints if taint.effect == Effect.PREFER_NO_SCHEDULE)
        return sum(not tolerated(taint, leave) for taint in soft)

    return scaled(ask.index.facts.per_taints(unwelcome), among, reverse=True)


TAINTS: Final = Score("TaintToleration", 3, soft_taints)
