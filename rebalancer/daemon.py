"""The loop: look, plan, look again, and let moves begin.

A plan is made every `reschedulingInterval`, and at once when a node gets or loses the
maintenance label or comes of age. Samples that come in between are counted as they come: how
soon a goal counts as broken depends on them, not on how often plans are made.

What a plan moves for load waits until every touched node was measured anew and is then
validated once more; what empties a node does not wait. What is left becomes Migrations, worst
chain first; carrying them out is the migration controller's work.

In doubt nothing begins: without the lead, while paused, without newer samples, or after an
error. Planning runs in a thread, so that the lease is renewed meanwhile; a term of leading
begins with a new decider, for the thread of an ended term may still be using the old one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import structlog

from common.clock import Clock
from common.cluster.migrations import MigrationRecord, MigrationSpec, Uses, migration_name
from common.cluster.records import NodeName, PodUid
from common.cluster.snapshot import Snapshot
from common.config import Mode, RebalancerConfiguration, Strategy
from common.load import Load
from common.metrics import Metrics
from common.observer import Belief
from common.progress import Progress
from common.usage import SourceKind
from rebalancer.choosing import (
    Chain,
    Choice,
    Objection,
    Resting,
    choose,
    nodes_of,
    not_migrating,
    only_measured_anew,
    predecessors_of,
    set_aside,
    stale_nodes,
    touched_by,
)
from rebalancer.deciding import Decision
from rebalancer.draining import in_motion
from rebalancer.episode import EpisodeBook
from rebalancer.planner import Move, Plan
from rebalancer.reasons import Refusal
from rebalancer.revalidation import Revalidated
from rebalancer.showing import Show, noted
from rebalancer.steering import without_metrics
from rebalancer.usage_events import UsageEvents
from rebalancer.waking import Bell, Due, until_of_age
from rebalancer.writing import Answer, Unseen, Written, predicted_use, spec_of

log: structlog.stdlib.BoundLogger = structlog.get_logger()

SAMPLE_POLL_S: Final = 1.0
"""How often it is asked whether all touched nodes were measured anew."""
_LEAST_PATIENCE_S: Final = 300.0
_PATIENCE_INTERVALS: Final = 5
_PLANNING_S: Final = 60.0
"""What planning and writing may take beside the waits of a plan, at least."""


class Looking(Protocol):
    """The part of `Observer` that is needed here."""

    async def look(self, predecessors: Mapping[PodUid, Load]) -> Belief: ...


class Deciding(Protocol):
    """Decides in a thread; used by one at a time."""

    def decide(self, belief: Belief, now_s: float) -> Decision: ...

    def observe(self, belief: Belief, now_s: float) -> None: ...

    def revalidate(
        self,
        chains: Iterable[Chain],
        belief: Belief,
        now_s: float,
        objections: Sequence[Objection],
    ) -> Revalidated: ...

    def moved(self, nodes: Iterable[NodeName]) -> None: ...


class Writing(Protocol):
    """Creates Migrations."""

    async def write(
        self, spec: MigrationSpec, predicted: Uses, before: MigrationRecord | None
    ) -> Answer: ...


class Steering(Protocol):
    """Knows whether moves for load could be steered and are safe; asked once per cycle."""

    def may_plan(self) -> Refusal | None:
        """Return why nothing may be moved for load now."""
        ...

    def notes(self) -> tuple[str, ...]:
        """Return what a reader of a plan should know about its chances."""
        ...


class Unsteered:
    """Stands in where nobody has anything to say."""

    def may_plan(self) -> Refusal | None:
        return None

    def notes(self) -> tuple[str, ...]:
        return ()


class _Look(NamedTuple):
    """A plan with what it was made of."""

    belief: Belief
    plan: Plan
    choice: Choice
    pools: Mapping[str, tuple[NodeName, ...]]


class Daemon:
    """Plans and lets moves begin, for as long as it leads."""

    def __init__(
        self,
        *,
        observer: Looking,
        snapshot: Callable[[], Snapshot],
        decider_factory: Callable[[RebalancerConfiguration], Deciding],
        writer: Writing,
        config: Callable[[], RebalancerConfiguration],
        bell: Bell,
        clock: Clock,
        metrics: Metrics,
        steering: Steering | None = None,
        leads: Callable[[], bool] = lambda: True,
        dry_run: bool = False,
        usage_events: UsageEvents | None = None,
    ) -> None:
        """`config` and `leads` are asked anew before each act."""
        self._observer = observer
        self._snapshot = snapshot
        self._unseen = Unseen()
        self._decider_factory = decider_factory
        self._writer = writer
        self._config = config
        self._bell = bell
        self._clock = clock
        self._steering = steering or Unsteered()
        self._leads = leads
        self._dry_run = dry_run
        self._usage_events = usage_events
        self._decider: Deciding | None = None
        self._decided_for = config()
        self._asked: SourceKind | None = None
        self._latest: Belief | None = None
        self._looked_s = 0.0
        self._under_way: frozenset[str] = frozenset()
        self.show: Final = Show(metrics)
        self.progress: Final = Progress("cycle of planning", clock)
        self._episode = EpisodeBook(metrics)
        self._cycles = metrics.counter("cycles_total", "Cycles of planning.", ("result",))
        self._failed_in_a_row = metrics.gauge(
            "cycles_failed_in_a_row", "Cycles that failed since the last one that did not."
        )
        self._dropped = metrics.counter(
            "plan_chains_dropped_total",
            "Chains of moves that did not hold when they were looked at again.",
            ("reason",),
        )

    @property
    def plan(self) -> Plan | None:
        """The last plan, with what became of it."""
        return self.show.plan

    @property
    def latest(self) -> Belief | None:
        """What was last seen in this term."""
        return self._latest

    def resting(self) -> bool:
        """Tell whether too little is known about load to move anything for it."""
        return self._latest is None or self._latest.load.resting

    async def run(self) -> None:
        """Cycle until cancelled; a term of leading."""
        self._decider = self._latest = None
        self.progress.begin(patience_s(self._config()))
        try:
            while True:
                began_s = self._clock.monotonic()
                self.progress.expect(patience_s(self._config()))
                await self._guarded_cycle()
                self.progress.ended(patience_s(self._config()))
                spent_s = self._clock.monotonic() - began_s
                interval_s = self._config().rescheduling_interval.seconds
                await self._pause(interval_s - spent_s)
        finally:
            self.show.forget()
            self.progress.rest()
            self._failed_in_a_row.set(0)

    async def _pause(self, seconds: float) -> None:
        """Wait until the next plan is due; samples that come meanwhile are counted."""
        self.progress.doing("waiting for the next cycle")
        end_s = self._clock.monotonic() + seconds
        heeding = (Due.MAINTENANCE, Due.CHANGED, Due.SAMPLE)
        while True:
            left_s = max(0.0, end_s - self._clock.monotonic())
            due = await self._bell.pause(left_s, heeding=heeding, of_age=self._until_of_age)
            if due is not Due.SAMPLE:
                break
            await self._observe()

    async def cycle(self) -> None:
        """Plan once, and let begin what may."""
        self._bell.answered(*Due)
        look = await self._look()
        await self._empty_nodes(look)
        if look.choice.load:
            belief = await self._measured_anew(look)
            fresh = only_measured_anew(look.belief.load, belief.load)
            await self._act(look, look.choice.load, belief, fresh)

    async def _guarded_cycle(self) -> None:
        try:
            await self.cycle()
            self._cycles.labels("done").inc()
            self._failed_in_a_row.set(0)
        except Exception:
            # The next cycle starts from the cluster as it is then; nothing was remembered.
            self._cycles.labels("failed").inc()
            self._failed_in_a_row.inc()
            log.exception("cycle failed")

    async def _look(self) -> _Look:
        """Make a plan and show it."""
        self.progress.doing("planning")
        # Noted first: a look that fails must not be due again at once.
        self._looked_s = began_s = self._clock.now()
        belief = await self.believe()
        if self._usage_events is not None:
            self._usage_events.saw(belief)
        decider = self._deciding(belief)
        started_s = self._clock.monotonic()
        decision = await asyncio.to_thread(decider.decide, belief, began_s)
        self.show.made(decision.plan, self._clock.monotonic() - started_s)
        pools = decision.assessment.participation.pools
        choice = choose(
            decision.plan,
            self._config(),
            dry_run=self._dry_run,
            refusal=without_metrics(belief) or self._steering.may_plan(),
        )
        choice = set_aside(choice, self._objections(belief, pools))
        plan = noted(decision.plan, (*self._steering.notes(), *choice.notes))
        self.show.tell(plan)
        self._episode.looked(
            plan,
            waiting=len(decision.assessment.waiting),
            migrations=belief.snapshot.migrations,
        )
        return _Look(belief, plan, choice, pools)

    async def _observe(self) -> None:
        """Count what the newest sample shows; one that cannot be counted is no harm."""
        self._bell.answered(Due.SAMPLE)
        try:
            belief = await self.believe()
            decider = self._deciding(belief)
            await asyncio.to_thread(decider.observe, belief, self._clock.now())
        except Exception:
            log.exception("sample not counted")

    async def believe(self) -> Belief:
        """Look at the cluster; moves that have just begun are seen even if the watch is late."""
        known = self._snapshot().migrations.values()
        belief = await self._observer.look(predecessors_of(known))
        self._latest = self._unseen.shown_in(belief, self._clock.now())
        return self._latest

    def _deciding(self, belief: Belief) -> Deciding:
        """Return the decider; nodes that moves touch, or touched until now, count anew."""
        config = self._config()
        asked, before = belief.source.asked, self._decided_for
        # What was counted on requests says nothing about samples.
        if self._decider is None or self._asked is not asked or judges_differently(before, config):
            self._decider = self._decider_factory(config)
        self._decided_for, self._asked = config, asked
        migrations = belief.snapshot.migrations
        still = frozenset(m.name for m in in_motion(belief.snapshot, self._clock.now()))
        ended = self._under_way - still
        self._under_way = still
        self._decider.moved(nodes_of(migrations[n] for n in still | ended if n in migrations))
        return self._decider

    async def _empty_nodes(self, look: _Look) -> None:
        """Let moves begin that serve to empty nodes; they wait for no sample."""
        if look.choice.maintenance:
            await self._act(look, look.choice.maintenance, await self.believe())

    async def _measured_anew(self, look: _Look) -> Belief:
        """Wait for newer samples of all touched nodes, at most as long as is allowed."""
        touched, config = touched_by(look.choice.load), self._config()
        end_s = self._clock.monotonic() + config.revalidate_within.seconds
        self.progress.doing("waiting for newer samples")
        await self._wait(config.revalidate_after.seconds)
        while True:
            belief = await self.believe()
            left_s = end_s - self._clock.monotonic()
            if left_s <= 0 or not stale_nodes(touched, look.belief.load, belief.load):
                return belief
            await self._wait(min(SAMPLE_POLL_S, left_s))

    async def _wait(self, seconds: float) -> None:
        """Let time pass; a node that must be emptied meanwhile does not wait with us."""
        end_s = self._clock.monotonic() + seconds
        while (left_s := end_s - self._clock.monotonic()) > 0:
            due = await self._bell.pause(left_s, heeding=(Due.MAINTENANCE, Due.SAMPLE))
            if due is Due.MAINTENANCE:
                self._bell.answered(Due.MAINTENANCE)
                await self._empty_nodes(await self._look())
            elif due is Due.SAMPLE:
                await self._observe()

    async def _act(
        self, look: _Look, chains: Sequence[Chain], belief: Belief, *objections: Objection
    ) -> None:
        """Look at chains again, and write down those that still hold."""
        self.progress.doing("validating and writing moves")
        held = await self._held(look, chains, belief, objections)
        for dropped in held.dropped:
            self._dropped.labels(dropped.why.name).inc()
            log.info("not moved", plan_id=look.plan.plan_id, words=dropped.words)
        self.show.note(dropped.words for dropped in held.dropped)
        created: list[str] = []
        for chain in held.chains:
            created += await self._write_chain(look.plan, chain, belief, held)
        if created:
            self._episode.acted(look.plan, created, needless=held.needless)

    async def _held(
        self, look: _Look, chains: Sequence[Chain], belief: Belief, more: Sequence[Objection]
    ) -> Revalidated:
        decider, now_s = self._deciding(belief), self._clock.now()
        objections = (*self._objections(belief, look.pools), *more)
        return await asyncio.to_thread(decider.revalidate, chains, belief, now_s, objections)

    def _objections(
        self, belief: Belief, pools: Mapping[str, tuple[NodeName, ...]]
    ) -> tuple[Objection, ...]:
        """Return what stands against moves because of other moves."""
        migrations = belief.snapshot.migrations
        return (
            not_migrating(migrations, self._config(), self._clock.now()),
            Resting.of(in_motion(belief.snapshot, self._clock.now()), pools),
        )

    async def _write_chain(
        self, plan: Plan, chain: Chain, belief: Belief, held: Revalidated
    ) -> list[str]:
        """Write a chain down in its order; what waits for a move that failed is left out."""
        created = []
        for move in chain:
            if not self._may_begin(chain):
                break
            written = await self._write(plan, move, belief, held)
            if written is Written.FAILED:
                break
            if written is Written.CREATED:
                created.append(str(move.uid))
                log.info(
                    "move begins",
                    plan_id=plan.plan_id,
                    pod=move.pod,
                    node=move.source,
                    target=move.target,
                    why=move.words,
                )
        return created

    def _may_begin(self, chain: Chain) -> bool:
        """Ask once more, for the answer may have changed while we waited."""
        config = self._config()
        acting = all(config.mode_of(move.strategy) is Mode.ACT for move in chain)
        return acting and self._leads() and not (config.paused or self._dry_run)

    async def _write(self, plan: Plan, move: Move, belief: Belief, held: Revalidated) -> Written:
        try:
            spec = spec_of(move, plan.plan_id, belief, self._config(), self._clock.now())
            if spec is None:
                return Written.FAILED
            before = belief.snapshot.migrations.get(migration_name(spec.pod.uid))
            answer = await self._writer.write(spec, predicted_use(move, held.after), before)
        except Exception:  # the moves of the other chains begin all the same
            log.exception("move not written", plan_id=plan.plan_id, pod=move.pod)
            return Written.FAILED
        self._unseen.add(answer.record)
        return answer.result

    def _until_of_age(self) -> float | None:
        config = self._config()
        if Strategy.LOAD_BALANCING not in config.enabled_strategies:
            return None
        return until_of_age(
            (view.node for view in self._snapshot().nodes.values()),
            min_age_s=config.min_node_age.seconds,
            looked_s=self._looked_s,
            now_s=self._clock.now(),
        )


def patience_s(config: RebalancerConfiguration) -> float:
    """Return how long after the end of a cycle the end of the next one is late for certain."""
    interval_s = config.rescheduling_interval.seconds
    longest_wait_s = max(config.revalidate_after.seconds, config.revalidate_within.seconds)
    return max(
        _PATIENCE_INTERVALS * interval_s,
        _LEAST_PATIENCE_S,
        # A plan that waits as long as it may is planned before and written after that.
        interval_s + longest_wait_s + _PLANNING_S,
    )


def judges_differently(old: RebalancerConfiguration, new: RebalancerConfiguration) -> bool:
    """Tell whether plans may differ between two configurations; switches do not matter."""
    if old is new:
        return False
    switches = {"paused": False, "mode": Mode.ACT, "modes": {}}
    return old.model_copy(update=switches) != new.model_copy(update=switches)
