# SPDX-License-Identifier: Apache-2.0
"""Preferred pod affinity and anti-affinity (plugins/interpodaffinity/scoring.go)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from common.fit.index.arrays import Flags, Ints
from common.fit.index.pod_groups import tally
from common.fit.predicates.pod_affinity import reach
from common.fit.question import Question
from simulator.scheduler.scores.base import BEST, Score

Pull = tuple[str, Ints, Ints]
"""Topology key, rows, and what they add to their domain."""


def rate(ask: Question, among: Flags) -> Ints | None:
    """Prefer domains by the affinity of the pod, and of the pods that run there."""
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
    """Return the score of running pods by the preferences of this pod."""
    shape, pod_groups = ask.pod.shape, ask.index.pod_groups
    signed = [(weighted, 1) for weighted in shape.preferred_affinity]
    signed += [(weighted, -1) for weighted in shape.preferred_anti_affinity]
    for weighted, sign in signed:
        rows, numbers = tally(reach(ask, weighted.term).groups(pod_groups))
        yield weighted.term.topology_key, rows, sign * weighted.weight * numbers


def _theirs(ask: Question) -> Iterator[Pull]:
    """Return the score of this pod by the preferences of running pods."""
    pod, index = ask.pod, ask.index
    about = index.scored_terms.about(pod.namespace, pod.labels, ask.namespace_labels())
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
