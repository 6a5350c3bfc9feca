# SPDX-License-Identifier: Apache-2.0
"""The rebalancer put together: what reads, plans and acts, and when each part runs.

Every replica reads the cluster and serves its health; only the leader plans and acts. A dry
run plans as the leader would, needs only permissions to read, and writes nothing. Whatever is
not known keeps pods where they are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

import structlog

from common.api.contract import INSTALL_CRD
from common.cache.reader import (
    CACHED_KINDS,
    MIGRATION_KIND,
    POD_GROUP_KIND,
    VPA_KIND,
    CachedKind,
    ClusterReader,
    lease_kind,
    pause_kind,
)
from common.cli import Announce, FlagError, Options, StartError, connected
from common.clock import Clock
from common.config import Mode, RebalancerConfiguration
from common.health import Health
from common.http_server import CannotListen
from common.kube.client import KubeClient
from common.kube.errors import Forbidden, NotFound
from common.kube.events import EventLimits, ObjectRef, Recorder
from common.kube.identity import LeaseNamespace, lease_namespace, own_identity
from common.kube.leader import Elector
from common.kube.resources import CONFIGMAPS, LEASES, MIGRATIONS
from common.load_metrics import show_nodes
from common.metrics import Metrics
from common.observer import Observer
from common.runtime import Runtime
from console.server import Console
from rebalancer.config_reload import ConfigSource, in_mode
from rebalancer.console_data import RebalancerConsole, Shown
from rebalancer.finished_pods import FinishedPods
from rebalancer.leading import Leadership, refuse_a_second_leader
from rebalancer.loop import LoopParts, RebalanceLoop
from rebalancer.maintenance.controller import Maintenance
from rebalancer.maintenance.drain_gate import DrainGate
from rebalancer.maintenance.kept_nodes import KeptNodes
from rebalancer.migration import Actuators, MigrationController, Preconditions
from rebalancer.migration.bare_pods import BarePods
from rebalancer.migration.eviction import ApiEviction
from rebalancer.migration.pod_remover import PodRemover
from rebalancer.migration.temporary_pdb.controller import TemporaryPdbs
from rebalancer.once import plan_once, show
from rebalancer.pacing.policy import PacingPolicy
from rebalancer.report.page import plan_page
from rebalancer.store import MigrationStore
from rebalancer.triggers import Trigger, Triggers
from rebalancer.usage_events import LeaseEvents, UsageEvents
from rebalancer.verification import MoveVerifier

log: structlog.stdlib.BoundLogger = structlog.get_logger()
UNWATCHED_S: Final = 3.0
"""How long a watch may be down, as between two windows, before what it shows is not known."""

Work = Callable[[], Awaitable[None]]


class ConsolePort(Enum):
    """Which port the console is on, where no number says it."""

    OFF = "off"
    CONFIGURED = "configured"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalancerOptions(Options):
    """The flags of this program, in addition to the common ones."""

    config: str | None = None
    dry_run: bool = False
    once: bool = False
    output: str | None = None
    """None is text."""
    all: bool = False
    mode: Mode | None = None
    """None leaves it to the configuration."""
    console_port: int | ConsolePort = ConsolePort.OFF


class Process(NamedTuple):
    """What all parts of this process share."""

    client: KubeClient
    namespace: str
    """Where the Leases of Evenkeel are."""
    clock: Clock
    metrics: Metrics


async def run(
    config: RebalancerConfiguration,
    options: RebalancerOptions,
    *,
    clock: Clock,
    announce: Announce,
) -> None:
    """Keep the cluster level until canceled; with `--once`, print one plan."""
    _refuse_contradictions(options)
    config = in_mode(config, options.mode)
    namespace = lease_namespace(options.namespace, config.leader_election.namespace)
    metrics = Metrics("rebalancer")
    health = Health(metrics)
    async with (
        connected(config, options, clock=clock) as client,
        # A connection of its own: renewing the Lease never waits behind other requests.
        connected(config, options, clock=clock) as lease_client,
        _serving(health, options) as address,
    ):
        # Asked first: a wrong address, certificate or token is reported at once and plainly.
        await client.get("/version")
        kinds = await _kinds(client, namespace.name, options)
        observer = Observer(client, config, clock=clock, metrics=metrics, kinds=kinds)
        health.ready("cluster", observer.why_not_ready)
        show_nodes(metrics, lambda: belief.load if (belief := observer.latest) else None)
        process = Process(client, namespace.name, clock, metrics)
        try:
            if options.once:
                await _once(config, options, observer, process)
            else:
                _log_mode(config, options)
                elector = await _elector(config, options, namespace, lease_client, process)
                rebalancer = Rebalancer(config, options, observer, process, elector)
                rebalancer.publish(health)
                port = console_port(config, options)
                async with _console(rebalancer, port, clock, health) as console:
                    announce(health=address, **console)
                    await rebalancer.run()
        finally:
            health.drain()


def _refuse_contradictions(options: RebalancerOptions) -> None:
    if options.once and not options.dry_run:
        raise FlagError("--once shows a plan and does not act: add --dry-run")
    if options.output is not None and not options.once:
        raise FlagError("--output is for the plan of --once: add --once --dry-run, or leave it out")
    if options.all and not options.once:
        raise FlagError("--all is for the plan of --once: add --once --dry-run, or leave it out")


@asynccontextmanager
async def _serving(health: Health, options: RebalancerOptions) -> AsyncIterator[str]:
    """Serve the health port; one plan needs none, and may be made beside a running rebalancer."""
    if options.once:
        yield ""
    else:
        async with health.serving(options.bind_address, options.health_port) as address:
            yield address


@asynccontextmanager
async def _console(
    rebalancer: Rebalancer, port: int | None, clock: Clock, health: Health
) -> AsyncIterator[dict[str, str]]:
    """Serve the console and give its address; a port that is taken stops nothing else."""
    if port is None:
        yield {}
        return
    console = Console(rebalancer.shown(), program="the rebalancer", clock=clock)
    async with AsyncExitStack() as stack:
        try:
            serving = console.serving(port, refused=health.refused)
            found = {"console": await stack.enter_async_context(serving)}
        except CannotListen as error:
            log.warning("no console", why=str(error), hint="choose a port with --console-port")
            found = {}
        yield found


def console_port(config: RebalancerConfiguration, options: RebalancerOptions) -> int | None:
    """Return the port of the console; None if there is none."""
    if options.console_port is ConsolePort.CONFIGURED:
        return config.console.port if config.console.enabled else None
    return options.console_port if isinstance(options.console_port, int) else None


async def _once(
    config: RebalancerConfiguration,
    options: RebalancerOptions,
    observer: Observer,
    process: Process,
) -> None:
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(observer.run())
        finished = await FinishedPods(process.client).read(config)
        plan = await plan_once(config, observer, process.clock, finished, all_pods=options.all)
        show(plan, options.output or "text", all_pods=options.all)
        reading.cancel()


class Rebalancer:
    """Everything that works together in one rebalancer."""

    def __init__(
        self,
        config: RebalancerConfiguration,
        options: RebalancerOptions,
        observer: Observer,
        process: Process,
        elector: Elector | None,
    ) -> None:
        clock, metrics = process.clock, process.metrics
        self._clock = clock
        self._observer = observer
        self._leadership = Leadership(elector, dry_run=options.dry_run)
        self._config = ConfigSource(
            options.config, config, clock=clock, metrics=metrics, mode=options.mode
        )
        identity = elector.identity if elector is not None else own_identity()
        self._recorder = _recorder(process, identity)
        state = observer.reader.state
        events = LeaseEvents(
            None if options.dry_run else self._recorder,
            _lease(process.namespace, config.leader_election.name),
        )
        self._store = MigrationStore(process.client, state, clock=clock, metrics=metrics)
        self._policy = PacingPolicy(
            state,
            observer,
            self._store,
            self._config.get,
            clock=clock,
            metrics=metrics,
            on_deaf_extender=events.extender_deaf,
        )
        parts = LoopParts(
            observer=observer,
            store=self._store,
            policy=self._policy,
            triggers=self._triggers(clock),
            leadership=self._leadership,
            usage_events=UsageEvents(events, clock=clock),
            finished_pods=FinishedPods(process.client),
        )
        self._loop = RebalanceLoop(parts, self._config.get, clock=clock, metrics=metrics)
        self._acting = self._acting_parts(process, config)

    def publish(self, health: Health) -> None:
        """Show on the health port which process leads, the last plan and whether cycles end."""
        describe = self._leadership.describe
        health.tell("leader", describe)
        health.route("/debug/plan", plan_page(lambda: self._loop.plan, describe))
        health.live("cycles", self._why_stuck)

    def shown(self) -> RebalancerConsole:
        """Return what the console shows."""
        parts = Shown(
            observer=self._observer,
            loop=self._loop,
            policy=self._policy,
            leadership=self._leadership,
        )
        return RebalancerConsole(parts, self._config.get, clock=self._clock)

    async def run(self) -> None:
        """Read forever; plan and act while leading."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._observer.run())
            group.create_task(self._config.run())
            group.create_task(self._recorder.run())
            await self._observer.reader.wait_synced()
            if self._leadership.dry_run:
                await self._loop.run()
            else:
                namespaces = frozenset(self._observer.reader.state.namespaces.records)
                self._leadership.require_namespace(namespaces)
                await self._leadership.run([self._loop.run, *self._acting])

    def _triggers(self, clock: Clock) -> Triggers:
        triggers = Triggers(clock)
        self._config.listen(lambda _: triggers.fire(Trigger.CONFIG))
        self._observer.reader.state.nodes.listen(triggers.on_node)
        self._observer.listen(lambda: triggers.fire(Trigger.SAMPLE))
        return triggers

    def _acting_parts(self, process: Process, config: RebalancerConfiguration) -> Sequence[Work]:
        """Return what carries out moves; each part runs only while this process leads."""
        client, clock, metrics = process.client, process.clock, process.metrics
        reader, get = self._observer.reader, self._config.get
        guard = TemporaryPdbs(client, reader.state, config=get, clock=clock, metrics=metrics)
        replacer = BarePods(client, reader.state, clock=clock, metrics=metrics)
        gate = DrainGate(get)
        controller = MigrationController(
            self._store,
            Actuators.of(client, guard, replacer),
            Preconditions(
                pacing=self._policy,
                is_leader=self._leadership.leads,
                why_not_synced=partial(_why_not_known, reader),
                why_not_drained=gate.refusal,
            ),
            recorder=self._recorder,
            config=get,
            runtime=Runtime(clock, metrics),
        )
        maintenance = Maintenance(
            client,
            reader.state,
            self._recorder,
            plan=lambda: self._loop.plan,
            config=get,
            gate=gate,
            runtime=Runtime(clock, metrics),
        )
        verifier = MoveVerifier(
            self._observer,
            self._store,
            recorder=self._recorder,
            clock=clock,
            metrics=metrics,
            patience_s=config.metric_expiry.seconds,
        )
        kept_nodes = KeptNodes(
            client,
            reader.state,
            self._recorder,
            plan=lambda: self._loop.plan,
            config=get,
            runtime=Runtime(clock, metrics),
        )
        remover = PodRemover(
            reader.state,
            ApiEviction(client),
            self._recorder,
            plan=lambda: self._loop.plan,
            leads=self._leadership.leads,
            config=get,
            runtime=Runtime(clock, metrics),
        )
        return (
            controller.run,
            guard.run,
            replacer.run,
            maintenance.run,
            kept_nodes.run,
            remover.run,
            verifier.run,
        )

    def _why_stuck(self) -> str | None:
        """Say why this process makes no progress; a standby or a disconnected one need not."""
        return self._loop.progress.why_stuck(self._observer.reader.last_unreachable_s())


def _recorder(process: Process, identity: str) -> Recorder:
    return Recorder(
        process.client,
        program="evenkeel-rebalancer",
        identity=identity,
        limits=EventLimits(),
        clock=process.clock,
        metrics=process.metrics,
        rng=random.Random(),
    )


def _why_not_known(reader: ClusterReader) -> str | None:
    """Return why the cluster, or whether moves are paused, is not known.

    A cache may be some time old, but a pause is to work at once: without a watch of it, no pod is
    evicted.
    """
    pauses = reader.reflector_of(CONFIGMAPS)
    if pauses.unwatched_s() > UNWATCHED_S:
        return f"it is not known whether moves are paused ({pauses.trouble or 'no watch'})"
    return reader.why_not_synced()


def _lease(namespace: str, name: str) -> ObjectRef:
    return ObjectRef(
        api_version=LEASES.api_version, kind=LEASES.kind, namespace=namespace, name=name
    )


def _log_mode(config: RebalancerConfiguration, options: RebalancerOptions) -> None:
    set_by = "--mode" if options.mode is not None else "configuration"
    log.info("mode", mode=config.mode.value, modes=dict(config.modes), set_by=set_by)


async def _elector(
    config: RebalancerConfiguration,
    options: RebalancerOptions,
    namespace: LeaseNamespace,
    client: KubeClient,
    process: Process,
) -> Elector | None:
    """Return what takes part in the election; None in a dry run, which never leads."""
    wanted = config.leader_election
    if options.dry_run or not wanted.enabled:
        return None
    await refuse_a_second_leader(client, namespace, wanted.name, process.clock.now())
    return Elector(
        client,
        wanted,
        namespace=namespace.name,
        identity=own_identity(),
        clock=process.clock,
        metrics=process.metrics,
        rng=random.Random(),
    )


async def _kinds(
    client: KubeClient, namespace: str, options: RebalancerOptions
) -> tuple[CachedKind, ...]:
    """Return what to read; one plan needs no extenders, a dry run may do without Migrations."""
    # A process that cannot read whether moves are paused does not begin any.
    kept = (lease_kind(namespace), pause_kind(namespace))
    own = tuple(replace(kind, optional=options.dry_run) for kind in kept)
    read = (*CACHED_KINDS, VPA_KIND, POD_GROUP_KIND)
    always = read if options.once else (*read, *own)
    try:
        await client.get(MIGRATIONS.path(), params={"limit": 1})
    except (NotFound, Forbidden) as error:
        absent = isinstance(error, NotFound)
        if not options.dry_run:
            missing = f"the Migration CRD is not installed: run {INSTALL_CRD}"
            raise StartError(missing if absent else f"cannot read Migrations: {error}") from None
        why = "Evenkeel is not installed there yet" if absent else str(error)
        log.info("migrations not read, earlier moves are not known", why=why)
        return always
    return (*always, replace(MIGRATION_KIND, optional=False))
