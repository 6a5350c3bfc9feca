"""The rebalancer put together: who reads, who decides, who acts, and who may.

Every replica reads the cluster and answers for its health; only the leader plans and acts.
A dry run plans as the leader would, needs no rights but reading, and writes nothing.
Whatever is not known keeps pods where they are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import structlog

from common.clock import Clock
from common.cluster.reader import MIGRATION_READING, READINGS, Reading, lease_reading
from common.config import Mode, RebalancerConfiguration
from common.connecting import connected
from common.contract import INSTALL_CRD
from common.health import Health
from common.kube.client import KubeClient
from common.kube.errors import Forbidden, NotFound
from common.kube.events import EventSettings, ObjectRef, Recorder
from common.kube.leader import ElectionSettings, Elector
from common.kube.own import LeaseNamespace, lease_namespace, own_identity
from common.kube.resources import LEASES, MIGRATIONS
from common.metrics import Metrics
from common.observer import Observer
from common.program import Announce, FlagError, Options, StartError
from rebalancer.aftermath import Aftermath
from rebalancer.daemon import Daemon
from rebalancer.deciding import Decider
from rebalancer.leading import refuse_a_second_leader, while_leading
from rebalancer.maintenance import Maintenance
from rebalancer.migration import MigrationController
from rebalancer.migration.bare_pods import BarePods
from rebalancer.migration.temporary_pdb import TemporaryPdbs
from rebalancer.once import plan_once, show
from rebalancer.reload import ConfigSource, in_mode
from rebalancer.showing import plan_page
from rebalancer.steering import SteeringRules
from rebalancer.usage_events import UsageEvents
from rebalancer.waking import Bell, Due
from rebalancer.writing import MigrationWriter

log: structlog.stdlib.BoundLogger = structlog.get_logger()

Work = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalancerOptions(Options):
    """The flags of this program beside everybody's."""

    config: str | None = None
    dry_run: bool = False
    once: bool = False
    output: str | None = None
    """None is text."""
    mode: Mode | None = None
    """None leaves it to the configuration."""


async def run(
    config: RebalancerConfiguration,
    options: RebalancerOptions,
    *,
    clock: Clock,
    announce: Announce,
) -> None:
    """Keep the cluster level until cancelled; with `--once`, print one plan."""
    _refuse_contradictions(options)
    config = in_mode(config, options.mode)
    namespace = lease_namespace(options.namespace, config.leader_election.namespace)
    metrics = Metrics("rebalancer")
    health = Health(metrics)
    async with (
        connected(config, options, clock=clock) as client,
        connected(config, options, clock=clock) as lease_client,
        _serving(health, options) as address,
    ):
        # Asked first: a wrong address, certificate or token is said at once and plainly.
        await client.get("/version")
        readings = await _readings(client, namespace.name, options)
        observer = Observer(client, config, clock=clock, metrics=metrics, readings=readings)
        health.ready("cluster", observer.why_not_ready)
        try:
            if options.once:
                await _once(config, options, observer, clock)
            else:
                _tell_mode(config, options)
                elector = await _elected(config, options, namespace, lease_client, clock, metrics)
                parts = _Parts(
                    config,
                    options,
                    observer,
                    client,
                    elector,
                    namespace=namespace.name,
                    clock=clock,
                    metrics=metrics,
                )
                health.tell("leader", parts.who_leads)
                health.route("/debug/plan", plan_page(lambda: parts.daemon.plan, parts.who_leads))
                health.live("cycles", parts.why_stuck)
                announce(health=address)
                await parts.run()
        finally:
            health.drain()


def _refuse_contradictions(options: RebalancerOptions) -> None:
    if options.once and not options.dry_run:
        raise FlagError("--once shows a plan and does not act: add --dry-run")
    if options.output is not None and not options.once:
        raise FlagError("--output is for the plan of --once: add --once --dry-run, or leave it out")


@asynccontextmanager
async def _serving(health: Health, options: RebalancerOptions) -> AsyncIterator[str]:
    """Serve the health port; one plan needs none, and may be made beside a daemon."""
    if options.once:
        yield ""
    else:
        async with health.serving(options.bind_address, options.health_port) as address:
            yield address


async def _once(
    config: RebalancerConfiguration, options: RebalancerOptions, observer: Observer, clock: Clock
) -> None:
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(observer.run())
        show(await plan_once(config, observer, clock), options.output or "text")
        reading.cancel()


class _Parts:
    """Everything that works together in one rebalancer."""

    def __init__(
        self,
        config: RebalancerConfiguration,
        options: RebalancerOptions,
        observer: Observer,
        client: KubeClient,
        elector: Elector | None,
        *,
        namespace: str,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        state = observer.reader.state
        self._observer = observer
        self._dry_run = options.dry_run
        self._source = ConfigSource(
            options.config, config, clock=clock, metrics=metrics, mode=options.mode
        )
        self._bell = Bell(clock)
        self._source.listen(lambda _: self._bell.ring(Due.CHANGED))
        state.nodes.listen(self._bell.on_node)
        observer.listen(lambda: self._bell.ring(Due.SAMPLE))
        self._elector = elector
        steering = SteeringRules(
            state,
            self._current,
            clock=clock,
            metrics=metrics,
            resting=lambda: self.daemon.resting(),
            belief=lambda: self.daemon.latest,
            deaf=self._tell_deaf,
        )
        self._recorder = Recorder(
            client,
            program="evenkeel-rebalancer",
            identity=elector.identity if elector is not None else own_identity(),
            settings=EventSettings(),
            clock=clock,
            metrics=metrics,
            rng=random.Random(),
        )
        self._lease = lease = ObjectRef(
            api_version=LEASES.api_version,
            kind=LEASES.kind,
            namespace=namespace,
            name=config.leader_election.name,
        )
        usage_events = UsageEvents(self._recorder, lease, clock=clock)
        self.daemon = Daemon(
            observer=observer,
            snapshot=state.snapshot,
            decider_factory=Decider,
            writer=MigrationWriter(client, metrics),
            config=self._current,
            bell=self._bell,
            clock=clock,
            metrics=metrics,
            steering=steering,
            leads=self._leads,
            dry_run=options.dry_run,
            usage_events=None if options.dry_run else usage_events,
        )
        guard = TemporaryPdbs(client, state, config=self._current, clock=clock, metrics=metrics)
        replacer = BarePods(client, state, clock=clock, metrics=metrics)
        controller = MigrationController(
            client,
            state,
            config=self._current,
            steering=steering,
            guard=guard,
            replacer=replacer,
            recorder=self._recorder,
            clock=clock,
            metrics=metrics,
            rng=random.Random(),
            why_blind=observer.reader.why_not_synced,
            leads=self._leads,
        )
        maintenance = Maintenance(
            client,
            state,
            self._recorder,
            plan=lambda: self.daemon.plan,
            config=self._current,
            clock=clock,
            metrics=metrics,
        )
        aftermath = Aftermath(
            self.daemon.believe,
            client,
            recorder=self._recorder,
            clock=clock,
            metrics=metrics,
            patience_s=config.metric_expiry.seconds,
        )
        self._acting: Sequence[Work] = (
            controller.run,
            guard.run,
            replacer.run,
            maintenance.run,
            aftermath.run,
        )

    async def run(self) -> None:
        """Read for ever; plan and act while leading."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._observer.run())
            group.create_task(self._source.run())
            group.create_task(self._recorder.run())
            await self._observer.reader.wait_synced()
            if self._dry_run:
                await self.daemon.run()
            else:
                self._require_namespace()
                await while_leading(self._elector, [self.daemon.run, *self._acting])

    def why_stuck(self) -> str | None:
        """Say why this process makes no progress; a standby and a cut-off one need not."""
        return self.daemon.progress.why_stuck(self._observer.reader.last_unreachable_s())

    def who_leads(self) -> str:
        """Say in words whether this process leads, or who does."""
        if self._dry_run:
            return "this is a dry run, which plans without leading"
        if self._elector is None:
            return "this process leads, for leaderElection is off"
        if self._elector.is_leader:
            return "this process leads"
        return f"this process stands by; {self._elector.holder or 'no other process'} leads"

    def _tell_deaf(self, words: str) -> None:
        """Tell of an extender that lives but does not hear; a dry run writes no Events."""
        if not self._dry_run:
            self._recorder.record(
                regarding=self._lease,
                type_="Warning",
                reason="ExtenderDeaf",
                note=f"{words[0].upper()}{words[1:]}. Nothing waits for it.",
                action="Observing",
            )

    def _require_namespace(self) -> None:
        """Refuse to wait for a Lease that can never be written."""
        if self._elector is None:
            return
        name = self._elector.namespace
        if name not in self._observer.reader.state.namespaces.records:
            raise StartError(
                f"namespace {name} does not exist, and the Lease of the leader would be there: "
                "name the one that Evenkeel is installed in with --namespace, "
                "or add --dry-run, which plans without a Lease"
            )

    def _current(self) -> RebalancerConfiguration:
        return self._source.current

    def _leads(self) -> bool:
        return not self._dry_run and (self._elector is None or self._elector.is_leader)


def _tell_mode(config: RebalancerConfiguration, options: RebalancerOptions) -> None:
    said_by = "--mode" if options.mode is not None else "configuration"
    log.info("mode", mode=config.mode.value, modes=dict(config.modes), said_by=said_by)


async def _elected(
    config: RebalancerConfiguration,
    options: RebalancerOptions,
    namespace: LeaseNamespace,
    client: KubeClient,
    clock: Clock,
    metrics: Metrics,
) -> Elector | None:
    """Return who takes part in the election for us; none in a dry run, which never leads."""
    wanted = config.leader_election
    if options.dry_run or not wanted.enabled:
        return None
    await refuse_a_second_leader(client, namespace, wanted.name, clock.now())
    return Elector(
        client,
        namespace=namespace.name,
        name=wanted.name,
        identity=own_identity(),
        settings=ElectionSettings(
            lease_duration_s=wanted.lease_duration.seconds,
            renew_deadline_s=wanted.renew_deadline.seconds,
            retry_period_s=wanted.retry_period.seconds,
        ),
        clock=clock,
        metrics=metrics,
        rng=random.Random(),
    )


async def _readings(
    client: KubeClient, namespace: str, options: RebalancerOptions
) -> tuple[Reading, ...]:
    """Return what to read; one plan needs no extenders, a dry run can do without Migrations."""
    leases = replace(lease_reading(namespace), optional=options.dry_run)
    always = READINGS if options.once else (*READINGS, leases)
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
    return (*always, replace(MIGRATION_READING, optional=False))
