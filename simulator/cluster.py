# SPDX-License-Identifier: Apache-2.0
"""A whole simulated cluster: the API on a port, and all components behind it.

    async with simulate(Settings(seed=7, speed=10), clock=SYSTEM) as cluster:
        cluster.store.create(NODES, build.node("node-1"))
        … cluster.server.url …

Objects may be created before anything runs: `build` is called first, and what it creates
settles (controllers create their pods) before the scheduler and the clock start.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from common.clock import Clock
from common.kube.resources import NODES, PODS
from simulator.api import (
    ApiServer,
    Faults,
    GarbageCollector,
    Json,
    NamespaceController,
    Store,
)
from simulator.build import Manifest
from simulator.cache import ClusterCache
from simulator.context import Context
from simulator.control import PREFIX, Control
from simulator.controllers.deployments import DeploymentController
from simulator.controllers.disruption import DisruptionController
from simulator.controllers.node_lifecycle import NodeLifecycleController
from simulator.controllers.replica_sets import ReplicaSetController
from simulator.controllers.stateful_sets import StatefulSetController
from simulator.faults import ClusterFaults
from simulator.nodes.fleet import Delays, Fleet
from simulator.nodes.metrics import MetricsServer, Pipeline
from simulator.rng import Rng
from simulator.scheduler import Scheduler, SchedulerConfig

_NAME: Final = "evenkeel-simulator"
_ROUNDS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The parameters of a simulated cluster."""

    seed: int = 0
    speed: float = 1.0
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
        """Runs while the cluster runs; awaiting it waits for a failure."""
        rng = Rng(settings.seed)
        self.store = Store(clock=clock, rng=rng.stream("store"))
        self.context = Context.of(self.store, seed=settings.seed, speed=settings.speed)
        self.cache = ClusterCache(self.store)
        self.fleet = Fleet(self.context, self.cache, delays=settings.delays)
        self.metrics = MetricsServer(
            self.context, self.fleet, self.cache, pipeline=settings.pipeline
        )
        self.deployments = DeploymentController(self.context)
        self.replica_sets = ReplicaSetController(self.context)
        self.stateful_sets = StatefulSetController(self.context)
        self.disruption = DisruptionController(self.store, clock=clock)
        self.nodes = NodeLifecycleController(self.context, self.fleet)
        self.garbage = GarbageCollector(self.store, clock=clock)
        self.namespaces = NamespaceController(self.store, clock=clock)
        self.scheduler = Scheduler(self.context, self.cache, settings.scheduler)
        api_faults = Faults(clock=clock, rng=rng.stream("faults"))
        self.server = ApiServer(
            self.store,
            port=settings.port,
            faults=api_faults,
            metrics=self.metrics if settings.metrics else None,
        )
        self.faults = ClusterFaults(api_faults, self.fleet, self.metrics)
        self.server.mount(PREFIX, Control(self.faults).handle)

    def create(self, manifests: Iterable[Manifest]) -> list[Json]:
        """Create objects of any built-in kind or CRD."""
        made = []
        for manifest in manifests:
            kind = self.store.kinds.find(manifest["apiVersion"], manifest["kind"])
            if kind is None:
                raise ValueError(f"{manifest['kind']} of {manifest['apiVersion']} is not served")
            made.append(self.store.create(kind.resource, manifest))
        return made

    def settle(self) -> None:
        """Let controllers and kubelets do what they can without time passing."""
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
        """Write a kubeconfig for this cluster; return its path."""
        return write_kubeconfig(path, self.server.url)

    def pods(self, namespace: str | None = None) -> list[Json]:
        """Return all pods."""
        return self.store.list(PODS, namespace)

    def node_names(self) -> list[str]:
        """Return the names of all nodes."""
        return sorted(node["metadata"]["name"] for node in self.store.list(NODES))

    async def run(self) -> None:
        """Run forever."""
        self.metrics.start()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.context.timers.run())
            tasks.create_task(self.fleet.run())
            tasks.create_task(self.nodes.run())
            tasks.create_task(self.deployments.run())
            tasks.create_task(self.replica_sets.run())
            tasks.create_task(self.stateful_sets.run())
            tasks.create_task(self.disruption.run())
            tasks.create_task(self.garbage.run())
            tasks.create_task(self.namespaces.run())
            tasks.create_task(self.scheduler.run())


def write_kubeconfig(path: Path, url: str) -> Path:
    """Write a kubeconfig for a simulated API, which needs no credentials; return its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": {"server": url}}],
        "users": [{"name": _NAME, "user": {}}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME}}],
        "current-context": _NAME,
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


@asynccontextmanager
async def simulate(
    settings: Settings,
    *,
    clock: Clock,
    build: Callable[[SimulatedCluster], None] | None = None,
) -> AsyncIterator[SimulatedCluster]:
    """Run a cluster while the block lasts; `build` fills it before it runs."""
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
            cluster.cache.close()
            # If the cluster failed, its error is raised here.
            with suppress(asyncio.CancelledError):
                await life
