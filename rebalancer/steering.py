"""May a move begin or go on: gates, limits, breakers and extenders put together.

Every Migration is asked about, whoever made it, before its first step and once more right
before the eviction. A reason that will not pass comes before one that will, so that what
can never be is not waited for. On doubt the answer is no.

The cluster shows a little late that a move has begun; until then its place is kept here,
otherwise two that are asked about in the same moment would both get the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import structlog

from common.clock import Clock
from common.cluster.migrations import MigrationRecord
from common.cluster.records import PodRecord
from common.cluster.snapshot import Snapshot
from common.cluster.state import ClusterState
from common.config import RebalancerConfiguration, load_settings_hash
from common.contract import PRODUCT, PRODUCT_LABEL
from common.metrics import Metrics
from common.observer import Belief
from rebalancer.breaker import Breakers, BreakerState, Histories, Signs, blocks, histories_of
from rebalancer.evictability import Context, Past, Purpose, judge, past_of, took_place
from rebalancer.extenders import (
    ENOUGH_SHOWN,
    Asked,
    Binding,
    Extenders,
    Guidance,
    sampling,
    unsteered,
)
from rebalancer.limits import Start, against, ahead_of, purpose_of, switched_off
from rebalancer.migration.scene import Scene
from rebalancer.reasons import Refusal
from rebalancer.under_way import target_with

log: structlog.stdlib.BoundLogger = structlog.get_logger()


_Kept = tuple[RebalancerConfiguration, list[MigrationRecord], Histories]


def _knows_enough() -> bool:
    return False


class SteeringRules:
    """Answers the migration controller, from what the state says now."""

    def __init__(
        self,
        state: ClusterState,
        config: Callable[[], RebalancerConfiguration],
        *,
        clock: Clock,
        metrics: Metrics,
        resting: Callable[[], bool] = _knows_enough,
        belief: Callable[[], Belief | None] = lambda: None,
        deaf: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Answer from now on; `resting` tells that too little load is known.

        `deaf` is told in words of each extender that lives but does not hear, once.
        """
        self._tell_deaf = deaf
        self._state = state
        self._config = config
        self._clock = clock
        self._resting = resting
        self._belief = belief
        self._extenders = Extenders(clock)
        for lease in state.snapshot().leases.values():
            self._extenders.told(None, lease)
        state.leases.listen(self._extenders.told)
        for known in state.snapshot().migrations.values():
            self._extenders.heard_of(None, known)
        state.migrations.listen(self._extenders.heard_of)
        self._look: Context | None = None
        self._begun: set[str] = set()
        self._put_off: dict[str, str] = {}
        self._warned: dict[str, tuple[str, ...]] = {}
        self._histories: dict[Purpose, _Kept] = {}
        self._breaker_open = metrics.gauge(
            "breaker_open", "1 while moves are stopped, 0.5 while one may try.", ("purpose",)
        )
        self._stopped = metrics.gauge(
            "namespaces_stopped", "Namespaces whose moves are stopped.", ("purpose",)
        )
        self._quarantined = metrics.gauge(
            "workloads_quarantined", "Workloads that are not moved for a while.", ("purpose",)
        )
        self._limits = metrics.counter(
            "limits_total", "Migrations that had to wait or failed, by reason.", ("limit",)
        )
        self._live = metrics.gauge("extenders_live", "Extenders whose renewal was seen lately.")
        self._deaf = metrics.gauge(
            "extenders_deaf", "Extenders that live but do not hear of Migrations any more."
        )
        self._share = metrics.gauge(
            "extender_share", "Share of the nodes that a scheduler shows.", ("scheduler",)
        )

    def may_start(
        self, migration: MigrationRecord, scene: Scene, besides: Refusal | None = None
    ) -> Refusal | None:
        """Return why the move may not begin or go on now; `besides` stands against it too."""
        found = self.reasons(migration, scene.snapshot)
        found += (besides,) if besides is not None else ()
        refusal = next((each for each in found if each.for_good), found[0] if found else None)
        if refusal is None:
            self._begun.add(migration.uid)
            self._put_off.pop(migration.uid, None)
        else:
            self._begun.discard(migration.uid)
            self._count(migration, refusal)
        return refusal

    def stopped(self, migration: MigrationRecord) -> Refusal | None:
        """Return by which switch somebody has stopped the move, now."""
        snapshot = self._state.snapshot()
        pod = snapshot.pods.get(migration.pod_uid)
        if pod is None:
            return None
        return switched_off(
            Start(
                migration=migration,
                pod=pod,
                others=(),
                ahead=(),
                snapshot=snapshot,
                config=self._config(),
                now_s=self._clock.now(),
                guided=True,
            )
        )

    def reasons(
        self, migration: MigrationRecord, snapshot: Snapshot | None = None
    ) -> tuple[Refusal, ...]:
        """Return everything that keeps a move from beginning or going on now."""
        snapshot = snapshot or self._state.snapshot()
        pod = snapshot.pods.get(migration.pod_uid)
        if pod is None:
            return (Refusal("PodGone", "the pod is not there any more"),)
        return tuple(self._reasons(self._start(migration, pod, snapshot)))

    def why_waiting(self, migration: MigrationRecord) -> str:
        """Return all reasons in words; empty if there is none."""
        return "; ".join(f"{found.name}: {found.words}" for found in self.reasons(migration))

    def acknowledged(self, resource_version: int, _scheduler: str = "") -> Refusal | None:
        """Return which living extender does not know Migrations up to this version yet.

        Where none is alive there is nobody to wait for; whether a move needs one is asked
        right before the eviction.
        """
        view = self._extenders.view()
        return view.acknowledged(resource_version) if view.live else None

    def asked(self, replacement: PodRecord, bound_s: float) -> Asked:
        """Tell whether the pod's scheduler asked an extender before it bound the pod."""
        return self._extenders.asked(
            Binding(
                scheduler=replacement.shape.scheduler_name,
                created_s=replacement.created_s,
                bound_s=bound_s,
                skew_s=self._config().clock_skew.seconds,
            )
        )

    def breaker(self, purpose: Purpose) -> BreakerState:
        """Return whether any moves for a purpose may begin."""
        return self._breakers_now(purpose).shown(self._movable)

    def needs_the_past(self, migration: MigrationRecord) -> bool:
        """Tell whether a finished Migration must stay, because a breaker rests on it."""
        purpose, now_s = purpose_of(migration), self._clock.now()
        if not took_place(migration):
            return False
        known = tuple(self._state.snapshot().migrations.values())
        past = self._history(purpose, known)
        if past.rest_on(migration, now_s):
            return True
        others = [m for m in known if m.uid != migration.uid]
        closed = past.closed_for(migration, now_s)
        return closed and not histories_of(others, self._config(), purpose).closed_for(
            migration, now_s
        )

    def trying(self, migration: MigrationRecord) -> str:
        """Return for what the move, if it begins now, tries; empty if no breaker is half-open."""
        return self._breakers_now(purpose_of(migration)).trying(migration)

    def may_plan(self) -> Refusal | None:
        """Return why nothing at all may be moved for load now."""
        config, state = self._config(), self._breakers_now(Purpose.LOAD).cluster()
        stopped = blocks(state, self._clock.now(), another=False)
        if stopped is not None or not config.require_extender:
            return stopped
        found = [unsteered(self._guidance(name)) for name in config.scheduler_names]
        return found[0] if None not in found else None

    def notes(self) -> tuple[str, ...]:
        """Return what a reader of a plan should know about its chances, and tell metrics."""
        view, config = self._extenders.view(), self._config()
        self._live.set(len(view.live) + len(view.deaf))
        self._deaf.set(len(view.deaf))
        differing, left_out = view.differing(load_settings_hash(config)), view.left_out()
        self._warn("load settings differ", differing)
        for words in self._warn("extender does not hear", left_out):
            self._tell_deaf(words)
        unheard = (f"{words}; nothing waits for it." for words in left_out)
        return (*self._breaker_notes(), *self._extender_notes(), *unheard, *differing)

    def _reasons(self, start: Start) -> Iterator[Refusal]:
        yield from against(start)
        if start.purpose is Purpose.LOAD and (unmeasured := without_metrics(self._belief())):
            yield unmeasured
        yield from judge(start.pod, self._context(start))
        ahead = [m for m in start.soon_over() if purpose_of(m) is start.purpose]
        breakers = self._breakers(start.purpose, start.snapshot, start.others)
        yield from breakers.against(start.migration, ahead)
        if start.purpose is Purpose.LOAD and start.config.require_extender:
            unsteerable = unsteered(self._guidance(start.pod.shape.scheduler_name))
            if unsteerable is not None:
                yield unsteerable

    def _start(self, migration: MigrationRecord, pod: PodRecord, snapshot: Snapshot) -> Start:
        others = [m for m in snapshot.migrations.values() if m.uid != migration.uid]
        self._forget(migration, others)
        ahead, belief = ahead_of(migration, others, self._begun), self._belief()
        return Start(
            migration=migration,
            pod=pod,
            others=others,
            ahead=ahead,
            snapshot=snapshot,
            config=self._config(),
            now_s=self._clock.now(),
            guided=self._extenders.view().guided(pod.shape.scheduler_name) is not None,
            filled=None if belief is None else target_with(migration, pod, ahead, belief),
        )

    def _context(self, start: Start) -> Context:
        """Return what gates look at; what one look has worked out is kept for the next."""
        look, snapshot, config = self._look, start.snapshot, start.config
        if look is None or look.snapshot.version != snapshot.version or look.config is not config:
            look = self._look = Context.of(snapshot, config, now_s=start.now_s)
        past, purpose = _past(start), start.purpose
        return replace(look, now_s=start.now_s, past=past, purpose=purpose, _replicas={})

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
            resting=self._resting(),
        )
        return Breakers.of(self._history(purpose, known), signs, self._config().breaker)

    def _history(self, purpose: Purpose, known: Sequence[MigrationRecord]) -> Histories:
        """Return what moves have come to; worked out anew only when another one has ended."""
        config, finished = self._config(), [m for m in known if not m.open]
        kept = self._histories.get(purpose)
        if kept is not None and kept[0] is config and kept[1] == finished:
            return kept[2]
        found = histories_of(finished, config, purpose)
        self._histories[purpose] = config, finished, found
        return found

    def _breaker_notes(self) -> Iterator[str]:
        for purpose in Purpose:
            breakers = self._breakers_now(purpose)
            state, stopped = breakers.shown(self._movable), [*breakers.stopped_namespaces()]
            self._breaker_open.labels(purpose.value).set(1 if state.open else 0.5 * state.half_open)
            self._stopped.labels(purpose.value).set(len(stopped))
            self._quarantined.labels(purpose.value).set(breakers.quarantined())
            if state.open or state.half_open:
                yield _stop_words(state, f"for {purpose}")
                continue
            for name, found in stopped:
                yield _stop_words(found, f"for {purpose} in namespace {name}")

    def _movable(self) -> Iterator[str]:
        """Yield the namespaces with pods that a controller replaces, our own aside."""
        snapshot, excluded = self._state.snapshot(), self._config().excluded_namespaces
        for name in snapshot.by_namespace:
            pods = snapshot.by_namespace[name].values()
            if name not in excluded and any(map(_is_replaced, pods)):
                yield name

    def _extender_notes(self) -> Iterator[str]:
        view, config = self._extenders.view(), self._config()
        for scheduler in config.scheduler_names:
            share = view.share(scheduler)
            if share is not None:
                self._share.labels(scheduler).set(share)
                if share < ENOUGH_SHOWN:
                    yield f"{sampling(scheduler, share)}."
            elif view.live and view.guided(scheduler) is None:
                yield f"{scheduler} has not asked an extender yet: one move at a time tries."
        if not view.live and not view.deaf:
            yield "No extender is alive: nobody would steer replacements."

    def _warn(self, event: str, found: tuple[str, ...]) -> tuple[str, ...]:
        """Log what is found once for as long as it is the same; return what is new."""
        new = tuple(words for words in found if words not in self._warned.get(event, ()))
        self._warned[event] = found
        for words in new:
            log.warning(event, words=words)
        return new

    def _count(self, migration: MigrationRecord, refusal: Refusal) -> None:
        """Count a reason once for as long as it is the one that is told."""
        if self._put_off.get(migration.uid) != refusal.name:
            self._put_off[migration.uid] = refusal.name
            self._limits.labels(refusal.name).inc()

    def _forget(self, asked: MigrationRecord, others: Sequence[MigrationRecord]) -> None:
        """Drop what was kept for Migrations that are over."""
        going_on = {m.uid for m in others if m.open} | {asked.uid}
        self._begun &= going_on
        for uid in self._put_off.keys() - going_on:
            del self._put_off[uid]


def without_metrics(belief: Belief | None) -> Refusal | None:
    """Return why nothing may be moved for load where no one has said to go by requests."""
    if belief is None or not belief.source.without_metrics:
        return None
    words = "there are no metrics, and the configuration does not say usageSource: requests"
    return Refusal("NoMetrics", words, for_good=False)


def _is_replaced(pod: PodRecord) -> bool:
    owned = pod.owner is not None and pod.owner.kind != "DaemonSet" and not pod.mirror
    return owned and pod.labels.get(PRODUCT_LABEL) != PRODUCT


def _stop_words(state: BreakerState, what: str) -> str:
    how = "Nothing is moved" if state.open else "One move at a time"
    return f"{how} {what}: {state.words}."


def _past(start: Start) -> Past:
    """Return what moved lately; moves of one plan do not make each other rest."""
    mine = start.migration
    kin = [
        m
        for m in start.others
        if m.workload_id == mine.workload_id or m.replacement_uid == mine.pod_uid
    ]
    other_plans = (m for m in kin if not _of_one_plan(m, mine))
    return Past(past_of(other_plans).workload_moved_s, past_of(kin).lineage_moved_s)


def _of_one_plan(other: MigrationRecord, mine: MigrationRecord) -> bool:
    """Anybody can write any plan id; what was asked for after the other's end is another plan."""
    named = bool(mine.plan_id) and other.plan_id == mine.plan_id
    return named and (other.finished_s is None or mine.created_s <= other.finished_s)
