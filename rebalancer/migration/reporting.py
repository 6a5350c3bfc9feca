# SPDX-License-Identifier: Apache-2.0
"""Records what became of a Migration: in its status first, then in log, Events and metrics.

Each record is one write of the status, based on the version that was decided on. Only after
it has succeeded the log, an Event and the metrics report it. So whatever is reported has
happened, and what could not be written is decided again.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from common.api.migrations import Outcome, Step, StepReason, SurgeState
from common.clock import Clock
from common.cluster.migrations import MigrationRecord
from common.config import RebalancerConfiguration
from rebalancer import failpoints
from rebalancer.events import MigrationEvents
from rebalancer.migration import replacements, status
from rebalancer.migration.eviction import Result
from rebalancer.migration.metrics import MigrationMetrics
from rebalancer.migration.timing import LONGEST_GRACE_S, deadline_s
from rebalancer.migration.verdicts import Fail, Proceed, Wait
from rebalancer.migration.view import MigrationView
from rebalancer.refusals import Refusal
from rebalancer.store import MigrationStore, StatusChange

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Reporter:
    """Keeps the status of Migrations; its writers return the Migration as it is then."""

    def __init__(
        self,
        store: MigrationStore,
        events: MigrationEvents,
        metrics: MigrationMetrics,
        config: Callable[[], RebalancerConfiguration],
        clock: Clock,
    ) -> None:
        self._store = store
        self._events = events
        self._metrics = metrics
        self._config = config
        self._clock = clock

    async def done(self, step: Step, view: MigrationView, verdict: Proceed) -> MigrationRecord:
        """Record that a step is done, with what it found."""
        migration, now_s = view.migration, self._clock.now()
        change = status.condition(
            migration,
            step,
            status=verdict.reason != StepReason.MARK_REFUSED,
            reason=verdict.reason,
            message=verdict.message,
            now_s=now_s,
        )
        change |= self._found(step, view, verdict, now_s)
        written = await self._store.update_status(migration, change)
        log_migration("step taken", migration, step=step.value, reason=str(verdict.reason))
        self._events.step_taken(migration, step, verdict.message)
        return written

    def _found(
        self, step: Step, view: MigrationView, verdict: Proceed, now_s: float
    ) -> StatusChange:
        """Return what a step adds to the status beside its condition."""
        if step is Step.BUDGET_CHECKED:
            return status.started(now_s) | status.present(replacements.present(view))
        if step is Step.COUNTED and verdict.surge is not None:
            return status.counted(verdict.surge)
        if step is Step.RAISED and verdict.surge is not None:
            return self._raised(view, verdict, verdict.surge, now_s)
        if step is Step.REPLACED and (found := replacements.candidate(view)) is not None:
            return status.replaced(found)
        if step is not Step.EVICTED:
            return {}
        change = status.evicted(now_s, deadline_s(view.pod, self._config(), now_s))
        # Only pods seen before the request: the replacement may exist by now.
        if view.alive and verdict.reason == StepReason.EVICTED:
            change |= status.present(replacements.present(view))
        return change

    def _raised(
        self, view: MigrationView, verdict: Proceed, surge: SurgeState, now_s: float
    ) -> StatusChange:
        owner = view.owner
        available_s = owner.min_ready_s if owner is not None else 0
        due_s = deadline_s(view.pod, self._config(), now_s) + min(available_s, LONGEST_GRACE_S)
        change = status.raised(surge, now_s, due_s)
        # Only pods seen before the request: the replacement may exist by now.
        if verdict.reason == StepReason.RAISED:
            change |= status.present(replacements.present(view))
        return change

    async def waits(self, migration: MigrationRecord, step: Step, wait: Wait) -> MigrationRecord:
        """Record why a step has to wait, but only once."""
        reason = wait.reason
        known = status.has_condition(migration, step, status=False, reason=reason.name)
        # Each write wakes every watcher, and a wait may be confirmed every second.
        if known and not wait.failed_attempt:
            return migration
        change = self._refused(migration, step, reason)
        if migration.open:
            change |= status.waiting(migration, f"{reason.name}: {reason.message}")
        if wait.failed_attempt:
            # In the status, not in memory: a new leader must not start counting again.
            change["attempts"] = migration.attempts + 1
        written = await self._store.update_status(migration, change)
        log_migration(
            "step waits", migration, step=step.value, reason=reason.name, why=reason.message
        )
        return written

    async def failed(
        self, migration: MigrationRecord, verdict: Fail, *, attempts: int | None = None
    ) -> MigrationRecord:
        """Close a Migration that is given up; the condition of its step gives the reason too."""
        reason, step = verdict.reason, verdict.step
        change = status.failed(reason.name, reason.message, self._clock.now())
        if step is not None:
            change |= self._refused(migration, step, verdict.cause or reason)
        if attempts is not None:
            change["attempts"] = attempts
        written = await self._close(migration, change, None)
        self._metrics.failed(reason.name)
        self._events.failed(migration, reason.name, reason.message)
        return written

    async def not_replaced(
        self, migration: MigrationRecord, reason: str, message: str
    ) -> MigrationRecord:
        """Close a Migration whose pod needs no replacement."""
        outcome = Outcome.NOT_REPLACED
        change = status.completed(outcome, f"{reason}: {message}", self._clock.now())
        written = await self._close(migration, change, outcome)
        self._events.not_replaced(migration, message)
        return written

    async def completed(
        self, migration: MigrationRecord, outcome: Outcome, message: str
    ) -> MigrationRecord:
        """Close a Migration whose replacement runs."""
        change = status.completed(outcome, message, self._clock.now())
        written = await self._close(migration, change, outcome)
        self._events.completed(migration, outcome, message, self._clock.now())
        return written

    def eviction_answered(self, result: Result) -> None:
        """Count the result of an attempt to evict."""
        self._metrics.eviction_answered(result)

    def mark_refused(self, migration: MigrationRecord, message: str) -> None:
        """Report that a move goes on without marks."""
        self._events.mark_refused(migration, message)

    def cleanup_failed(self, migration: MigrationRecord, message: str) -> None:
        """Report what a move leaves behind."""
        self._events.cleanup_failed(migration, message)

    async def _close(
        self, migration: MigrationRecord, change: StatusChange, outcome: Outcome | None
    ) -> MigrationRecord:
        """End a Migration: from now on it guides no pod, and cleanup begins."""
        failpoints.point("before-close")
        written = await self._store.update_status(migration, change)
        failpoints.point("after-close")
        self._metrics.ended(migration, outcome, self._clock.now())
        name = outcome.value if outcome is not None else "Failed"
        log_migration("migration ended", migration, outcome=name, why=written.message)
        return written

    def _refused(self, migration: MigrationRecord, step: Step, reason: Refusal) -> StatusChange:
        return status.condition(
            migration,
            step,
            status=False,
            reason=reason.name,
            message=reason.message,
            now_s=self._clock.now(),
        )


def log_migration(event: str, migration: MigrationRecord, **more: str) -> None:
    """Log what happened to a Migration."""
    log.info(
        event,
        pod=f"{migration.namespace}/{migration.pod_name}",
        node=migration.source,
        target=migration.target,
        plan_id=migration.plan_id,
        **more,
    )
