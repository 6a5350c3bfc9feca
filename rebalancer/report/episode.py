# SPDX-License-Identifier: Apache-2.0
"""Evictions over an episode, compared with the fewest that were possible.

An episode begins with the first plan that is carried out and ends when nothing is left to do and
nothing is under way. The lower bound of a plan holds for the goals of that plan. Two plans whose
goals are about different nodes need the sum of both, because every eviction has one source;
otherwise only the larger bound is proven.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import structlog

from common.cluster.migrations import MigrationRecord
from common.metrics import Metrics
from rebalancer.evictability import was_carried_out
from rebalancer.planner import Plan

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_PER_SOURCE: Final = frozenset({"ceilings", "empty"})
"""Proofs that count evictions node by node."""


class Episode:
    """The figures of one episode so far; pure."""

    def __init__(self) -> None:
        self._goals: set[str] = set()
        self._settled = 0
        self._current = 0
        self._by_source = True
        self._waiting: set[str] = set()
        self._evicted: set[str] = set()

    @property
    def evictions(self) -> int:
        return len(self._evicted)

    @property
    def lower_bound(self) -> int:
        return self._settled + self._current

    @property
    def under_way(self) -> bool:
        return bool(self._goals)

    def acted(self, plan: Plan, created: Collection[str], *, needless: int = 0) -> None:
        """Count a plan that is carried out; `needless` moves turned out not to be needed."""
        bound = max(0, plan.lower_bound.evictions - needless)
        by_source = plan.lower_bound.proof in _PER_SOURCE
        if by_source and self._by_source and self._goals.isdisjoint(plan.goals):
            self._settled += self._current
            self._current = bound
        else:
            self._current = max(self._current, bound)
        self._by_source = self._by_source and by_source
        self._goals.update(plan.goals)
        self._waiting.update(created)

    def observe(self, migrations: Mapping[str, MigrationRecord]) -> None:
        """Count the Migrations of this episode whose pod was evicted."""
        for name in sorted(self._waiting):
            found = migrations.get(name)
            if found is not None and was_carried_out(found):
                self._evicted.add(name)
            if found is not None and not found.open:
                self._waiting.discard(name)

    def over(self, plan: Plan, *, waiting: int, migrations: Mapping[str, MigrationRecord]) -> bool:
        """Tell whether nothing is left to do, to observe or under way."""
        busy = waiting or plan.moves or any(m.open for m in migrations.values())
        return self.under_way and not busy


class EpisodeTracker:
    """Keeps the current episode and its metrics; the last figures stay until the next one."""

    def __init__(self, metrics: Metrics) -> None:
        self._episode = Episode()
        self._evictions = metrics.gauge(
            "episode_evictions", "Evictions since the first plan of this or the last episode."
        )
        self._bound = metrics.gauge(
            "episode_lower_bound",
            "The fewest evictions that could meet the goals of the same episode.",
        )

    def acted(self, plan: Plan, created: Collection[str], *, needless: int = 0) -> None:
        """Count a plan that is carried out."""
        self._episode.acted(plan, created, needless=needless)
        self._publish()

    def planned(
        self, plan: Plan, *, waiting: int, migrations: Mapping[str, MigrationRecord]
    ) -> None:
        """Update the figures after a new plan."""
        if not self._episode.under_way:
            return
        self._episode.observe(migrations)
        self._publish()
        if self._episode.over(plan, waiting=waiting, migrations=migrations):
            log.info(
                "episode over",
                evictions=self._episode.evictions,
                lower_bound=self._episode.lower_bound,
                unmet=len(plan.unmet),
            )
            self._episode = Episode()

    def _publish(self) -> None:
        self._evictions.set(self._episode.evictions)
        self._bound.set(self._episode.lower_bound)
