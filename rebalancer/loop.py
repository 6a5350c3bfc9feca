# SPDX-License-Identifier: Apache-2.0
"""The loop: plan, validate on newer samples, and let moves begin.

A plan is made every `reschedulingInterval`, and at once when a node gets or loses the
maintenance label or comes of age. Samples that arrive in between are counted: how soon a goal
counts as broken depends on them, not on how often plans are made.

What a plan moves for load waits until every node it touches has a newer sample, and is then
validated again; what drains a node does not wait. What still holds becomes Migrations, worst
chain first; the migration controller carries them out.

On doubt nothing begins: without the lead, while paused, without newer samples, or after an
error. Planning runs in a thread, so that the Lease is renewed meanwhile. Each term of leading
begins with a new decider, because the thread of an ended term may still use the old one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from common.clock import Clock
from common.cluster.records import NodeName
from common.config import Mode, RebalancerConfiguration, Rules, SourceKind, Strategy
from common.load import Belief
from common.metrics import Metrics
from common.observer import Observer
from common.progress import Progress
from rebalancer.decision import Decider
from rebalancer.finished_pods import NONE_FINISHED, FinishedPods
from rebalancer.launcher import MoveLauncher
from rebalancer.leading import Leadership
from rebalancer.pacing.checks import paused_by
from rebalancer.pacing.policy import PacingPolicy, without_metrics
from rebalancer.planner import Plan
from rebalancer.planner.plan import Chain, Objection
from rebalancer.planner.validation import Revalidated
from rebalancer.planner_priority import PlannerPriority
from rebalancer.projection import in_motion, nodes_of
from rebalancer.report.episode import EpisodeTracker
from rebalancer.report.page import PlanPublisher, noted
from rebalancer.rules import ClusterRules
from rebalancer.selection import (
    BusyNodes,
    Choice,
    choose,
    not_migrating,
    only_marked,
    only_with_newer_samples,
    set_aside,
    stale_nodes,
    touched_by,
)
from rebalancer.store import MigrationStore
from rebalancer.triggers import Trigger, Triggers, until_of_age
from rebalancer.usage_events import UsageEvents

log: structlog.stdlib.BoundLogger = structlog.get_logger()

SAMPLE_POLL_S: Final = 1.0
"""How often it is checked whether all touched nodes have newer samples."""
_LEAST_PATIENCE_S: Final = 300.0
_PATIENCE_INTERVALS: Final = 5
_PLANNING_S: Final = 60.0
"""What planning and creating Migrations may take beside the waits of a plan, at least."""


class _Planned(NamedTuple):
    """A plan with what it was made of."""

    belief: Belief
    plan: Plan
    choice: Choice
    pools: Mapping[str, tuple[NodeName, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopParts:
    """What the loop works with."""

    observer: Observer
    store: MigrationStore
    policy: PacingPolicy
    triggers: Triggers
    leadership: Leadership
    usage_events: UsageEvents
    finished_pods: FinishedPods | None = None
    """Reads the pods that have ended; without it none is known."""
    new_decider: Callable[[RebalancerConfiguration], Decider] = Decider


class RebalanceLoop:
    """Plans and lets moves begin, for as long as this process leads."""

    def __init__(
        self,
        parts: LoopParts,
        config: Callable[[], RebalancerConfiguration],
        *,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """`config` is asked again before each act."""
        self._parts = parts
        self._config = config
        self._clock = clock
        self._launcher = MoveLauncher(parts.store, config, parts.leadership, clock)
        self._decider: Decider | None = None
        self._decided_for = config()
        self._source: SourceKind | None = None
        self._planned_s = 0.0
        self._under_way: frozenset[str] = frozenset()
        self.publisher: Final = PlanPublisher(metrics)
        self.progress: Final = Progress("cycle of planning", clock)
        self.planning: Final = PlannerPriority()
        self._episode = EpisodeTracker(metrics)
        self._cycles = metrics.counter("cycles_total", "Planning cycles, by result.", ("result",))
        self._failed_in_a_row = metrics.gauge(
            "cycles_failed_in_a_row", "Cycles that failed since the last one that did not."
        )
        self._dropped = metrics.counter(
            "plan_chains_dropped_total",
            "Chains of moves that were dropped when they were validated again, by reason.",
            ("reason",),
        )

    @property
    def plan(self) -> Plan | None:
        """The last plan, with what became of it."""
        return self.publisher.plan

    @property
    def planned_s(self) -> float | None:
        """When the last plan was begun; None before the first one."""
        return self._planned_s or None

    async def run(self) -> None:
        """Cycle until canceled; a term of leading."""
        self._decider = None
        # Until the first look of this term, pacing treats load as unknown.
        self._parts.observer.forget()
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
            self.publisher.forget()
            self.progress.rest()
            self._failed_in_a_row.set(0)

    async def _pause(self, seconds: float) -> None:
        """Wait until the next plan is due; samples that arrive meanwhile are counted."""
        self.progress.doing("waiting for the next cycle")
        end_s = self._clock.monotonic() + seconds
        until = (Trigger.MAINTENANCE, Trigger.CONFIG, Trigger.SAMPLE)
        while True:
            left_s = max(0.0, end_s - self._clock.monotonic())
            trigger = await self._parts.triggers.wait(
                left_s, until=until, of_age=self._until_of_age
            )
            if trigger is Trigger.MAINTENANCE:
                await self._parts.triggers.settled()
            if trigger is not Trigger.SAMPLE:
                break
            await self._observe()

    async def cycle(self) -> None:
        """Plan once, and let begin what may."""
        # Cleared before the cluster is observed: what fires from now on is not in this plan.
        self._parts.triggers.clear(*Trigger)
        planned = await self._make_plan()
        await self._drain_nodes(planned)
        if planned.choice.load:
            belief = await self._newer_samples(planned)
            fresh = only_with_newer_samples(planned.belief.load, belief.load)
            await self._act(planned, planned.choice.load, belief, fresh, only_marked(belief))

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

    async def _make_plan(self) -> _Planned:
        """Make a plan and show it."""
        self.progress.doing("planning")
        # Noted first: a cycle that fails must not be due again at once.
        self._planned_s = began_s = self._clock.now()
        belief = await self.believe()
        self._parts.usage_events.observe(belief)
        decider = self._decider_for(belief)
        reader = self._parts.finished_pods
        finished = await reader.read(self._config()) if reader is not None else NONE_FINISHED
        started_s = self._clock.monotonic()
        with self.planning:
            decision = await asyncio.to_thread(decider.decide, belief, began_s, finished)
        self.publisher.plan_made(decision.plan, self._clock.monotonic() - started_s)
        policy, pools = self._parts.policy, decision.assessment.participation.pools
        choice = choose(
            decision.plan,
            self._config(),
            rules=ClusterRules(self._config(), belief.snapshot, self._clock.now()),
            dry_run=self._parts.leadership.dry_run,
            refusal=without_metrics(belief) or policy.may_plan(),
            paused=paused_by(belief.snapshot, self._clock.now()),
        )
        choice = set_aside(choice, self._objections(belief, pools))
        policy.report()
        plan = noted(decision.plan, (*policy.notes(), *choice.notes))
        self.publisher.publish(plan)
        self._episode.planned(
            plan,
            waiting=len(decision.assessment.waiting),
            migrations=belief.snapshot.migrations,
        )
        return _Planned(belief, plan, choice, pools)

    async def _observe(self) -> None:
        """Count what the newest sample shows; a sample that cannot be counted does no harm."""
        self._parts.triggers.clear(Trigger.SAMPLE)
        try:
            belief = await self.believe()
            decider = self._decider_for(belief)
            with self.planning:
                await asyncio.to_thread(decider.observe, belief, self._clock.now())
        except Exception:
            log.exception("sample not counted")

    async def believe(self) -> Belief:
        """Return the newest belief, with Migrations that the watch does not show yet."""
        store = self._parts.store
        return await self._parts.observer.look(store.predecessors(), store.overlay)

    def _decider_for(self, belief: Belief) -> Decider:
        """Return the decider; nodes that moves touch, or touched until now, are counted again."""
        config = self._config()
        source, before = belief.source.asked, self._decided_for
        # Observations of requests say nothing about samples.
        if (
            self._decider is None
            or self._source is not source
            or judges_differently(before, config)
        ):
            self._decider = self._parts.new_decider(config)
        self._decided_for, self._source = config, source
        migrations = belief.snapshot.migrations
        still = frozenset(m.name for m in in_motion(belief.snapshot, self._clock.now()))
        # A node is measured without the move for the first time after the move has ended.
        ended = self._under_way - still
        self._under_way = still
        self._decider.moved(nodes_of(migrations[n] for n in still | ended if n in migrations))
        return self._decider

    async def _drain_nodes(self, planned: _Planned) -> None:
        """Let moves begin that drain nodes; they wait for no sample."""
        if planned.choice.maintenance:
            await self._act(planned, planned.choice.maintenance, await self.believe())

    async def _newer_samples(self, planned: _Planned) -> Belief:
        """Wait for newer samples of all touched nodes, at most `revalidateWithin`."""
        touched, config = touched_by(planned.choice.load), self._config()
        end_s = self._clock.monotonic() + config.revalidate_within.seconds
        self.progress.doing("waiting for newer samples")
        await self._wait(config.revalidate_after.seconds)
        while True:
            belief = await self.believe()
            left_s = end_s - self._clock.monotonic()
            # In time or not, the chains are validated; those without newer samples are dropped.
            if left_s <= 0 or not stale_nodes(touched, planned.belief.load, belief.load):
                return belief
            await self._wait(min(SAMPLE_POLL_S, left_s))

    async def _wait(self, seconds: float) -> None:
        """Wait; a node that has to be drained meanwhile is planned for at once."""
        triggers, end_s = self._parts.triggers, self._clock.monotonic() + seconds
        while (left_s := end_s - self._clock.monotonic()) > 0:
            trigger = await triggers.wait(left_s, until=(Trigger.MAINTENANCE, Trigger.SAMPLE))
            if trigger is Trigger.MAINTENANCE:
                await triggers.settled()
                await self._drain_nodes(await self._make_plan())
            elif trigger is Trigger.SAMPLE:
                await self._observe()

    async def _act(
        self, planned: _Planned, chains: Sequence[Chain], belief: Belief, *objections: Objection
    ) -> None:
        """Validate chains again, and create the Migrations of those that still hold."""
        self.progress.doing("validating and writing moves")
        held = await self._revalidate(planned, chains, belief, objections)
        for dropped in held.dropped:
            self._dropped.labels(dropped.why.name).inc()
            log.info("chain dropped", plan_id=planned.plan.plan_id, why=dropped.message)
        self.publisher.note(dropped.message for dropped in held.dropped)
        created: list[str] = []
        for chain in held.chains:
            created += await self._launcher.launch(planned.plan, chain, belief, held.after)
        if created:
            self._episode.acted(planned.plan, created, needless=held.needless)

    async def _revalidate(
        self, planned: _Planned, chains: Sequence[Chain], belief: Belief, more: Sequence[Objection]
    ) -> Revalidated:
        decider, now_s = self._decider_for(belief), self._clock.now()
        objections = (*self._objections(belief, planned.pools), *more)
        with self.planning:
            return await asyncio.to_thread(decider.revalidate, chains, belief, now_s, objections)

    def _objections(
        self, belief: Belief, pools: Mapping[str, tuple[NodeName, ...]]
    ) -> tuple[Objection, ...]:
        """Return what stands against moves because of other moves."""
        migrations = belief.snapshot.migrations
        return (
            not_migrating(migrations, self._config(), self._clock.now()),
            BusyNodes.of(in_motion(belief.snapshot, self._clock.now()), pools),
        )

    def _until_of_age(self) -> float | None:
        config = self._config()
        if Strategy.LOAD_BALANCING not in Rules(config).enabled_anywhere():
            return None
        return until_of_age(
            (view.node for view in self._parts.store.snapshot().nodes.values()),
            min_age_s=config.min_node_age.seconds,
            planned_s=self._planned_s,
            now_s=self._clock.now(),
        )


def patience_s(config: RebalancerConfiguration) -> float:
    """Return how long after the end of a cycle the end of the next one is late without doubt."""
    interval_s = config.rescheduling_interval.seconds
    longest_wait_s = max(config.revalidate_after.seconds, config.revalidate_within.seconds)
    return max(
        _PATIENCE_INTERVALS * interval_s,
        _LEAST_PATIENCE_S,
        # A plan that waits as long as it may is made before that wait and written after it.
        interval_s + longest_wait_s + _PLANNING_S,
    )


def judges_differently(old: RebalancerConfiguration, new: RebalancerConfiguration) -> bool:
    """Tell whether two configurations may lead to different plans; switches do not matter."""
    if old is new:
        return False
    switches = {"paused": False, "mode": Mode.ACT, "modes": {}}
    return old.model_copy(update=switches) != new.model_copy(update=switches)
