"""Nodes that would rather not have the pod (plugins/tainttoleration)."""

from __future__ import annotations

from typing import Final

from common.cluster.tolerations import Effect, Taint, tolerated
from common.fit.index.arrays import Flags, Ints
from common.fit.question import Question
from common.fit.scores.base import Score, scaled


def rate(ask: Question, among: Flags) -> Ints:
    """Prefer nodes with the fewest soft taints that nothing tolerates."""
    leave = [
        toleration
        for toleration in ask.pod.shape.tolerations
        if toleration.effect in ("", Effect.PREFER_NO_SCHEDULE)
    ]

    def unwelcome(taints: tuple[Taint, ...]) -> int:
        soft = (taint for taint in taints if taint.effect == Effect.PREFER_NO_SCHEDULE)
        return sum(not tolerated(taint, leave) for taint in soft)

    return scaled(ask.index.facts.per_taints(unwelcome), among, reverse=True)


TAINTS: Final = Score("TaintToleration", 3, rate)
