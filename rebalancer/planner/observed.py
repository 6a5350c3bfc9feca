# SPDX-License-Identifier: Apache-2.0
"""Pods whose namespace only observes what they could be moved for.

Gates judge a pod without knowing for which strategy it would leave; they refuse it only if its
namespace observes all of them. Here the goals of its node tell. A pod that is planned all the same
would be held back in every cycle, and no other pod of its node would go instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from common.cluster.records import PodRecord
from common.config import FOR_LOAD, Strategy
from rebalancer.refusals import Reason, Refusal

if TYPE_CHECKING:
    from rebalancer.planner.problem import Problem


def observed(problem: Problem, pod: PodRecord, row: int) -> tuple[Refusal, ...]:
    """Return that the namespace of a pod only observes whatever it could be moved for."""
    rules = problem.demand.cluster.rules
    if problem.drained[row] or not rules.rules.config.namespaces:
        return ()
    # A node without a goal may have to make room for pods that leave for one.
    wanted = frozenset(_strategies(problem, pod, row)) or FOR_LOAD
    rule = rules.observing_namespace(pod, wanted)
    return (Reason.RULE_OBSERVES.refusal(rule=rule),) if rule else ()


def _strategies(problem: Problem, pod: PodRecord, row: int) -> Iterator[Strategy]:
    own, goal = problem.relocations.get(pod.uid), problem.goal_of(row)
    if own is not None:
        yield own.strategy
    if goal is not None:  # a pod that leaves such a node leaves for this goal, also in a spread
        yield goal.strategy
        return
    yield from (spread.strategy for spread in problem.spreads if problem.inside(spread)[row])
