"""A rebalancer's daemon beside a simulated cluster, put together as the program does it.

Only the migration controller is missing: what begins here stays as it was written.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from common.clock import SYSTEM
from common.cluster.reader import MIGRATION_READING, READINGS, lease_reading
from common.config import RebalancerConfiguration
from common.kube.client import KubeClient, connect
from common.kube.leader import ElectionSettings, Elector
from common.kube.resources import MIGRATIONS
from common.metrics import Metrics
from common.observer import Observer
from rebalancer.aftermath import Aftermath
from rebalancer.daemon import Daemon
from rebalancer.deciding import Decider
from rebalancer.leading import while_leading
from rebalancer.waking import Bell, Due
from rebalancer.writing import MigrationWriter
from simulator.cluster import SimulatedCluster
from tests.support.guard_world import Notes

Json = dict[str, Any]  # Any: what the API server keeps

# Brisk for tests; what is decided does not depend on it.
QUICK: Json = {
    "usageSource": "metrics-server",
    "usageInterval": "50ms",
    "mode": "act",
    "reschedulingInterval": "1h",
    "revalidateAfter": "50ms",
    "revalidateWithin": "30s",
    "observations": 1,
    "minPodAge": "0s",
    "smoothing": "100ms",
    "reading": {"backoffMin": "10ms", "backoffMax": "50ms"},
    "clientConnection": {"qps": 1000, "burst": 1000},
}


class Rebalancer:
    """The parts of one rebalancer."""

    def __init__(
        self,
        client: KubeClient,
        lease_client: KubeClient,
        config: RebalancerConfiguration,
        identity: str,
        *,
        dry_run: bool,
    ) -> None:
        self.metrics = Metrics("rebalancer")
        self.events = Notes()
        readings = (*READINGS, MIGRATION_READING, lease_reading(""))
        self.observer = Observer(
            client, config, clock=SYSTEM, metrics=self.metrics, readings=readings
        )
        state = self.observer.reader.state
        self.elector = Elector(
            lease_client,
            namespace="default",
            name="evenkeel-rebalancer",
            identity=identity,
            settings=ElectionSettings(
                lease_duration_s=15.0, renew_deadline_s=10.0, retry_period_s=0.1
            ),
            clock=SYSTEM,
            metrics=self.metrics,
            rng=random.Random(identity),
        )
        self.bell = Bell(SYSTEM)
        state.nodes.listen(self.bell.on_node)
        self.observer.listen(lambda: self.bell.ring(Due.SAMPLE))
        self.daemon = Daemon(
            observer=self.observer,
            snapshot=state.snapshot,
            decider_factory=Decider,
            writer=MigrationWriter(client, self.metrics),
            config=lambda: config,
            bell=self.bell,
            clock=SYSTEM,
            metrics=self.metrics,
            leads=lambda: self.elector.is_leader,
            dry_run=dry_run,
        )
        self.aftermath = Aftermath(
            self.daemon.believe,
            client,
            recorder=self.events,
            clock=SYSTEM,
            metrics=self.metrics,
            patience_s=60.0,
            every_s=0.05,
        )

    async def run(self) -> None:
        """Read for ever; plan while leading."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.observer.run())
            await self.observer.reader.wait_synced()
            await self.observer.wait_sampled()
            await while_leading(self.elector, [self.daemon.run, self.aftermath.run])

    def total(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"evenkeel_{name}", labels) or 0.0


@asynccontextmanager
async def rebalancing(
    cluster: SimulatedCluster,
    folder: Path,
    *,
    identity: str = "one",
    dry_run: bool = False,
    **settings: Any,
) -> AsyncIterator[Rebalancer]:
    """Run a rebalancer until the block ends."""
    config = RebalancerConfiguration.model_validate({**QUICK, **settings})
    kubeconfig = str(cluster.write_kubeconfig(folder / f"{identity}.kubeconfig"))
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                connect(kubeconfig=kubeconfig, qps=1000, burst=1000, clock=SYSTEM)
            )
            for _ in range(2)
        ]
        parts = Rebalancer(clients[0], clients[1], config, identity, dry_run=dry_run)
        work = asyncio.create_task(parts.run())
        try:
            yield parts
        finally:
            work.cancel()
            [end] = await asyncio.gather(work, return_exceptions=True)
            assert isinstance(end, asyncio.CancelledError), end


def migrations(cluster: SimulatedCluster) -> list[Json]:
    """Return all Migrations, the oldest first."""
    found = cluster.store.list(MIGRATIONS)
    return sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))
