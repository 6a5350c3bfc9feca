"""Writes down what has become of a Migration, and tells everybody who should know.

Each note is one write of the status, made on the version that was decided on; only when it
stands are people told, in the log, by an Event and in the metrics. So whatever is told has
happened, and what could not be written is decided anew.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from common.clock import Clock
from common.cluster.migrations import MigrationRecord, Outcome, Step
from common.config import RebalancerConfiguration
from rebalancer import crash
from rebalancer.migration import status, steps
from rebalancer.migration.announcing import Announcer
from rebalancer.migration.deadlines import deadline_s
from rebalancer.migration.desk import Desk
from rebalancer.migration.figures import Figures
from rebalancer.migration.replacements import present
from rebalancer.migration.scene import Scene
from rebalancer.migration.verdicts import Proceed, Wait
from rebalancer.reasons import Refusal

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Scribe:
    """Keeps the status of Migrations; every method returns the Migration as it is then."""

    def __init__(
        self,
        desk: Desk,
        announcer: Announcer,
        figures: Figures,
        config: Callable[[], RebalancerConfiguration],
        clock: Clock,
    ) -> None:
        self._desk = desk
        self._config = config
        self._announcer = announcer
        self._figures = figures
        self._clock = clock

    async def done(self, step: Step, scene: Scene, verdict: Proceed) -> MigrationRecord:
        """Note that a step is done, with what it found."""
        migration, now_s = scene.migration, self._clock.now()
        change = status.condition(
            migration,
            step,
            status=verdict.reason != steps.MARK_REFUSED,
            reason=verdict.reason,
            words=verdict.words,
            now_s=now_s,
        )
        if step is Step.BUDGET_CHECKED:
            change |= status.started(now_s) | status.present(present(scene))
        elif step is Step.EVICTED:
            change |= status.evicted(now_s, deadline_s(scene.pod, self._config(), now_s))
            # Only who was seen before the request: the replacement may be there by now.
            if scene.alive and verdict.reason == steps.EVICTED:
                change |= status.present(present(scene))
        elif step is Step.REPLACED and (found := steps.noted(scene)) is not None:
            change |= status.replaced(found)
        written = await self._desk.write(migration, change)
        say("step taken", migration, step=step.value, reason=verdict.reason)
        self._announcer.step_taken(migration, step, verdict.words)
        return written

    async def waits(self, migration: MigrationRecord, step: Step, wait: Wait) -> MigrationRecord:
        """Note why a step has to wait, but only once."""
        reason = wait.reason
        if not wait.counts and status.says(migration, step, status=False, reason=reason.name):
            return migration
        change = self._refused(migration, step, reason)
        if migration.open:
            change |= status.waiting(migration, f"{reason.name}: {reason.words}")
        if wait.counts:
            change["attempts"] = migration.attempts + 1
        written = await self._desk.write(migration, change)
        say("waits", migration, step=step.value, reason=reason.name, why=reason.words)
        return written

    async def failed(
        self,
        migration: MigrationRecord,
        reason: Refusal,
        step: Step | None = None,
        *,
        cause: Refusal | None = None,
        attempts: int | None = None,
    ) -> MigrationRecord:
        """Close a Migration that is given up; the condition of `step` says why as well."""
        change = status.failed(reason.name, reason.words, self._clock.now())
        if step is not None:
            change |= self._refused(migration, step, cause or reason)
        if attempts is not None:
            change["attempts"] = attempts
        written = await self._close(migration, change, None)
        self._figures.failed(reason.name)
        self._announcer.failed(migration, reason.name, reason.words)
        return written

    async def not_replaced(
        self, migration: MigrationRecord, reason: str, words: str
    ) -> MigrationRecord:
        """Close a Migration whose pod nobody has to replace."""
        outcome = Outcome.NOT_REPLACED
        change = status.completed(outcome, f"{reason}: {words}", self._clock.now())
        written = await self._close(migration, change, outcome)
        self._announcer.not_replaced(migration, words)
        return written

    async def completed(
        self, migration: MigrationRecord, outcome: Outcome, words: str
    ) -> MigrationRecord:
        """Close a Migration whose replacement runs."""
        change = status.completed(outcome, words, self._clock.now())
        written = await self._close(migration, change, outcome)
        self._announcer.completed(migration, outcome, words)
        return written

    async def _close(
        self, migration: MigrationRecord, change: status.Change, outcome: Outcome | None
    ) -> MigrationRecord:
        """End a Migration: from now on nobody is steered by it, and cleaning up begins."""
        crash.point("before-close")
        written = await self._desk.write(migration, change)
        crash.point("after-close")
        self._figures.ended(migration, outcome, self._clock.now())
        name = outcome.value if outcome is not None else "Failed"
        say("migration ended", migration, outcome=name, why=written.message)
        return written

    def _refused(self, migration: MigrationRecord, step: Step, reason: Refusal) -> status.Change:
        return status.condition(
            migration,
            step,
            status=False,
            reason=reason.name,
            words=reason.words,
            now_s=self._clock.now(),
        )


def say(event: str, migration: MigrationRecord, **more: str) -> None:
    """Log what happened to a Migration."""
    log.info(
        event,
        pod=f"{migration.namespace}/{migration.pod_name}",
        node=migration.source,
        target=migration.target,
        plan_id=migration.plan_id,
        **more,
    )
