"""The Lease over a real socket, fed by a real watch of Migrations."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from common.clock import SYSTEM
from common.cluster.migrations import MigrationSpec
from common.cluster.reader import MIGRATION_READING, READINGS, ClusterReader
from common.contract import SEEN_MIGRATIONS
from common.kube.client import connect
from common.kube.own import own_identity
from common.kube.reflector import ReflectorSettings
from common.kube.resources import LEASES, MIGRATIONS, NAMESPACES, NODES, PODS
from common.metrics import Metrics
from extender.guides import Guides
from extender.heartbeat import Heartbeat
from extender.intents import Intents
from simulator import build
from simulator.api.catalog import DEFINITIONS
from tests.support.migrations import Json, definition, manifest_of, spec_of
from tests.support.simulated_stand import SimulatedApi, simulated_api

PATIENCE_S = 30.0


@dataclass
class Replica:
    """The parts of an extender that intents need."""

    api: SimulatedApi
    reader: ClusterReader
    intents: Intents
    beat: Heartbeat

    def lease(self) -> Json:
        entry = self.api.store.storage.get(LEASES, f"here/{self.beat.name}")
        return {} if entry is None else entry.obj

    def told(self) -> int:
        found = self.lease()
        return int(found["metadata"]["annotations"][SEEN_MIGRATIONS]) if found else 0


@asynccontextmanager
async def replica(api: SimulatedApi) -> AsyncIterator[Replica]:
    metrics = Metrics("test")
    async with connect(kubeconfig=str(api.kubeconfig), clock=SYSTEM) as client:
        readings = [r for r in READINGS if r.resource in (NODES, PODS)]
        reader = ClusterReader(
            client,
            settings=ReflectorSettings(backoff_min_s=0.01, backoff_max_s=0.1),
            clock=SYSTEM,
            metrics=metrics,
            readings=[*readings, MIGRATION_READING],
        )
        intents = Intents(reader.state.snapshot, clock=SYSTEM, metrics=metrics)
        reader.state.migrations.listen(intents.on_migration)
        reader.state.pods.listen(intents.on_pod)
        watch = reader.reflector_of(MIGRATIONS)
        beat = Heartbeat(
            client,
            namespace="here",
            identity=own_identity({"POD_NAME": "host"}),
            seen=lambda: watch.resource_version,
            guides=Guides(SYSTEM),
            settings_hash="abc",
            clock=SYSTEM,
            metrics=metrics,
            rng=random.Random(1),
        )
        tasks = [asyncio.create_task(job()) for job in (reader.run, beat.run)]
        try:
            await reader.wait_synced()
            intents.begin()
            yield Replica(api, reader, intents, beat)
        finally:
            for task in reversed(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def simulated(folder: Path) -> AsyncIterator[SimulatedApi]:
    async with simulated_api(folder) as api:
        api.store.create(NAMESPACES, build.namespace("here"))
        api.store.create(DEFINITIONS, definition())
        yield api


async def until(question: Callable[[], object]) -> None:
    """Ask until the answer is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not question():
            await SYSTEM.sleep(0.01)


async def test_a_migration_is_acknowledged_once_it_is_in_the_index(tmp_path: Path) -> None:
    async with simulated(tmp_path) as api, replica(api) as mine:
        await until(mine.lease)
        made = api.store.create(MIGRATIONS, manifest_of(_lasting()))
        version = int(made["metadata"]["resourceVersion"])
        await until(lambda: mine.told() >= version)
        assert [row.migration for row in mine.intents.rows()] == [made["metadata"]["name"]]


async def test_every_replica_has_a_lease_of_its_own_and_takes_it_along(tmp_path: Path) -> None:
    async with simulated(tmp_path) as api:
        async with replica(api) as one, replica(api) as two:
            await until(lambda: one.lease() and two.lease())
            assert one.beat.name != two.beat.name
        assert (one.lease(), two.lease()) == ({}, {})


async def test_the_heartbeat_survives_faults(tmp_path: Path) -> None:
    async with simulated(tmp_path) as api, replica(api) as mine:
        await until(mine.lease)
        fault = api.faults.add(verbs=["patch"], resources=["leases"], status=500)
        made = api.store.create(MIGRATIONS, manifest_of(_lasting()))
        version = int(made["metadata"]["resourceVersion"])
        await until(lambda: fault.hits >= 2)
        assert mine.told() < version
        api.faults.remove(fault)
        await until(lambda: mine.told() >= version)


def _lasting() -> MigrationSpec:
    return spec_of(deadline=datetime.fromtimestamp(SYSTEM.now() + 300, UTC))
