# SPDX-License-Identifier: Apache-2.0
"""The neutral answers: the extender fails open, and this is where.

Neutral means that kube-scheduler decides as if it had not asked: every node passes, every
score is the same, every preemption candidate stays. A list of equal scores is not the same
as an empty list: nodes that no extender scored lose every tie, because only scored nodes get
a `Randomizer` (`prioritizeNodes` in pkg/scheduler/schedule_one.go).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import structlog

from common.clock import Clock
from common.metrics import Metrics
from extender.errors import UnreadablePod
from extender.protocol import FilterResult, Scores, Victims
from extender.scoring import NEUTRAL

_LOG_INTERVAL_S: Final = 1.0

log: structlog.stdlib.BoundLogger = structlog.get_logger()


def keep_all(names: Sequence[str]) -> FilterResult:
    """Return the filter result that rejects no node."""
    return FilterResult(names, {})


def equal_scores(names: Sequence[str]) -> Scores:
    """Return scores that prefer no node."""
    return Scores([NEUTRAL] * len(names))


def all_candidates(candidates: Mapping[str, Victims]) -> Collection[str]:
    """Return the preemption candidates, all of them."""
    return candidates.keys()


class NeutralAnswers:
    """Counts neutral answers and logs why they were given."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._clock = clock
        self._silent_until_s = float("-inf")
        self._suppressed = 0
        self._answers = metrics.counter(
            "neutral_answers_total",
            "Answers that expressed no preference.",
            ("verb", "cause"),
        )

    def count(self, verb: str, cause: str) -> None:
        """Count one answer."""
        self._answers.labels(verb, cause).inc()

    def failed(self, verb: str, error: Exception) -> None:
        """Count a decision that failed; log at most one a second."""
        internal = not isinstance(error, UnreadablePod)
        self.count(verb, "internal" if internal else "pod")
        now_s = self._clock.monotonic()
        if now_s < self._silent_until_s:
            self._suppressed += 1
            return
        log.error(
            "decision failed",
            verb=verb,
            error=error,
            suppressed=self._suppressed,
            exc_info=error if internal else None,
        )
        self._silent_until_s, self._suppressed = now_s + _LOG_INTERVAL_S, 0
