"""Pods that draw or repel each other softly (plugins/interpodaffinity/scoring.go)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from common.fit.index.arrays import Flags, Ints
from common.fit.index.crowd import tally
from common.fit.predicates.pod_affinity import reach
from common.fit.question import Question
from common.fit.scores.base import BEST, Score

Pull = tuple[str, Ints, Ints]
"""Topology key, rows, and what they add to their domain."""


def rate(ask: Question, among: Flags) -> Ints | None:
    """Prefer domains with pods that the pod likes and that like it."""
    facts = ask.index.facts
    by_key: dict[str, Ints] = {}
    for key, rows, amounts in (*_mine(ask), *_theirs(ask)):
        column = facts.column(key)
        totals = by_key.setdefault(key, np.zeros(column.size + 1, dtype=np.int64))
        np.add.at(totals, column.ids[rows], amounts)
    if not by_key:
        return None
    total = np.zeros(facts.capacity, dtype=np.int64)
    for key, totals in by_key.items():
        totals[-1] = 0
        total += totals[facts.column(key).ids]
    return _stretched(total, among)


def _mine(ask: Question) -> Iterator[Pull]:
    """What the pod's own preferences make of the pods that run."""
    shape, crowd = ask.pod.shape, ask.index.crowd
    signed = [(weighted, 1) for weighted in shape.preferred_affinity]
    signed += [(weighted, -1) for weighted in shape.preferred_anti_affinity]
    for weighted, sign in signed:
        rows, numbers = tally(reach(ask, weighted.term).groups(crowd))
        yield weighted.term.topology_key, rows, sign * weighted.weight * numbers


def _theirs(ask: Question) -> Iterator[Pull]:
    """What the preferences of the pods that run make of the pod."""
    pod, index = ask.pod, ask.index
    about = index.leanings.about(pod.namespace, pod.labels, ask.namespace_labels())
    for (term, weight), held in about:
        rows = np.array(list(held), dtype=np.int64)
        numbers = np.array(list(held.values()), dtype=np.int64)
        yield term.topology_key, rows, weight * numbers


def _stretched(total: Ints, among: Flags) -> Ints:
    """Stretch the scores so that they reach from worst to best."""
    if not among.any():
        return total
    low, high = int(total[among].min()), int(total[among].max())
    if low == high:
        return np.zeros(total.size, dtype=np.int64)
    return (BEST * ((total - low) / (high - low))).astype(np.int64)


POD_AFFINITY: Final = Score("InterPodAffinity", 2, rate)
