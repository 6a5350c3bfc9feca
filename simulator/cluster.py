"""A whole simulated cluster: the API on a port, and everything that lives behind it.

    async with simulate(Settings(seed=7, speed=10), clock=SYSTEM) as cluster:
        cluster.store.create(NODES, build.node("node-1"))
        … cluster.server.url …

Objects may be created before anything runs: `build` is called first, and what it creates
settles (controllers make their pods) before the scheduler and the clock take over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from common.clock import Clock
from common.kube.resources import NODES, PODS
from simulator.api import (
    ApiServer,
    Faults,
    GarbageCollector,
    Json,
    NamespaceController,
    Store,
    write_kubeconfig,
)
from simulator.build import Manifest
from simulator.control import PREFIX, Control
from simulator.controllers.deployments import DeploymentController
from simulator.controllers.disruption import DisruptionController
from simulator.controllers.node_lifecycle import NodeLifecycleController
from simulator.controllers.replica_sets import ReplicaSetController
from simulator.controllers.stateful_sets import StatefulSetController
from simulator.dice import Dice
from simulator.faults import ClusterFaults
from simulator.machinery import Machinery
from simulator.mirror import Mirror
from simulator.nodes.fleet import Delays, Fleet
from simulator.nodes.metrics import MetricsServer, Pipeline
from simulator.scheduler import Scheduler, SchedulerConfig

_ROUNDS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What makes one simulated cluster differ from another."""

    seed: int = 0
    speed: float = 1.0
    host: str = "127.0.0.1"
    port: int = 0
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    delays: Delays = field(default_factory=Delays)
    pipeline: Pipeline = field(default_factory=Pipeline)
    metrics: bool = True
    """Serve metrics.k8s.io."""


class SimulatedCluster:
    """All parts of one cluster."""

    def __init__(self, settings: Settings, *, clock: Clock) -> None:
        self.settings = settings
        self.life: asyncio.Task[None] | None = None
        """Runs as long as the cluster lives; whoever only waits may await it."""
        dice = Dice(settings.seed)
        self.store = Store(clock=clock, rng=dice.stream("store"))
        self.machinery = Machinery.of(self.store, seed=settings.seed, speed=settings.speed)
        self.mirror = Mirror(self.store)
        self.fleet = Fleet(self.machinery, self.mirror, delays=settings.delays)
        self.metrics = MetricsServer(
            self.machinery, self.fleet, self.mirror, pipeline=settings.pipeline
        )
        self.deployments = DeploymentController(self.machinery)
        self.replica_sets = ReplicaSetController(self.machinery)
        self.stateful_sets = StatefulSetController(self.machinery)
        self.disruption = DisruptionController(self.store, clock=clock)
        self.nodes = NodeLifecycleController(self.machinery, self.fleet, on_node=self.fleet.pods_on)
        self.garbage = GarbageCollector(self.store, clock=clock)
        self.namespaces = NamespaceController(self.store, clock=clock)
        self.scheduler = Scheduler(self.machinery, self.mirror, settings.scheduler)
        api_faults = Faults(clock=clock, rng=dice.stream("faults"))
        self.server = ApiServer(
            self.store,
            host=settings.host,
            port=settings.port,
            faults=api_faults,
            metrics=self.metrics if settings.metrics else None,
        )
        self.faults = ClusterFaults(api_faults, self.fleet, self.metrics)
        self.server.mount(PREFIX, Control(self.faults).handle)

    def create(self, manifests: Iterable[Manifest]) -> list[Json]:
        """Create objects of any built-in or defined kinds."""
        made = []
        for manifest in manifests:
            kind = self.store.kinds.find(manifest["apiVersion"], manifest["kind"])
            if kind is None:
                raise ValueError(f"{manifest['kind']} of {manifest['apiVersion']} is not served")
            made.append(self.store.create(kind.resource, manifest))
        return made

    def settle(self) -> None:
        """Let controllers and kubelets do whatever they can do without time passing."""
        for _ in range(_ROUNDS):
            before = self.store.resource_version
            self.fleet.work_off()
            self.nodes.work_off()
            self.deployments.work_off()
            self.replica_sets.work_off()
            self.stateful_sets.work_off()
            self.disruption.work_off()
            self.garbage.collect()
            if self.store.resource_version == before:
                return

    def write_kubeconfig(self, path: Path) -> Path:
        """Write how to reach this cluster."""
        return write_kubeconfig(path, self.server.url)

    def pods(self, namespace: str | None = None) -> list[Json]:
        """Return all pods."""
        return self.store.list(PODS, namespace)

    def node_names(self) -> list[str]:
        """Return the names of all nodes."""
        return sorted(node["metadata"]["name"] for node in self.store.list(NODES))

    async def run(self) -> None:
        """Live for ever."""
        self.metrics.start()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.machinery.agenda.run())
            tasks.create_task(self.fleet.run())
            tasks.create_task(self.nodes.run())
            tasks.create_task(self.deployments.run())
            tasks.create_task(self.replica_sets.run())
            tasks.create_task(self.stateful_sets.run())
            tasks.create_task(self.disruption.run())
            tasks.create_task(self.garbage.run())
            tasks.create_task(self.namespaces.run())
            tasks.create_task(self.scheduler.run())


@asynccontextmanager
async def simulate(
    settings: Settings,
    *,
    clock: Clock,
    build: Callable[[SimulatedCluster], None] | None = None,
) -> AsyncIterator[SimulatedCluster]:
    """Run a cluster for as long as the block lasts; `build` fills it before it lives."""
    cluster = SimulatedCluster(settings, clock=clock)
    if build is not None:
        build(cluster)
        cluster.settle()
    async with cluster.server:
        life = cluster.life = asyncio.create_task(cluster.run())
        try:
            yield cluster
        finally:
            life.cancel()
            cluster.mirror.close()
            # Whatever it died of, if it did, is told here.
            with suppress(asyncio.CancelledError):
                await life
