# SPDX-License-Identifier: Apache-2.0
"""Assembles the extender and runs it.

Watches keep nodes, pods and Migrations current; a thread rebuilds the board of believed loads
whenever something changed, at most once a second; requests are answered from what is known.
No failure here stops the answers: without a cluster they are neutral.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from common.cache.reader import CACHED_KINDS, MIGRATION_KIND
from common.cli import Announce, FlagError, Options, connected
from common.clock import Clock
from common.cluster.records import PodRecord, PodUid
from common.config import ExtenderConfiguration, load_settings_hash
from common.health import Health
from common.http_limits import refusals
from common.http_server import address_of, listen, serving
from common.kube.client import KubeClient
from common.kube.identity import lease_namespace, own_identity
from common.kube.resources import MIGRATIONS, NODES, PODS
from common.metrics import Metrics
from common.observer import Observer
from common.runtime import Runtime
from extender.advisor import Advisor
from extender.board_keeper import BoardKeeper
from extender.callers import CallerRecorder, Callers
from extender.debug import nodes_page
from extender.intents import Intents
from extender.lease import ExtenderLease, LeaseContent
from extender.request_priority import RequestPriority
from extender.scoring import NameIndex
from extender.service import make_app, server_options
from extender.tls import ServerTls

CACHED: Final = (
    *(kind for kind in CACHED_KINDS if kind.resource in (NODES, PODS)),
    MIGRATION_KIND,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderOptions(Options):
    """The flags of this program, in addition to the common ones."""

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
    """Answer kube-scheduler until canceled."""
    tls = _tls(options, clock)
    metrics = Metrics("extender")
    _count_tasks(metrics)
    health = Health(metrics)
    async with AsyncExitStack() as stack:
        client, own_client = [
            await stack.enter_async_context(connected(config, options, clock=clock))
            for _ in range(2)
        ]
        request_priority = RequestPriority(clock)
        parts = _Parts.of(
            client,
            own_client,
            config,
            namespace=lease_namespace(options.namespace, config.lease_namespace).name,
            clock=clock,
            metrics=metrics,
            checkpoint=request_priority.yield_to_requests,
        )
        parts.register(health)
        host = options.health_bind_address or options.bind_address
        health_address = await stack.enter_async_context(health.serving(host, options.health_port))
        listener = await listen(options.bind_address, options.port)
        address = address_of(listener)
        app = make_app(
            parts.policy,
            parts.lookup,
            metrics,
            clock=clock,
            request_priority=request_priority,
            known_names=parts.known_names,
        )
        port_options = server_options(tls) | {"refused": refusals(metrics)}
        await stack.enter_async_context(serving(app, listener, **port_options))
        announce(extender=address, health=health_address)
        async with asyncio.TaskGroup() as group:
            group.create_task(_drain_when_canceled(health))
            group.create_task(parts.observer.run())
            group.create_task(parts.keep_board())
            group.create_task(parts.start_intents())
            group.create_task(parts.lease.run())
            if tls is not None:
                group.create_task(tls.run())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The parts of one extender."""

    observer: Observer
    intents: Intents
    advisor: Advisor
    board_keeper: BoardKeeper
    policy: CallerRecorder
    lease: ExtenderLease

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
        checkpoint: Callable[[], None],
    ) -> _Parts:
        observer = Observer(
            client,
            config,
            clock=clock,
            metrics=metrics,
            kinds=CACHED,
            checkpoint=checkpoint,
            requests_stand_in=False,
        )
        reader, state = observer.reader, observer.reader.state
        skew_s = config.clock_skew.seconds
        migrations = reader.reflector_of(MIGRATIONS)
        intents = Intents(
            state.snapshot,
            clock=clock,
            metrics=metrics,
            skew_s=skew_s,
            absent=lambda: migrations.absent,
        )
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
        callers = Callers(clock)
        content = LeaseContent(
            identity=own_identity(),
            seen_version=lambda: migrations.resource_version if intents.live else None,
            callers=callers,
            load_settings_hash=load_settings_hash(config),
        )
        return cls(
            observer=observer,
            intents=intents,
            advisor=advisor,
            board_keeper=BoardKeeper(
                advisor,
                lambda: observer.look(intents.predecessors()),
                clock=clock,
                metrics=metrics,
            ),
            policy=CallerRecorder(advisor, callers, lambda: advisor.board),
            lease=ExtenderLease(
                own_client,
                content,
                namespace=namespace,
                runtime=Runtime(clock, metrics),
            ),
        )

    def register(self, health: Health) -> None:
        """Add the checks and the page of the extender to the health port."""
        health.ready("cluster", self.observer.reader.why_not_synced)
        health.note("migrations", self._why_no_intents)
        health.ready("board", self.board_keeper.why_not_ready)
        health.live("board", self.board_keeper.why_stuck)
        health.route("/debug/nodes", nodes_page(self.advisor.explain, self.intents.rows))

    def _why_no_intents(self) -> str | None:
        why = self.observer.reader.why_not_steered()
        return why and f"moved pods are not directed to their targets, everything else works: {why}"

    def lookup(self, uid: PodUid) -> PodRecord | None:
        """Return a pod of the watch cache."""
        return self.observer.reader.state.pods.by_uid.get(uid)

    def known_names(self) -> NameIndex | None:
        """Return the nodes that requests are answered for; None before they are known."""
        return None if self.advisor.board is None else self.advisor.board.index

    async def start_intents(self) -> None:
        """Start the intents once everything they depend on is listed."""
        for reflector in self.observer.reader.reflectors:
            await reflector.wait_synced()
        self.intents.begin()

    async def keep_board(self) -> None:
        """Keep the board up to date once the cluster is known."""
        await self.observer.reader.wait_synced()
        await self.board_keeper.run()


async def _drain_when_canceled(health: Health) -> None:
    """Fail the readiness probe as soon as shutdown begins: deleting the Lease takes time."""
    try:
        await asyncio.Event().wait()
    finally:
        health.drain()


def _count_tasks(metrics: Metrics) -> None:
    loop = asyncio.get_running_loop()
    gauge = metrics.gauge("event_loop_tasks", "asyncio tasks that have not ended.")
    gauge.set_function(lambda: float(len(asyncio.all_tasks(loop))))


def _tls(options: ExtenderOptions, clock: Clock) -> ServerTls | None:
    """Return the certificates to serve with; raise `FlagError` if that would be unsafe."""
    cert, key, clients = options.tls_cert_file, options.tls_private_key_file, options.client_ca_file
    if bool(cert) != bool(key) or (clients and not cert):
        raise FlagError("TLS requires both --tls-cert-file and --tls-private-key-file")
    if not clients and not _is_loopback(options.bind_address):
        raise FlagError(
            f"--bind-address {options.bind_address} is reachable from other hosts: "
            "--tls-cert-file, --tls-private-key-file and --client-ca-file are required"
        )
    return ServerTls(cert, key, clients, clock=clock) if cert else None


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
