"""Nodes that the pod prefers (plugins/nodeaffinity)."""

from __future__ import annotations

from typing import Final

import numpy as np

from common.fit.index.arrays import Flags, Ints
from common.fit.question import Question
from common.fit.scores.base import Score, scaled


def rate(ask: Question, among: Flags) -> Ints | None:
    """Prefer nodes that many weighty preferred terms select."""
    preferred = ask.pod.shape.preferred_nodes
    if not preferred:
        return None
    facts = ask.index.facts
    total = np.zeros(facts.capacity, dtype=np.int64)
    for each in preferred:
        total += each.weight * facts.selected(each.term)
    return scaled(total, among)


NODE_AFFINITY: Final = Score("NodeAffinity", 2, rate)
