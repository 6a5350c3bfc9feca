"""The rebalancer put together: reads the cluster, decides, and shows what it would do.

`--once` makes one plan from the samples at hand and prints it; without it a plan is made
every `reschedulingInterval`. Whatever is not known keeps pods where they are: a plan that
rests on too little is empty and says why.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog
from rich.console import Console

from common.clock import Clock, within
from common.cluster.reader import MIGRATION_READING, READINGS, Reading
from common.config import RebalancerConfiguration
from common.health import Health
from common.kube.client import KubeClient, connect
from common.kube.errors import Forbidden, NotFound
from common.kube.resources import MIGRATIONS
from common.metrics import Metrics
from common.observer import Observer
from common.program import Announce, Options, StartError
from rebalancer.deciding import Decider, Decision
from rebalancer.planner import Plan
from rebalancer.report import as_json, render

log: structlog.stdlib.BoundLogger = structlog.get_logger()

SYNC_S: Final = 60.0
SAMPLE_S: Final = 45.0
"""metrics-server needs up to half a minute for its first sample of a new cluster."""
_PLAIN_WIDTH: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalancerOptions(Options):
    """The flags of this program beside everybody's."""

    dry_run: bool = False
    once: bool = False
    output: str = "text"


async def run(
    config: RebalancerConfiguration,
    options: RebalancerOptions,
    *,
    clock: Clock,
    announce: Announce,
) -> None:
    """Plan once or for ever; acting is not part of it yet, so a dry run must be asked for."""
    if not options.dry_run:
        raise StartError("this version plans and does not act: add --dry-run")
    metrics = Metrics("rebalancer")
    health = Health(metrics)
    async with (
        connect(
            kubeconfig=options.kubeconfig,
            context=options.context,
            qps=config.client_connection.qps,
            burst=config.client_connection.burst,
            clock=clock,
        ) as client,
        health.serving(options.bind_address, options.health_port) as address,
    ):
        # Asked first: a wrong address, certificate or token is said at once and plainly.
        await client.get("/version")
        observer = Observer(
            client, config, clock=clock, metrics=metrics, readings=await _readings(client)
        )
        health.ready("cluster", observer.why_not_ready)
        planning = _Planning(config, observer, clock, metrics)
        if not options.once:
            announce(health=address)
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(observer.run())
                if options.once:
                    _print((await planning.once()).plan, options.output)
                    reading.cancel()
                else:
                    await planning.for_ever()
        finally:
            health.drain()


class _Planning:
    """Makes plans of what an observer sees."""

    def __init__(
        self, config: RebalancerConfiguration, observer: Observer, clock: Clock, metrics: Metrics
    ) -> None:
        self._config = config
        self._observer = observer
        self._clock = clock
        self._decider = Decider(config)
        self._took = metrics.histogram("plan_duration_seconds", "How long planning took.")
        self._evictions = metrics.gauge("plan_evictions", "Evictions in the last plan.")
        self._bound = metrics.gauge(
            "plan_lower_bound", "How few evictions could do, for the last plan."
        )
        self._unmet = metrics.gauge("plan_goals_unmet", "Goals that the last plan does not meet.")

    async def once(self) -> Decision:
        """Return the plan of the samples at hand."""
        trouble = await self._wait_for_a_picture()
        decision = await self._decide(at_once=True)
        return decision if trouble is None else _noted(decision, trouble)

    async def for_ever(self) -> None:
        """Make a plan in every interval and tell what it comes to."""
        await self._observer.reader.wait_synced()
        while True:
            decision = await self._decide(at_once=False)
            _tell(decision.plan)
            await self._clock.sleep(self._config.rescheduling_interval.seconds)

    async def _wait_for_a_picture(self) -> str | None:
        """Wait until the cluster is read; say so if its usage is not."""
        try:
            await within(self._clock, SYNC_S, self._observer.reader.wait_synced())
        except TimeoutError:
            why = self._observer.reader.why_not_synced()
            raise StartError(f"no picture of the cluster within {SYNC_S:g} s: {why}") from None
        try:
            await within(self._clock, SAMPLE_S, self._observer.wait_sampled())
        except TimeoutError:
            return f"{self._observer.why_not_ready()}; nothing is moved for load"
        return None

    async def _decide(self, *, at_once: bool) -> Decision:
        belief = await self._observer.look()
        began_s = self._clock.monotonic()
        decision = await asyncio.to_thread(
            self._decider.decide, belief, self._clock.now(), at_once=at_once
        )
        self._took.observe(self._clock.monotonic() - began_s)
        plan = decision.plan
        self._evictions.set(len(plan.moves))
        self._bound.set(plan.lower_bound.evictions)
        self._unmet.set(len(plan.unmet))
        return decision


async def _readings(client: KubeClient) -> tuple[Reading, ...]:
    """Return what to read: Migrations only where the cluster knows them and shows them."""
    try:
        await client.get(MIGRATIONS.path(), params={"limit": 1})
    except (NotFound, Forbidden) as error:
        log.info("migrations not read, earlier moves are not known", why=str(error))
        return READINGS
    return (*READINGS, MIGRATION_READING)


def _noted(decision: Decision, note: str) -> Decision:
    plan = msgspec.structs.replace(decision.plan, notes=(*decision.plan.notes, note))
    return decision._replace(plan=plan)


def _tell(plan: Plan) -> None:
    log.info(
        "plan",
        plan_id=plan.plan_id,
        evictions=len(plan.moves),
        lower_bound=plan.lower_bound.evictions,
        goals=len(plan.goals),
        unmet=len(plan.unmet),
    )
    for move in plan.moves:
        log.info(
            "would move",
            plan_id=plan.plan_id,
            pod=move.pod,
            node=move.source,
            target=move.target,
            why=move.words,
        )
    for note in plan.notes:
        log.info("note", plan_id=plan.plan_id, words=note)


def _print(plan: Plan, output: str) -> None:
    if output == "json":
        sys.stdout.write(as_json(plan) + "\n")
        return
    # A pipe has no width; what is cut off there is lost.
    console = Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
    console.print(render(plan))
