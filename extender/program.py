"""The extender put together: what is read, who decides, who is told.

Watches keep nodes, pods and Migrations current; a board of believed loads is made anew in a
thread whenever something changed, at most once a second; requests are answered from
what is there. Nothing that fails here stops the answers: without a cluster they are neutral.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from common.clock import Clock
from common.cluster.reader import MIGRATION_READING, READINGS
from common.cluster.records import PodRecord, PodUid
from common.config import ExtenderConfiguration, load_settings_hash
from common.connecting import connected
from common.health import Health
from common.http_limits import refusals
from common.http_server import address_of, listen, serving
from common.kube.client import KubeClient
from common.kube.own import lease_namespace, own_identity
from common.kube.resources import MIGRATIONS, NODES, PODS
from common.metrics import Metrics
from common.observer import Observer
from common.program import Announce, FlagError, Options
from extender.advisor import Advisor
from extender.app import make_app, server_options
from extender.board_keeper import BoardKeeper
from extender.debug import nodes_page
from extender.guided import Guided
from extender.guides import Guides
from extender.heartbeat import Heartbeat
from extender.intents import Intents
from extender.right_of_way import RightOfWay
from extender.tls import ServerTls

READ: Final = (
    *(reading for reading in READINGS if reading.resource in (NODES, PODS)),
    MIGRATION_READING,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderOptions(Options):
    """The flags of this program beside everybody's."""

    port: int = 0
    health_bind_address: str = ""
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    client_ca_file: str = ""


async def run(
    config: ExtenderConfiguration,
    options: ExtenderOptions,
    *,
    clock: Clock,
    announce: Announce,
) -> None:
    """Answer kube-scheduler until cancelled."""
    tls = _tls(options, clock)
    metrics = Metrics("extender")
    _count_tasks(metrics)
    health = Health(metrics)
    async with AsyncExitStack() as stack:
        client, own_client = [
            await stack.enter_async_context(connected(config, options, clock=clock))
            for _ in range(2)
        ]
        way = RightOfWay(clock)
        parts = _Parts.of(
            client,
            own_client,
            config,
            namespace=lease_namespace(options.namespace, config.lease_namespace).name,
            clock=clock,
            metrics=metrics,
            breathe=way.give,
        )
        parts.show(health)
        host = options.health_bind_address or options.bind_address
        health_address = await stack.enter_async_context(health.serving(host, options.health_port))
        listener = await listen(options.bind_address, options.port)
        address = address_of(listener)
        app = make_app(parts.verdicts, parts.lookup, metrics, clock=clock, right_of_way=way)
        options_of_port = server_options(tls) | {"refused": refusals(metrics)}
        await stack.enter_async_context(serving(app, listener, **options_of_port))
        announce(extender=address, health=health_address)
        async with asyncio.TaskGroup() as group:
            group.create_task(_drain_when_cancelled(health))
            group.create_task(parts.observer.run())
            group.create_task(parts.keep_board())
            group.create_task(parts.begin())
            group.create_task(parts.heartbeat.run())
            if tls is not None:
                group.create_task(tls.run())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Everything that works together in one extender."""

    observer: Observer
    intents: Intents
    advisor: Advisor
    board_keeper: BoardKeeper
    verdicts: Guided
    heartbeat: Heartbeat

    @classmethod
    def of(
        cls,
        client: KubeClient,
        own_client: KubeClient,
        config: ExtenderConfiguration,
        *,
        namespace: str,
        clock: Clock,
        metrics: Metrics,
        breathe: Callable[[], None],
    ) -> _Parts:
        observer = Observer(
            client,
            config,
            clock=clock,
            metrics=metrics,
            readings=READ,
            breathe=breathe,
            requests_stand_in=False,
        )
        reader, state = observer.reader, observer.reader.state
        skew_s = config.clock_skew.seconds
        intents = Intents(state.snapshot, clock=clock, metrics=metrics, skew_s=skew_s)
        state.migrations.listen(intents.on_migration)
        state.pods.listen(intents.on_pod)
        nodes, pods = reader.reflector_of(NODES), reader.reflector_of(PODS)
        advisor = Advisor(
            state,
            intents,
            config=config,
            clock=clock,
            metrics=metrics,
            ready=lambda: nodes.synced and pods.synced,
        )
        guides = Guides(clock)
        migrations = reader.reflector_of(MIGRATIONS)
        heartbeat = Heartbeat(
            own_client,
            namespace=namespace,
            identity=own_identity(),
            seen=lambda: migrations.resource_version if intents.live else None,
            guides=guides,
            settings_hash=load_settings_hash(config),
            clock=clock,
            metrics=metrics,
            rng=random.Random(),
        )
        return cls(
            observer=observer,
            intents=intents,
            advisor=advisor,
            board_keeper=BoardKeeper(
                observer, advisor, intents.predecessors, clock=clock, metrics=metrics
            ),
            verdicts=Guided(advisor, guides, lambda: advisor.board),
            heartbeat=heartbeat,
        )

    def show(self, health: Health) -> None:
        """Say on the health port what is missing, and what is believed."""
        health.ready("cluster", self.observer.reader.why_not_synced)
        health.note("migrations", self._why_unguided)
        health.ready("board", self.board_keeper.why_not_ready)
        health.live("board", self.board_keeper.why_stuck)
        health.route("/debug/nodes", nodes_page(self.advisor.explain, self.intents.rows))

    def _why_unguided(self) -> str | None:
        why = self.observer.reader.why_not_steered()
        return why and f"moved pods are not guided, all else works: {why}"

    def lookup(self, uid: PodUid) -> PodRecord | None:
        """Return a pod that the watch has told us of."""
        return self.observer.reader.state.pods.by_uid.get(uid)

    async def begin(self) -> None:
        """Let the intents count once all that they rest on was listed."""
        for reflector in self.observer.reader.reflectors:
            await reflector.wait_synced()
        self.intents.begin()

    async def keep_board(self) -> None:
        """Keep the board in step with the belief, once there is one."""
        await self.observer.reader.wait_synced()
        await self.board_keeper.run()


async def _drain_when_cancelled(health: Health) -> None:
    """Be not ready as soon as the end begins: deleting the Lease may take a while."""
    try:
        await asyncio.Event().wait()
    finally:
        health.drain()


def _count_tasks(metrics: Metrics) -> None:
    loop = asyncio.get_running_loop()
    gauge = metrics.gauge("event_loop_tasks", "Tasks that have not ended.")
    gauge.set_function(lambda: float(len(asyncio.all_tasks(loop))))


def _tls(options: ExtenderOptions, clock: Clock) -> ServerTls | None:
    """Return the certificates to serve with; raise `FlagError` for what would be unsafe."""
    cert, key, clients = options.tls_cert_file, options.tls_private_key_file, options.client_ca_file
    if bool(cert) != bool(key) or (clients and not cert):
        raise FlagError("TLS needs both --tls-cert-file and --tls-private-key-file")
    if not clients and not _is_loopback(options.bind_address):
        raise FlagError(
            f"--bind-address {options.bind_address} can be reached from other hosts: "
            "give --tls-cert-file, --tls-private-key-file and --client-ca-file too"
        )
    return ServerTls(cert, key, clients, clock=clock) if cert else None


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
