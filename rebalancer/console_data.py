# SPDX-License-Identifier: Apache-2.0
"""What the console shows of a running rebalancer.

The answers are those of `rebalancer.inspection`, about the belief and the plan that the loop has
anyway; a replica that stands by looks for itself and has no plan. Nothing here changes anything,
and no decision waits for it: work runs in a thread, one question after the other, after a plan
that is being made. What is expensive to prepare for a large cluster is used for a while, in
proportion to what it took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from common.clock import Clock
from common.config import RebalancerConfiguration
from common.load import Belief
from common.observer import Observer
from console.data import (
    ClusterDocument,
    HealthDocument,
    LoadMoment,
    Match,
    MigrationsDocument,
    NodeDocument,
    PlanAnswer,
    Versions,
    WhyDocument,
    WhyKind,
)
from rebalancer.inspection import (
    Inspection,
    LoopState,
    cluster_document,
    health_document,
    load_moment,
    migrations_document,
    node_document,
    plan_document,
    search,
    why,
)
from rebalancer.inspection.moment import NO_PLAN
from rebalancer.leading import Leadership
from rebalancer.loop import RebalanceLoop
from rebalancer.pacing.policy import PacingPolicy
from rebalancer.planner import Plan
from rebalancer.planner_priority import PlannerPriority

REST: Final = 10.0
"""What took t to prepare is used for this many times t at least."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The parts of a rebalancer that the console shows."""

    observer: Observer
    loop: RebalanceLoop
    policy: PacingPolicy
    leadership: Leadership


class Questions:
    """Answers one question after the other, in a thread, after the planner."""

    def __init__(self, planning: PlannerPriority) -> None:
        self._planning = planning
        self._turn = asyncio.Lock()

    async def ask(self, work: Callable[..., T], *arguments: object) -> T:
        """Return what a function makes of its arguments."""
        async with self._turn:
            await self._planning.wait_idle()
            return await asyncio.to_thread(work, *arguments)


class RebalancerConsole:
    """Implements `console.data.ConsoleData`."""

    def __init__(
        self, shown: Shown, config: Callable[[], RebalancerConfiguration], *, clock: Clock
    ) -> None:
        self._shown = shown
        self._config = config
        self._clock = clock
        self._questions = Questions(shown.loop.planning)
        self._cluster = 0
        self._samples = 0
        self._changes = 0
        self._known = _Identities()
        self._kept: Inspection | None = None
        self._kept_until_s = 0.0
        shown.observer.listen(self._on_sample)
        shown.observer.reader.state.migrations.listen(self._on_migration)

    def versions(self) -> Versions:
        """Return what has changed so far."""
        shown = self._shown
        if not shown.loop.planning.busy:
            # Otherwise it is shown after the plan, and once for both.
            latest = shown.observer.latest
            load = latest.load if latest is not None else self._samples
            self._cluster = self._known.number("cluster", load)
        plan, config = shown.loop.plan, self._config()
        view = shown.policy.extenders()
        names = tuple(each.name for each in (*view.live, *view.deaf))
        pauses = tuple(shown.observer.reader.state.snapshot().pauses.values())
        health = (shown.leadership.describe(), config, len(view.live), names, pauses)
        return Versions(
            cluster=self._cluster,
            plan=self._known.number("plan", plan),
            migrations=self._changes,
            health=self._known.number("health", health),
        )

    async def load(self) -> LoadMoment | None:
        """Return how loaded nodes are; None while the cluster is not read yet."""
        if self._shown.observer.why_not_ready() is not None:
            return None
        asked = self._inspection(await self._belief(), NO_PLAN)
        return await self._questions.ask(load_moment, asked)

    async def cluster(self) -> ClusterDocument | None:
        """Return all nodes; None while the cluster is not read yet."""
        if self._shown.observer.why_not_ready() is not None:
            return None
        plan = self._shown.loop.plan
        asked = self._inspection(await self._belief(), plan or NO_PLAN)
        document = await self._questions.ask(cluster_document, asked)
        return document if plan is not None else msgspec.structs.replace(document, evictions=None)

    async def node(self, name: str) -> NodeDocument | None:
        """Return one node."""
        return await self._ask(lambda asked: node_document(asked, name))

    async def plan(self) -> PlanAnswer:
        """Return the last plan, or why there is none."""
        plan, made_s = self._shown.loop.plan, self._shown.loop.planned_s
        if plan is None or made_s is None:
            return PlanAnswer(plan=None, why_none=self._why_no_plan())
        asked = self._inspection(await self._belief(), plan)
        return PlanAnswer(plan=await self._questions.ask(plan_document, asked, made_s))

    async def migrations(self) -> MigrationsDocument:
        """Return what moves and moved."""
        known = self._shown.observer.reader.state.snapshot().migrations
        return await self._questions.ask(migrations_document, tuple(known.values()))

    async def why(self, kind: WhyKind, name: str) -> WhyDocument | None:
        """Return the answer of `evenkeel why`."""
        return await self._ask(lambda asked: why(asked, kind, name))

    async def search(self, text: str, limit: int) -> tuple[Match, ...]:
        """Return objects whose names contain the text."""
        snapshot = self._shown.observer.reader.state.snapshot()
        return await self._questions.ask(search, snapshot, text, limit)

    async def health(self) -> HealthDocument:
        """Return how the loop is doing."""
        shown = self._shown
        plan = shown.loop.plan
        asked = self._inspection(await self._belief(), plan or NO_PLAN)
        state = LoopState(
            installed=True,
            leader=shown.leadership.describe(),
            extenders=shown.policy.extenders(),
            pause=asked.pause,
            last_plan_s=shown.loop.planned_s if plan is not None else None,
            notes=shown.policy.notes(),
        )
        return await self._questions.ask(health_document, asked, state)

    def _on_sample(self) -> None:
        self._samples += 1

    def _on_migration(self, old: object, new: object) -> None:
        self._changes += 1

    def _why_no_plan(self) -> str:
        leads = self._shown.leadership
        if leads.leads() or leads.dry_run:
            waits = self._shown.observer.why_not_ready()
            return f"There is no plan yet{f': {waits}' if waits else ''}."
        return f"Only the leader plans, and {leads.describe()}."

    async def _belief(self) -> Belief:
        """Return what the loop believes; where it does not run, what it would."""
        return self._shown.observer.latest or await self._shown.observer.peek()

    def _inspection(self, belief: Belief, plan: Plan) -> Inspection:
        return Inspection(belief, self._config(), self._clock.now(), plan=plan)

    async def _ask(self, question: Callable[[Inspection], T]) -> T:
        """Ask about single objects; the gates are prepared once for several questions."""
        belief, plan = await self._belief(), self._shown.loop.plan or NO_PLAN
        fresh = self._inspection(belief, plan)
        return await self._questions.ask(self._answer, fresh, question)

    def _answer(self, fresh: Inspection, question: Callable[[Inspection], T]) -> T:
        began_s = self._clock.monotonic()
        if self._kept is None or began_s >= self._kept_until_s:
            self._kept = fresh
            _ = fresh.problem  # whatever questions share is made here
            took_s = self._clock.monotonic() - began_s
            self._kept_until_s = began_s + took_s * REST
        return question(self._kept)


class _Identities:
    """Numbers that change whenever a value is another one than before."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[object, int]] = {}

    def number(self, name: str, value: object) -> int:
        last, number = self._last.get(name, (None, 0))
        same = last is value or (isinstance(value, int | tuple) and last == value)
        if not same:
            self._last[name] = (value, number + 1)
        return number if same else number + 1
