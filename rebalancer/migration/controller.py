# SPDX-License-Identifier: Apache-2.0
"""Brings every Migration to its end, whichever client created it and whichever leader began.

Watches put names into a queue; each worker takes one, looks at the cluster, lets the state
machine decide what is next, does it, and records that it was done. Nothing depends on having
seen an event, on the order of events, or on what this process did before. Two controllers
that work on the same Migration do no harm: effects are idempotent, and of two writers one is
refused and decides again.

Starting is serial: between the question whether a limit allows one more move and the record
that it began, no other move may ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from common.api.contract import (
    GUIDED_BY,
    MIGRATED_FROM_LABEL,
    MIGRATION_ID_LABEL,
    MIGRATION_STATUS_LABEL,
    ORIGINAL_POD,
    RANKED_BY,
)
from common.api.migrations import Phase, Step
from common.cache.snapshot import Snapshot
from common.cache.state import ClusterState
from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName, PodRecord
from common.config import RebalancerConfiguration
from common.kube.backoff import Backoff
from common.kube.errors import ApiError, Conflict, KubeError, NotFound
from common.kube.workqueue import WorkQueue
from common.runtime import Runtime
from rebalancer import failpoints
from rebalancer.events import EventRecorder, MigrationEvents
from rebalancer.migration.collaborators import Actuators, Preconditions
from rebalancer.migration.event_handlers import EventHandlers
from rebalancer.migration.metrics import MigrationMetrics
from rebalancer.migration.pod_marks import MarkStatus
from rebalancer.migration.progress import missing_step
from rebalancer.migration.reporting import Reporter, log_migration
from rebalancer.migration.state_machine import GUIDED_S, next_step
from rebalancer.migration.steps import STEPS, StepRunner
from rebalancer.migration.timing import Timing
from rebalancer.migration.verdicts import (
    Do,
    Fail,
    Finish,
    Hold,
    NotReplaced,
    Proceed,
    Release,
    Remove,
    Rest,
    StartGuiding,
    StopGuiding,
    Wait,
)
from rebalancer.migration.view import MigrationView
from rebalancer.store import MigrationStore

log: structlog.stdlib.BoundLogger = structlog.get_logger()

FAILPOINTS: Final = {
    Step.BUDGET_CHECKED: "check",
    Step.MARKED: "mark",
    Step.ACKNOWLEDGED: "acknowledge",
    Step.PROTECTED: "protect",
    Step.COUNTED: "count",
    Step.RAISED: "raise",
    Step.EVICTED: "evict",
    Step.REPLACED: "replace",
    Step.READY: "ready",
    Step.RANKED: "rank",
    Step.LOWERED: "lower",
    Step.CLEANED_UP: "clean",
}
"""The names of the steps in failpoints."""


class MigrationController:
    """Reconciles all Migrations of a cluster; one per process."""

    def __init__(
        self,
        store: MigrationStore,
        actuators: Actuators,
        preconditions: Preconditions,
        *,
        recorder: EventRecorder,
        config: Callable[[], RebalancerConfiguration],
        runtime: Runtime,
        timing: Timing | None = None,
    ) -> None:
        self._state = state = store.state
        self._config = config
        self._clock = runtime.clock
        self._rng = runtime.rng
        self._timing = timing = timing or Timing()
        self._pacing = preconditions.pacing
        self._is_leader = preconditions.is_leader
        self._store = store
        events = MigrationEvents(recorder, lambda name: _node_uid(state, name))
        metrics = MigrationMetrics(runtime.metrics, state)
        self._reporter = Reporter(self._store, events, metrics, config, runtime.clock)
        self._steps = StepRunner(
            preconditions, actuators, self._reporter, config=config, timing=timing, runtime=runtime
        )
        self._starting = asyncio.Lock()
        self._known: dict[str, MigrationRecord] = {}
        self._backoffs: dict[str, Backoff] = {}
        self._queue: WorkQueue[str] = WorkQueue(runtime.clock)
        self._running = False
        EventHandlers(state, enqueue=self._enqueue, enqueue_soon=self._enqueue_soon)

    async def run(self) -> None:
        """Work forever; call it only while leading, after everything has been listed."""
        self._running = True
        for name in self._state.migrations.records:
            self._queue.add(name)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._queue.run_delayed())
                group.create_task(self._keep_sweeping())
                for _ in range(self._timing.workers):
                    group.create_task(self._work())
        finally:
            self._running = False

    async def _work(self) -> None:
        while True:
            name = await self._queue.get()
            try:
                await self._reconcile(name)
            finally:
                self._queue.done(name)

    async def _reconcile(self, name: str) -> None:
        """Do all that can be done about one Migration now; after an error it comes back."""
        try:
            await self._advance(name)
        except NotFound:
            # Deleted a moment ago: the watch will show it, and then the cleanup begins.
            self._queue.add_after(name, self._timing.resync_s)
        except Conflict:
            await self._read_again(name)
        except KubeError as error:
            self._retry_later(name, error)
        except Exception as error:  # one broken Migration must not stop the others
            log.exception("migration not advanced", migration=name)
            self._retry_later(name, error)
        else:
            self._backoffs.pop(name, None)

    async def _advance(self, name: str) -> None:
        migration = self._store.current(name)
        while migration is not None and self._is_leader():
            self._known[name] = migration
            self._steps.remember(migration)
            migration = await self._advance_once(migration)
        if self._store.current(name) is None:
            await self._deleted(name)

    async def _advance_once(self, migration: MigrationRecord) -> MigrationRecord | None:
        """Take one step; return the Migration as it is then, None if it has to wait."""
        view = self._view(migration)
        match next_step(view, self._config()):
            case Do(step=Step.BUDGET_CHECKED):
                async with self._starting:
                    # Others may have begun while this one waited for its turn.
                    return await self._take(Step.BUDGET_CHECKED, self._view(migration))
            case Do(step=step):
                return await self._take(step, view)
            case Wait() as wait:
                return await self._wait(view, wait, missing_step(view) or Step.CLEANED_UP)
            case Fail() as failure:
                return await self._reporter.failed(migration, failure)
            case NotReplaced(reason=reason, message=message):
                return await self._reporter.not_replaced(migration, reason, message)
            case Finish(outcome=outcome, message=message):
                return await self._reporter.completed(migration, outcome, message)
            case Hold():
                return await self._store.hold(migration)
            case Release():
                failpoints.point("before-release")
                return await self._store.let_go(migration)
            case StartGuiding():
                return await self._store.guide(migration)
            case StopGuiding():
                return await self._store.unguide(migration)
            case Remove():
                await self._remove(migration)
            case Rest(seconds=seconds):
                self._steps.forget(migration)
                self._queue.add_after(migration.name, seconds)
        return None

    def _view(self, migration: MigrationRecord) -> MigrationView:
        claims = dict(self._steps.claims)
        return MigrationView(migration, self._store.snapshot(), self._clock.now(), claims)

    async def _take(self, step: Step, view: MigrationView) -> MigrationRecord | None:
        name = FAILPOINTS[step]
        failpoints.point(f"before-{name}")
        verdict = await STEPS[step](self._steps, view)
        match verdict:
            case Proceed():
                failpoints.point(f"after-{name}")
                written = await self._reporter.done(step, view, verdict)
                failpoints.point(f"recorded-{name}")
                if step is Step.REPLACED:
                    await self._steps.mark_replacement(written)
                return written
            case Wait():
                return await self._wait(view, verdict, step)
            case NotReplaced(reason=reason, message=message):
                return await self._reporter.not_replaced(view.migration, reason, message)
            case Fail():
                failure = msgspec.structs.replace(verdict, step=verdict.step or step)
                return await self._reporter.failed(view.migration, failure)

    async def _wait(self, view: MigrationView, wait: Wait, step: Step) -> MigrationRecord | None:
        """Come back later; the last failed attempt ends the Migration."""
        migration, step = view.migration, wait.step or step
        if wait.failed_attempt and migration.attempts + 1 >= self._config().max_attempts:
            failure, attempts = Fail(wait.reason, step), migration.attempts + 1
            return await self._reporter.failed(migration, failure, attempts=attempts)
        retry_s = self._timing.resync_s if wait.retry_s is None else wait.retry_s
        left_s = migration.due_s - self._clock.now()
        if migration.open and left_s > 0:
            retry_s = min(retry_s, left_s)
        self._queue.add_after(migration.name, retry_s)
        await self._reporter.waits(migration, step, wait)
        return None

    async def _remove(self, migration: MigrationRecord) -> None:
        """Delete a finished Migration, unless it still explains why nothing may be moved."""
        if self._pacing.must_keep(migration):
            self._queue.add_after(migration.name, self._timing.resync_s)
            return
        failpoints.point("before-remove")
        await self._store.remove(migration)
        failpoints.point("after-remove")

    async def _deleted(self, name: str) -> None:
        """Clean up after a Migration that was deleted while it was open."""
        migration = self._known.get(name)
        if migration is not None and migration.open:
            # No status is left to record progress in; cleanup is idempotent and only repeated.
            ended = msgspec.structs.replace(migration, phase=Phase.FAILED.value)
            verdict = await self._steps.clean_up(self._view(ended))
            if isinstance(verdict, Wait):
                self._queue.add_after(name, verdict.retry_s or self._timing.resync_s)
                return
            log_migration("migration deleted before its end", migration)
        self._known.pop(name, None)
        if migration is not None:
            self._steps.forget(migration)

    async def _keep_sweeping(self) -> None:
        while True:
            try:
                await self._sweep()
            except Exception:  # the next sweep may succeed
                log.exception("stale marks not removed")
            await self._clock.sleep(self._timing.sweep_s)

    async def _sweep(self) -> None:
        """Correct marks that nothing else would correct: of pods that do not move.

        Their Migration was deleted while no controller ran, the marks could not be removed
        when it ended, or they were set by a request whose response was lost. A replacement
        whose mark could not be changed when the move ended would be in progress for ever.
        """
        # In a thread: reading all pods of a large cluster would block the workers.
        snapshot = self._state.snapshot()
        marked, ranked, sent = await asyncio.to_thread(_left_behind, snapshot)
        for pod in marked:
            if self._is_over(pod.uid) and self._is_over(pod.labels[MIGRATION_ID_LABEL]):
                await self._steps.unmark(pod, snapshot.migrations)
        for pod in ranked:
            if self._is_over(pod.annotations[RANKED_BY]):
                await self._steps.unrank(pod)
        known, before_s = self._store.snapshot().migrations, self._clock.now() - GUIDED_S
        guiding = {migration.uid for migration in known.values() if migration.guides}
        for pod in sent:
            if pod.annotations[GUIDED_BY] not in guiding and pod.created_s <= before_s:
                await self._steps.evict_stuck(pod)

    def _is_over(self, name: str) -> bool:
        migration = self._store.current(name)
        return migration is None or migration.done(Step.CLEANED_UP)

    def _enqueue(self, name: str) -> None:
        # A standby would only collect names; a leader's term begins with all of them.
        if self._running:
            self._queue.add(name)

    def _enqueue_soon(self, name: str) -> None:
        if self._running:
            self._queue.add_after(name, self._timing.limit_recheck_s)

    async def _read_again(self, name: str) -> None:
        """Another client has changed the Migration: read it, and decide again."""
        try:
            await self._store.read(name)
        except Exception as error:  # one that cannot be read must not stop the others
            self._retry_later(name, error)
        else:
            self._queue.add(name)

    def _retry_later(self, name: str, error: Exception) -> None:
        timing = self._timing
        backoff = self._backoffs.setdefault(
            name, Backoff(floor_s=timing.backoff_min_s, cap_s=timing.backoff_max_s, rng=self._rng)
        )
        asked_s = (isinstance(error, ApiError) and error.retry_after_s) or 0.0
        retry_s = max(backoff.next_s(), asked_s)
        log.info("migration not advanced", migration=name, error=str(error), retry_s=retry_s)
        self._queue.add_after(name, retry_s)


def _node_uid(state: ClusterState, name: NodeName) -> str:
    found = state.nodes.records.get(name)
    return found.uid if found is not None else ""


def _left_behind(snapshot: Snapshot) -> tuple[list[PodRecord], ...]:
    """Return the pods that are marked as moving, ranked to be removed, or sent to full nodes."""
    alive = [pod for pod in snapshot.pods.values() if not pod.terminating]
    marked = [pod for pod in alive if _is_marked(pod)]
    ranked = [p for p in alive if RANKED_BY in p.annotations and _at_rest(p, snapshot)]
    return marked, ranked, [p for p in alive if _was_sent(p)]


def _is_marked(pod: PodRecord) -> bool:
    """Tell whether a pod says that a move is in progress: its own, or the one that brought it."""
    named = pod.labels.get(MIGRATION_ID_LABEL)
    if named is None or named == pod.uid:
        return named is not None
    # Users may write these labels too: all of our marks together are ours.
    brought = MIGRATED_FROM_LABEL in pod.labels and pod.annotations.get(ORIGINAL_POD) == named
    return brought and pod.labels.get(MIGRATION_STATUS_LABEL) == MarkStatus.IN_PROGRESS


def _was_sent(pod: PodRecord) -> bool:
    """Tell whether a pod without a node can only go where a move has sent it."""
    return GUIDED_BY in pod.annotations and not pod.node and pod.owner is not None


def _at_rest(pod: PodRecord, snapshot: Snapshot) -> bool:
    """Tell whether the controller of a pod has no pod to remove just now."""
    owner = snapshot.controller(pod)
    return owner is None or (
        owner.current <= owner.desired and owner.observed_generation >= owner.generation
    )
