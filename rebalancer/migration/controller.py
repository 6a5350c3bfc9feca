"""Brings every Migration to its end, whoever made it and whoever began.

Watches put names into a queue; workers take one each, look at the world, let the machine say
what is next, do it, and write down that it was done. Nothing depends on having seen an
event, on an order of events, or on this process having been there before. Two controllers
that work on the same Migration do no harm: effects are idempotent, and of two writers one
is refused and looks again.

Starting is serial: between the question whether a limit allows one more move and the note
that it began, nobody else may ask.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec
import structlog

from common.clock import Clock
from common.cluster.migrations import MigrationRecord, Step
from common.cluster.records import PodRecord
from common.cluster.snapshot import Snapshot
from common.cluster.state import ClusterState
from common.config import RebalancerConfiguration
from common.contract import MIGRATION_ID_LABEL
from common.kube.backoff import Backoff
from common.kube.errors import ApiError, Conflict, KubeError, NotFound
from common.kube.resources import Resource
from common.metrics import Metrics
from rebalancer import crash
from rebalancer.migration import steps
from rebalancer.migration.announcing import Announcer, EventRecorder
from rebalancer.migration.desk import Desk
from rebalancer.migration.eviction import ApiEviction, EvictionDriver
from rebalancer.migration.figures import Figures
from rebalancer.migration.machine import Rules, next_step
from rebalancer.migration.marks import Marks
from rebalancer.migration.queue import KeyQueue
from rebalancer.migration.recording import Scribe, say
from rebalancer.migration.scene import Scene
from rebalancer.migration.seams import Guard, Replacer, Steering
from rebalancer.migration.settings import ControllerSettings
from rebalancer.migration.verdicts import (
    Do,
    Fail,
    Finish,
    Hold,
    NotReplaced,
    Proceed,
    Remove,
    Rest,
    Verdict,
    Wait,
)
from rebalancer.migration.waking import Waker

log: structlog.stdlib.BoundLogger = structlog.get_logger()

ACTIONS: Final = {
    Step.BUDGET_CHECKED: "check",
    Step.MARKED: "mark",
    Step.ACKNOWLEDGED: "acknowledge",
    Step.PROTECTED: "protect",
    Step.EVICTED: "evict",
    Step.REPLACED: "replace",
    Step.READY: "ready",
    Step.CLEANED_UP: "clean",
}
"""How crash points call the steps."""


class MigratingClient(Protocol):
    """The part of `KubeClient` that migrating needs."""

    async def get(self, path: str) -> bytes: ...

    async def create(
        self, resource: Resource, body: Any, *, namespace: str, name: str, subresource: str
    ) -> bytes: ...

    async def patch(
        self,
        resource: Resource,
        body: Any,
        *,
        name: str,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> bytes: ...

    async def delete(self, resource: Resource, *, name: str, uid: str) -> bytes: ...


class MigrationController:
    """Works on all Migrations of a cluster; one per process."""

    def __init__(
        self,
        client: MigratingClient,
        state: ClusterState,
        *,
        config: Callable[[], RebalancerConfiguration],
        steering: Steering,
        guard: Guard,
        replacer: Replacer,
        recorder: EventRecorder,
        clock: Clock,
        metrics: Metrics,
        rng: random.Random,
        eviction: EvictionDriver | None = None,
        settings: ControllerSettings | None = None,
        why_blind: Callable[[], str | None] = lambda: None,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """`leads` is asked anew before each step, and right before an eviction."""
        self._state = state
        self._config = config
        self._clock = clock
        self._rng = rng
        self._settings = settings or ControllerSettings()
        self._steering = steering
        self._desk = Desk(client, state)
        announcer, figures = Announcer(recorder), Figures(metrics, state)
        self._scribe = Scribe(self._desk, announcer, figures, config, clock)
        self._hands = steps.Hands(
            client,
            steering=steering,
            guard=guard,
            replacer=replacer,
            eviction=eviction or ApiEviction(client),
            marks=Marks(client),
            announcer=announcer,
            config=config,
            why_blind=why_blind,
            leads=leads,
            answered=figures.answered,
            settings=self._settings,
            clock=clock,
            rng=rng,
        )
        self._leads = leads
        self._starting = asyncio.Lock()
        self._known: dict[str, MigrationRecord] = {}
        self._backoffs: dict[str, Backoff] = {}
        self._queue = KeyQueue(clock)
        self._running = False
        Waker(state, wake=self._wake, wake_soon=self._soon)

    async def run(self) -> None:
        """Work for ever; call it while leading only, and when everything has been listed."""
        self._running = True
        for name in self._state.migrations.records:
            self._queue.add(name)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._queue.run_alarms())
                group.create_task(self._keep_sweeping())
                for _ in range(self._settings.workers):
                    group.create_task(self._work())
        finally:
            self._running = False

    async def _work(self) -> None:
        while True:
            name = await self._queue.take()
            try:
                await self._look(name)
            finally:
                self._queue.done(name)

    async def _look(self, name: str) -> None:
        """Do all that can be done about one Migration now; whatever goes wrong comes back."""
        try:
            await self._advance(name)
        except NotFound:
            self._queue.add_after(name, self._settings.look_again_s)
        except Conflict:
            await self._read_again(name)
        except KubeError as error:
            self._later(name, error)
        except Exception as error:  # one odd Migration must not stop the others
            log.exception("migration not advanced", migration=name)
            self._later(name, error)
        else:
            self._backoffs.pop(name, None)

    async def _advance(self, name: str) -> None:
        migration = self._desk.current(name)
        while migration is not None and self._leads():
            self._known[name] = migration
            self._hands.meet(migration)
            migration = await self._once(migration)
        if self._desk.current(name) is None:
            await self._vanished(name)

    async def _once(self, migration: MigrationRecord) -> MigrationRecord | None:
        """Take one step; return the Migration as it is then, None if it has to wait."""
        scene = self._scene(migration)
        rules = Rules(keep_finished_s=self._config().keep_finished.seconds)
        match next_step(scene, rules):
            case Do(step=Step.BUDGET_CHECKED):
                async with self._starting:
                    # Others may have begun while this one waited for its turn.
                    return await self._take(Step.BUDGET_CHECKED, self._scene(migration))
            case Do(step=step):
                return await self._take(step, scene)
            case Hold(step=step, reason=reason, retry_s=retry_s):
                return await self._hold(scene, step, Wait(reason, retry_s))
            case Fail(reason=reason, step=told, cause=cause):
                return await self._scribe.failed(migration, reason, told, cause=cause)
            case NotReplaced(reason=reason, words=words):
                return await self._scribe.not_replaced(migration, reason, words)
            case Finish(outcome=outcome, words=words):
                return await self._scribe.completed(migration, outcome, words)
            case Remove():
                await self._remove(migration)
            case Rest(seconds=seconds):
                self._hands.forget(migration)
                self._queue.add_after(migration.name, seconds)
        return None

    def _scene(self, migration: MigrationRecord) -> Scene:
        return Scene(migration, self._desk.snapshot(), self._clock.now())

    async def _take(self, step: Step, scene: Scene) -> MigrationRecord | None:
        action = ACTIONS[step]
        crash.point(f"before-{action}")
        verdict: Verdict = await steps.EFFECTS[step](self._hands, scene)
        match verdict:
            case Proceed():
                crash.point(f"after-{action}")
                written = await self._scribe.done(step, scene, verdict)
                crash.point(f"recorded-{action}")
                return written
            case Wait():
                return await self._hold(scene, step, verdict)
            case NotReplaced(reason=reason, words=words):
                return await self._scribe.not_replaced(scene.migration, reason, words)
            case Fail(reason=reason, step=told, cause=cause):
                return await self._scribe.failed(scene.migration, reason, told or step, cause=cause)

    async def _hold(self, scene: Scene, step: Step, wait: Wait) -> MigrationRecord | None:
        """Come back later; an attempt too many is the end."""
        migration = scene.migration
        if wait.counts and migration.attempts + 1 >= self._config().max_attempts:
            attempts = migration.attempts + 1
            return await self._scribe.failed(migration, wait.reason, step, attempts=attempts)
        retry_s = self._settings.look_again_s if wait.retry_s is None else wait.retry_s
        left_s = migration.due_s - self._clock.now()
        if migration.open and left_s > 0:
            retry_s = min(retry_s, left_s)
        self._queue.add_after(migration.name, retry_s)
        await self._scribe.waits(migration, step, wait)
        return None

    async def _remove(self, migration: MigrationRecord) -> None:
        """Forget a finished one, unless it still tells why nothing may be moved."""
        if self._steering.needs_the_past(migration):
            self._queue.add_after(migration.name, self._settings.look_again_s)
            return
        crash.point("before-remove")
        await self._desk.remove(migration)
        crash.point("after-remove")

    async def _vanished(self, name: str) -> None:
        """Clean up after a Migration that somebody deleted while it was open."""
        migration = self._known.get(name)
        if migration is not None and migration.open:
            ended = msgspec.structs.replace(migration, phase="Failed")
            verdict = await self._hands.clean_up(self._scene(ended))
            if isinstance(verdict, Wait):
                self._queue.add_after(name, verdict.retry_s or self._settings.look_again_s)
                return
            say("migration deleted before its end", migration)
        self._known.pop(name, None)
        if migration is not None:
            self._hands.forget(migration)

    async def _keep_sweeping(self) -> None:
        while True:
            try:
                await self._sweep()
            except Exception:  # the next sweep may go well
                log.exception("marks not swept")
            await self._clock.sleep(self._settings.sweep_s)

    async def _sweep(self) -> None:
        """Have marks removed that nobody else will: of pods that stay and are not being moved.

        Their Migration vanished while nobody looked, the marks could not be removed when it
        ended, or they were set by a request that was thought to be lost.
        """
        marked = await asyncio.to_thread(_marked, self._state.snapshot())
        for pod in marked:
            migration = self._desk.current(pod.uid)
            if migration is None or migration.done(Step.CLEANED_UP):
                await self._hands.unmark(pod)

    def _wake(self, name: str) -> None:
        # Whoever follows would only remember names; a term begins with all of them.
        if self._running:
            self._queue.add(name)

    def _soon(self, name: str) -> None:
        if self._running:
            self._queue.add_after(name, self._settings.let_go_s)

    async def _read_again(self, name: str) -> None:
        """Somebody else has changed the Migration: read it, and decide anew."""
        try:
            await self._desk.read(name)
        except Exception as error:  # what cannot be read must not stop the others
            self._later(name, error)
        else:
            self._queue.add(name)

    def _later(self, name: str, error: Exception) -> None:
        settings = self._settings
        backoff = self._backoffs.setdefault(
            name,
            Backoff(floor_s=settings.backoff_min_s, cap_s=settings.backoff_max_s, rng=self._rng),
        )
        asked_s = (isinstance(error, ApiError) and error.retry_after_s) or 0.0
        retry_s = max(backoff.next_s(), asked_s)
        log.info("migration not advanced", migration=name, error=str(error), retry_s=retry_s)
        self._queue.add_after(name, retry_s)


def _marked(snapshot: Snapshot) -> list[PodRecord]:
    """Return the pods that say they are being moved, and are not on their way out."""
    return [
        pod
        for pod in snapshot.pods.values()
        if pod.labels.get(MIGRATION_ID_LABEL) == pod.uid and not pod.terminating
    ]
