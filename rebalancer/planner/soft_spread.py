# SPDX-License-Identifier: Apache-2.0
"""Soft topology spread: where a pod may go without violating its constraints more than now.

The scheduler honors `ScheduleAnyway` constraints by scoring (scoring.go in
pkg/scheduler/framework/plugins/podtopologyspread). A filter that leaves one node disables
scoring, so a plan that names the node has to keep the constraints itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.cluster.shapes import Spread
from common.fit import Question
from common.fit.index.arrays import Flags, Ints
from common.fit.predicates.topology_spread import spreading


def no_worse(ask: Question, home: int, today: Sequence[int]) -> Flags:
    """Return the index's rows where no soft constraint is violated more than before.

    `home` is the row that the predecessor leaves; it must not count any more. `today` are the
    skews before the plan: what moves have improved since, other moves may use up again.
    """
    index = ask.seek()
    allowed: Flags = index.facts.alive.copy()
    for constraint, skew in zip(_soft(ask), today, strict=True):
        allowed &= _no_worse(ask, constraint, home, skew)
    return allowed


def skews(ask: Question) -> tuple[int, ...]:
    """Return how far the domains of each soft constraint are apart."""
    ask.seek()
    found = (spreading(ask, constraint) for constraint in _soft(ask))
    return tuple(int(np.ptp(s.counts[s.domains])) if s.domains.any() else 0 for s in found)


def _soft(ask: Question) -> list[Spread]:
    return [constraint for constraint in ask.pod.shape.spread if not constraint.hard]


def _no_worse(ask: Question, constraint: Spread, home: int, today: int) -> Flags:
    facts = ask.index.facts
    column = facts.column(constraint.topology_key)
    found = spreading(ask, constraint)
    counts, domains = found.counts, found.domains
    if not domains.any():
        return facts.alive
    before = counts.copy()
    if column.ids[home] >= 0:
        before[column.ids[home]] += 1
    bearable = max(constraint.max_skew, today, int(np.ptp(before[domains])))
    # The absent, which as an index are the last, are in no domain and violate nothing.
    return column.pick(np.append(_gap_with_one_more(counts, domains) <= bearable, np.True_))


def _gap_with_one_more(counts: Ints, domains: Flags) -> Ints:
    """Return for each value how far the domains are apart with one more pod there."""
    held = np.sort(counts[domains])
    lonely = held.size > 1 and held[0] < held[1]
    lowest = np.full(counts.size, held[0])
    # Only the emptiest domain, if it is the only one, lifts the low end.
    lowest[domains & (counts == held[0])] += int(lonely or held.size == 1)
    gaps: Ints = np.maximum(held[-1], counts + 1) - lowest
    return gaps
