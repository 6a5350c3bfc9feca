# SPDX-License-Identifier: Apache-2.0
"""May a move begin or go on: gates, limits, breakers and extenders put together.

Every Migration is checked, whichever program created it, before its first step and again right
before the eviction. A refusal that will not pass comes before one that will, so that no move
waits for what can never be. On doubt the answer is no.

The cluster shows a little late that a move has begun. Until then the store keeps its place:
otherwise two moves that are checked in the same moment would both get the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import structlog

from common.api.contract import GUIDED_BY, PRODUCT, PRODUCT_LABEL
from common.api.migrations import Outcome, Purpose
from common.cache.snapshot import Snapshot
from common.cache.state import ClusterState
from common.clock import Clock
from common.cluster.migrations import MigrationRecord
from common.cluster.records import PodRecord
from common.config import Guide, RebalancerConfiguration, load_settings_hash
from common.load import Belief
from common.metrics import Metrics
from common.observer import Observer
from rebalancer.evictability import Context, judge, was_carried_out
from rebalancer.pacing.breaker import Breakers, blocks
from rebalancer.pacing.checks import (
    Moment,
    Start,
    against,
    ahead_of,
    has_begun,
    history_for,
    switched_off,
)
from rebalancer.pacing.extenders import (
    ENOUGH_SHOWN,
    Asked,
    Binding,
    Extenders,
    ExtenderView,
    Guidance,
    sampling,
    unsteered,
)
from rebalancer.pacing.history import BreakerState, Histories
from rebalancer.pacing.metrics import PacingMetrics
from rebalancer.pacing.replay import histories_of
from rebalancer.pacing.signs import Signs
from rebalancer.projection import target_with
from rebalancer.refusals import Reason, Refusal
from rebalancer.store import MigrationStore

log: structlog.stdlib.BoundLogger = structlog.get_logger()


_GUIDED: Final = (Outcome.AS_PLANNED, Outcome.ALTERNATIVE, Outcome.ELSEWHERE)
"""Outcomes of moves whose replacement carried the mark of its Migration."""


class _KeptHistory(NamedTuple):
    """Histories, with what they were derived from."""

    config: RebalancerConfiguration
    finished: list[MigrationRecord]
    histories: Histories


class PacingPolicy:
    """Answers the loop and the migration controller, from what the state says now."""

    def __init__(
        self,
        state: ClusterState,
        observer: Observer,
        store: MigrationStore,
        config: Callable[[], RebalancerConfiguration],
        *,
        clock: Clock,
        metrics: Metrics,
        on_deaf_extender: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_deaf_extender` gets a text about each extender that misses Migrations, once."""
        self._state = state
        self._observer = observer
        self._store = store
        self._config = config
        self._clock = clock
        self._on_deaf_extender = on_deaf_extender
        self._extenders = Extenders(clock)
        self._extenders.follow(state)
        self._context_kept: Context | None = None
        self._put_off: dict[str, str] = {}
        self._warned: dict[str, tuple[str, ...]] = {}
        self._histories: dict[Purpose, _KeptHistory] = {}
        self._metrics = PacingMetrics(metrics)

    def try_start(
        self, migration: MigrationRecord, snapshot: Snapshot, besides: Refusal | None = None
    ) -> Refusal | None:
        """Reserve a place in all limits, or return why the move may not begin or go on now.

        `besides` is what the caller knows against it. Whatever the refusal, a move that is
        refused gives up its place.
        """
        # A permanent refusal fails the Migration, so it goes before one that may pass.
        found = self.refusals(migration, snapshot)
        found += (besides,) if besides is not None else ()
        refusal = next((each for each in found if each.permanent), found[0] if found else None)
        if refusal is None:
            self._store.reserve(migration.uid)
            self._put_off.pop(migration.uid, None)
        else:
            self._store.release(migration.uid)
            self._count(migration, refusal, snapshot)
        return refusal

    def stopped(self, migration: MigrationRecord) -> Refusal | None:
        """Return which switch stops the move now."""
        snapshot = self._state.snapshot()
        pod = snapshot.pods.get(migration.pod_uid)
        if pod is None:
            return None
        others = snapshot.migrations.values() if pod.shape.pod_group else ()
        return switched_off(
            Start(
                migration=migration,
                pod=pod,
                others=(),
                ahead=ahead_of(
                    migration,
                    (m for m in others if m.uid != migration.uid),
                    self._store.reserved,
                ),
                moment=self._moment(snapshot),
                guided=True,
            )
        )

    def refusals(
        self, migration: MigrationRecord, snapshot: Snapshot | None = None
    ) -> tuple[Refusal, ...]:
        """Return everything that keeps a move from beginning or going on now."""
        snapshot = snapshot or self._state.snapshot()
        pod = snapshot.pods.get(migration.pod_uid)
        if pod is None:
            return (Reason.POD_GONE.refusal(),)
        return tuple(self._refusals(self._start(migration, pod, snapshot)))

    def acknowledged(self, resource_version: int) -> Refusal | None:
        """Return which live extender does not know Migrations up to this version yet.

        Where none is alive there is none to wait for; whether a move needs one is checked
        right before the eviction.
        """
        view = self._extenders.view()
        return view.acknowledged(resource_version) if view.live else None

    def asked(self, migration: MigrationRecord, replacement: PodRecord, bound_s: float) -> Asked:
        """Tell whether the replacement was told where to go before it was bound.

        A policy of the API server leaves its mark on the pod; whether its scheduler asked an
        extender, the extenders have to report.
        """
        if self._config().guide is Guide.ADMISSION:
            told = replacement.annotations.get(GUIDED_BY) == migration.uid
            return Asked.YES if told else Asked.NO
        return self._extenders.asked(
            Binding(
                scheduler=replacement.shape.scheduler_name,
                created_s=replacement.created_s,
                bound_s=bound_s,
                skew_s=self._config().clock_skew.seconds,
            )
        )

    def must_keep(self, migration: MigrationRecord) -> bool:
        """Tell whether a finished Migration must stay, because a breaker depends on it."""
        purpose, now_s = migration.purpose, self._clock.now()
        if not was_carried_out(migration):
            return False
        known = tuple(self._state.snapshot().migrations.values())
        history = self._history(purpose, known)
        if history.depends_on(migration, now_s):
            return True
        # Without this one, the bad votes of others might be enough to open a closed breaker.
        others = [m for m in known if m.uid != migration.uid]
        closed = history.closed_for(migration, now_s)
        return closed and not histories_of(others, self._config(), purpose).closed_for(
            migration, now_s
        )

    def trying(self, migration: MigrationRecord) -> str:
        """Return the scope for which a move that begins now tries; empty if none is half-open."""
        return self._breakers_now(migration.purpose).trying(migration)

    def may_plan(self) -> Refusal | None:
        """Return why nothing at all may be moved for load now."""
        config, state = self._config(), self._breakers_now(Purpose.LOAD).cluster()
        stopped = blocks(state, self._clock.now(), another=False)
        if stopped is not None or not config.needs_extender:
            return stopped
        # One scheduler whose pods can be steered is enough to plan; pacing checks each pod's own.
        found = [unsteered(self._guidance(name)) for name in config.scheduler_names]
        return found[0] if None not in found else None

    def extenders(self) -> ExtenderView:
        """Return the extenders that live now."""
        return self._extenders.view()

    def notes(self) -> tuple[str, ...]:
        """Return what a reader of a plan should know about its chances."""
        view = self._extenders.view()
        deaf = (f"{text}; nothing waits for it." for text in view.left_out())
        differing = view.differing(load_settings_hash(self._config()))
        return (*self._breaker_notes(), *self._extender_notes(view), *deaf, *differing)

    def report(self) -> None:
        """Set the gauges, and log and record what has newly come to stand against moves."""
        view = self._extenders.view()
        self._metrics.extenders(view, self._config().scheduler_names)
        for purpose in Purpose:
            breakers = self._breakers_now(purpose)
            self._metrics.breakers(purpose, breakers, breakers.shown(self._movable))
        self._warn("load settings differ", view.differing(load_settings_hash(self._config())))
        for text in self._warn("extender misses migrations", view.left_out()):
            self._on_deaf_extender(text)

    def _refusals(self, start: Start) -> Iterator[Refusal]:
        yield from against(start)
        if start.purpose is Purpose.LOAD and (none := without_metrics(self._observer.latest)):
            yield none
        yield from judge(start.pod, self._context(start))
        ahead = [m for m in start.soon_over() if m.purpose is start.purpose]
        breakers = self._breakers(start.purpose, start.snapshot, start.others)
        yield from breakers.against(start.migration, ahead)
        if start.purpose is Purpose.LOAD and start.config.needs_extender:
            unsteerable = unsteered(self._guidance(start.pod.shape.scheduler_name))
            if unsteerable is not None:
                yield unsteerable

    def _start(self, migration: MigrationRecord, pod: PodRecord, snapshot: Snapshot) -> Start:
        others = [m for m in snapshot.migrations.values() if m.uid != migration.uid]
        ahead, belief = ahead_of(migration, others, self._store.reserved), self._observer.latest
        return Start(
            migration=migration,
            pod=pod,
            others=others,
            ahead=ahead,
            moment=self._moment(snapshot),
            begun=has_begun(migration, self._store.reserved),
            guided=self._is_guided(pod, others),
            filled=None if belief is None else target_with(migration, pod, ahead, belief),
        )

    def _is_guided(self, pod: PodRecord, others: Sequence[MigrationRecord]) -> bool:
        """Tell whether replacements of such pods are known to be guided."""
        if self._config().guide is Guide.ADMISSION:
            return any(other.outcome in _GUIDED for other in others)
        return self._extenders.view().guided(pod.shape.scheduler_name) is not None

    def _moment(self, snapshot: Snapshot) -> Moment:
        return Moment(snapshot, self._config(), self._clock.now())

    def _context(self, start: Start) -> Context:
        """Return what gates judge by; what one question has worked out is kept for the next."""
        kept, snapshot, config = self._context_kept, start.snapshot, start.config
        if kept is None or kept.snapshot.version != snapshot.version or kept.config is not config:
            kept = self._context_kept = Context.of(snapshot, config, now_s=start.now_s)
        history, purpose = history_for(start), start.purpose
        return replace(
            kept,
            now_s=start.now_s,
            history=history,
            purpose=purpose,
            surge=start.migration.surge,
            begun=start.begun,
            _replicas={},
        )

    def _guidance(self, scheduler: str) -> Guidance:
        return Guidance(
            view=self._extenders.view(),
            scheduler=scheduler,
            allow_sampling=self._config().allow_sampling,
            now_s=self._clock.now(),
        )

    def _breakers_now(self, purpose: Purpose) -> Breakers:
        snapshot = self._state.snapshot()
        return self._breakers(purpose, snapshot, tuple(snapshot.migrations.values()))

    def _breakers(
        self, purpose: Purpose, snapshot: Snapshot, known: Sequence[MigrationRecord]
    ) -> Breakers:
        now_s = self._clock.now()
        signs = Signs(
            snapshot=snapshot,
            migrations=known,
            purpose=purpose,
            now_s=now_s,
            resting=self._observer.resting,
        )
        return Breakers.of(self._history(purpose, known), signs, self._config().breaker)

    def _history(self, purpose: Purpose, known: Sequence[MigrationRecord]) -> Histories:
        """Return what moves have come to; derived again only when another one has ended."""
        config, finished = self._config(), [m for m in known if not m.open]
        kept = self._histories.get(purpose)
        if kept is not None and kept.config is config and kept.finished == finished:
            return kept.histories
        found = histories_of(finished, config, purpose)
        self._histories[purpose] = _KeptHistory(config, finished, found)
        return found

    def _breaker_notes(self) -> Iterator[str]:
        for purpose in Purpose:
            breakers = self._breakers_now(purpose)
            state = breakers.shown(self._movable)
            if state.open or state.half_open:
                yield _stop_note(state, f"for {purpose}")
                continue
            for name, found in breakers.stopped_namespaces():
                yield _stop_note(found, f"for {purpose} in namespace {name}")

    def _movable(self) -> Iterator[str]:
        """Yield the namespaces with pods that a controller replaces, our own aside."""
        snapshot, excluded = self._state.snapshot(), self._config().excluded_namespaces
        for name in snapshot.by_namespace:
            pods = snapshot.by_namespace[name].values()
            if name not in excluded and any(map(_is_replaced, pods)):
                yield name

    def _extender_notes(self, view: ExtenderView) -> Iterator[str]:
        if self._config().guide is Guide.ADMISSION:
            return
        for scheduler in self._config().scheduler_names:
            share = view.share(scheduler)
            if share is None:
                if view.live and view.guided(scheduler) is None:
                    yield (
                        f"{scheduler} has not called an extender yet: one move at a time tests it."
                    )
            elif share < ENOUGH_SHOWN:
                yield f"{sampling(scheduler, share)}."
        if not view.live and not view.deaf:
            yield "No extender is alive: replacements would not be steered."

    def _warn(self, event: str, found: tuple[str, ...]) -> tuple[str, ...]:
        """Log each text once for as long as it stays; return the new ones."""
        new = tuple(text for text in found if text not in self._warned.get(event, ()))
        self._warned[event] = found
        for text in new:
            log.warning(event, why=text)
        return new

    def _count(self, migration: MigrationRecord, refusal: Refusal, snapshot: Snapshot) -> None:
        """Count a reason once for as long as it is the first one against a Migration."""
        open_ones = {m.uid for m in snapshot.migrations.values() if m.open} | {migration.uid}
        for uid in self._put_off.keys() - open_ones:
            del self._put_off[uid]
        if self._put_off.get(migration.uid) != refusal.name:
            self._put_off[migration.uid] = refusal.name
            self._metrics.refused(refusal)


def _is_replaced(pod: PodRecord) -> bool:
    owned = pod.owner is not None and pod.owner.kind != "DaemonSet" and not pod.mirror
    return owned and pod.labels.get(PRODUCT_LABEL) != PRODUCT


def _stop_note(state: BreakerState, what: str) -> str:
    how = "Nothing is moved" if state.open else "One move at a time"
    return f"{how} {what}: {state.cause}."


def without_metrics(belief: Belief | None) -> Refusal | None:
    """Return why nothing may be moved for load where no metrics were found."""
    if belief is None or not belief.source.without_metrics:
        return None
    return Reason.NO_METRICS.refusal()
