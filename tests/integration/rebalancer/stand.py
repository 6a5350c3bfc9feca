# SPDX-License-Identifier: Apache-2.0
"""A rebalancer's loop beside a simulated cluster, put together as the program does it.

Only the migration controller is missing: what begins here stays as it was written.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from common.cache.reader import CACHED_KINDS, MIGRATION_KIND, lease_kind
from common.clock import SYSTEM
from common.config import Duration, LeaderElection, RebalancerConfiguration
from common.kube.client import KubeClient, connect
from common.kube.leader import Elector
from common.kube.resources import MIGRATIONS
from common.metrics import Metrics
from common.observer import Observer
from rebalancer.leading import Leadership
from rebalancer.loop import LoopParts, RebalanceLoop
from rebalancer.store import MigrationStore
from rebalancer.triggers import Trigger, Triggers
from rebalancer.verification import MoveVerifier
from simulator.cluster import SimulatedCluster
from tests.support.worlds.guards import Notes
from tests.support.worlds.loop import OpenPolicy, no_usage_events

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
        readings = (*CACHED_KINDS, MIGRATION_KIND, lease_kind(""))
        self.observer = Observer(client, config, clock=SYSTEM, metrics=self.metrics, kinds=readings)
        state = self.observer.reader.state
        self.elector = Elector(
            lease_client,
            LeaderElection(retry_period=Duration(0.1)),
            namespace="default",
            identity=identity,
            clock=SYSTEM,
            metrics=self.metrics,
            rng=random.Random(identity),
        )
        self.triggers = Triggers(SYSTEM)
        state.nodes.listen(self.triggers.on_node)
        self.observer.listen(lambda: self.triggers.fire(Trigger.SAMPLE))
        self.leadership = Leadership(self.elector, dry_run=dry_run)
        self.store = MigrationStore(client, state, clock=SYSTEM, metrics=self.metrics)
        parts = LoopParts(
            observer=self.observer,
            store=self.store,
            policy=OpenPolicy(),
            triggers=self.triggers,
            leadership=self.leadership,
            usage_events=no_usage_events(SYSTEM),
        )
        self.loop = RebalanceLoop(parts, lambda: config, clock=SYSTEM, metrics=self.metrics)
        self.verifier = MoveVerifier(
            self.observer,
            self.store,
            recorder=self.events,
            clock=SYSTEM,
            metrics=self.metrics,
            patience_s=60.0,
            every_s=0.05,
        )

    async def run(self) -> None:
        """Read forever; plan while leading."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.observer.run())
            await self.observer.reader.wait_synced()
            await self.observer.wait_sampled()
            await Leadership(self.elector).run([self.loop.run, self.verifier.run])

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
