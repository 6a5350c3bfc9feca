# SPDX-License-Identifier: Apache-2.0
"""The metrics of Migrations; their children are bound once."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

from common.api.migrations import Outcome, Phase
from common.cache.state import ClusterState
from common.cluster.migrations import MigrationRecord
from common.config import Strategy
from common.metrics import Metrics
from rebalancer.migration.eviction import Result

_OPEN: Final = (Phase.PENDING, Phase.IN_PROGRESS)
_FAILED: Final = "Failed"
_OTHER: Final = "other"
"""Any client may write any strategy into a Migration; each would be a new series."""
_BUCKETS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class MigrationMetrics:
    """Counts evictions and how Migrations end."""

    def __init__(self, metrics: Metrics, state: ClusterState) -> None:
        self._state = state
        strategies = (*(strategy.value for strategy in Strategy), _OTHER)
        total = metrics.counter(
            "migrations_total", "Migrations that ended.", ("outcome", "strategy")
        )
        outcomes = (*(outcome.value for outcome in Outcome), _FAILED)
        self._ended = {(o, s): total.labels(o, s) for o in outcomes for s in strategies}
        evictions = metrics.counter(
            "evictions_total", "Responses to eviction requests.", ("result",)
        )
        self._evictions = {result: evictions.labels(result.value) for result in Result}
        self._failures = metrics.counter(
            "migration_failures_total", "Migrations that failed, by reason.", ("reason",)
        )
        self._duration = metrics.histogram(
            "migration_duration_seconds",
            "Time from the creation of a Migration to its completion.",
            buckets=_BUCKETS,
        )
        open_ = metrics.gauge("migrations_open", "Migrations that have not ended.", ("phase",))
        for phase in _OPEN:
            open_.labels(phase.value).set_function(partial(self._count, phase))

    def eviction_answered(self, result: Result) -> None:
        """Count the result of an attempt to evict."""
        self._evictions[result].inc()

    def ended(self, migration: MigrationRecord, outcome: Outcome | None, now_s: float) -> None:
        """Count a Migration that was closed; without an outcome it failed."""
        known = migration.strategy in {strategy.value for strategy in Strategy}
        name = outcome.value if outcome is not None else _FAILED
        self._ended[name, migration.strategy if known else _OTHER].inc()
        if outcome is not None:
            self._duration.observe(max(0.0, now_s - migration.created_s))

    def failed(self, reason: str) -> None:
        """Count why a Migration failed."""
        self._failures.labels(reason).inc()

    def _count(self, phase: Phase) -> float:
        records = self._state.migrations.records.freeze().values()
        return float(Counter(found.phase for found in records)[phase.value])
