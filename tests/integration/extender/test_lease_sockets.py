# SPDX-License-Identifier: Apache-2.0
"""The Lease over a real socket, fed by a real watch of Migrations."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from common.api.contract import SEEN_MIGRATIONS
from common.api.migrations import MigrationSpec
from common.cache.reader import CACHED_KINDS, MIGRATION_KIND, ClusterReader
from common.clock import SYSTEM
from common.config import Duration, Reading
from common.kube.client import connect
from common.kube.identity import own_identity
from common.kube.resources import LEASES, MIGRATIONS, NAMESPACES, NODES, PODS
from common.metrics import Metrics
from common.runtime import Runtime
from extender.callers import Callers
from extender.intents import Intents
from extender.lease import ExtenderLease, LeaseContent
from simulator import build
from simulator.api.catalog import DEFINITIONS
from tests.support.stands.simulated import SimulatedApi, simulated_api
from tests.support.worlds.migrations import Json, definition, manifest_of, spec_of

PATIENCE_S = 30.0


@dataclass
class Replica:
    """The parts of an extender that intents need."""

    api: SimulatedApi
    reader: ClusterReader
    intents: Intents
    extender_lease: ExtenderLease

    def lease(self) -> Json:
        entry = self.api.store.storage.get(LEASES, f"here/{self.extender_lease.name}")
        return {} if entry is None else entry.obj

    def published(self) -> int:
        found = self.lease()
        return int(found["metadata"]["annotations"][SEEN_MIGRATIONS]) if found else 0


@asynccontextmanager
async def replica(api: SimulatedApi) -> AsyncIterator[Replica]:
    metrics = Metrics("test")
    async with connect(kubeconfig=str(api.kubeconfig), clock=SYSTEM) as client:
        readings = [r for r in CACHED_KINDS if r.resource in (NODES, PODS)]
        reader = ClusterReader(
            client,
            reading=Reading(backoff_min=Duration(0.01), backoff_max=Duration(0.1)),
            clock=SYSTEM,
            metrics=metrics,
            kinds=[*readings, MIGRATION_KIND],
        )
        intents = Intents(reader.state.snapshot, clock=SYSTEM, metrics=metrics)
        reader.state.migrations.listen(intents.on_migration)
        reader.state.pods.listen(intents.on_pod)
        watch = reader.reflector_of(MIGRATIONS)
        extender_lease = ExtenderLease(
            client,
            LeaseContent(
                identity=own_identity({"POD_NAME": "host"}),
                seen_version=lambda: watch.resource_version,
                callers=Callers(SYSTEM),
                load_settings_hash="abc",
            ),
            namespace="here",
            runtime=Runtime(SYSTEM, metrics, random.Random(1)),
        )
        tasks = [asyncio.create_task(job()) for job in (reader.run, extender_lease.run)]
        try:
            await reader.wait_synced()
            intents.begin()
            yield Replica(api, reader, intents, extender_lease)
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
        await until(lambda: mine.published() >= version)
        assert [row.migration for row in mine.intents.rows()] == [made["metadata"]["name"]]


async def test_every_replica_has_a_lease_of_its_own_and_takes_it_along(tmp_path: Path) -> None:
    async with simulated(tmp_path) as api:
        async with replica(api) as one, replica(api) as two:
            await until(lambda: one.lease() and two.lease())
            assert one.extender_lease.name != two.extender_lease.name
        assert (one.lease(), two.lease()) == ({}, {})


async def test_the_lease_survives_faults(tmp_path: Path) -> None:
    async with simulated(tmp_path) as api, replica(api) as mine:
        await until(mine.lease)
        fault = api.faults.add(verbs=["patch"], resources=["leases"], status=500)
        made = api.store.create(MIGRATIONS, manifest_of(_lasting()))
        version = int(made["metadata"]["resourceVersion"])
        await until(lambda: fault.hits >= 2)
        assert mine.published() < version
        api.faults.remove(fault)
        await until(lambda: mine.published() >= version)


def _lasting() -> MigrationSpec:
    return spec_of(deadline=datetime.fromtimestamp(SYSTEM.now() + 300, UTC))
