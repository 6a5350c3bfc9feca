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
from common.fit.predicates.topology_spread import (
    constraint_selector,
    counted_rows,
    eligible_nodes,
)


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
    found = (counted(ask, constraint) for constraint in _soft(ask))
    return tuple(int(np.ptp(held[domains])) if domains.any() else 0 for held, domains in found)


def _soft(ask: Question) -> list[Spread]:
    return [constraint for constraint in ask.pod.shape.spread if not constraint.hard]


def _no_worse(ask: Question, constraint: Spread, home: int, today: int) -> Flags:
    facts = ask.index.facts
    column = facts.column(constraint.topology_key)
    counts, domains = counted(ask, constraint)
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


def counted(ask: Question, constraint: Spread) -> tuple[Ints, Flags]:
    """Return pods by number of the value, and which values are domains."""
    facts = ask.index.facts
    column = facts.column(constraint.topology_key)
    eligible = facts.alive & eligible_nodes(facts, ask.pod.shape, constraint)
    domains = np.zeros(column.size + 1, dtype=np.bool_)
    domains[column.ids[eligible]] = True
    rows, numbers = counted_rows(ask, constraint_selector(constraint, ask.pod.labels))
    counting = eligible[rows]
    ids = column.ids[rows[counting]]
    held = np.bincount(ids[ids >= 0], weights=numbers[counting][ids >= 0], minlength=column.size)
    return held.astype(np.int64), domains[: column.size]
