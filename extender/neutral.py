"""What is answered when there is no opinion: the extender fails open, and it does so here.

Neutral means that kube-scheduler decides as if it had not asked: every node stays, every
score is the same, every candidate for preemption stays. A list of equal scores is not the
same as no list: nodes without a score lose every tie (`prioritizeNodes` in kube-scheduler's
pkg/scheduler/schedule_one.go).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from common.clock import Clock
from common.metrics import Metrics
from extender.asking import Filtered
from extender.errors import UnreadablePod
from extender.scoring import NEUTRAL

_QUIET_S: Final = 1.0

log: structlog.stdlib.BoundLogger = structlog.get_logger()


def keep_all(names: Sequence[str]) -> Filtered:
    """Return the filter's answer that refuses nothing."""
    return Filtered(names, {})


def equal_scores(names: Sequence[str]) -> list[int]:
    """Return the scores that prefer nothing."""
    return [NEUTRAL] * len(names)


class Neutral:
    """Counts the answers that were given without an opinion, and says why."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._clock = clock
        self._silent_until_s = float("-inf")
        self._unsaid = 0
        self._answers = metrics.counter(
            "neutral_answers_total",
            "Answers that were given without an opinion.",
            ("verb", "cause"),
        )

    def count(self, verb: str, cause: str) -> None:
        """Count one answer."""
        self._answers.labels(verb, cause).inc()

    def failed(self, verb: str, error: Exception) -> None:
        """Count an answer that could not be worked out; log at most one a second."""
        ours = not isinstance(error, UnreadablePod)
        self.count(verb, "internal" if ours else "pod")
        now_s = self._clock.monotonic()
        if now_s < self._silent_until_s:
            self._unsaid += 1
            return
        trace = error if ours else None
        log.error("no verdict", verb=verb, error=error, unsaid=self._unsaid, exc_info=trace)
        self._silent_until_s, self._unsaid = now_s + _QUIET_S, 0
