# SPDX-License-Identifier: Apache-2.0
"""A simulated cluster that changes all the time.

Pods are moved by Migrations, most of which succeed, some are withdrawn and some expire;
workloads scale up and down; nodes enter and leave maintenance; watches break; and for a part of
every minute nothing is measured. The total size stays the same, so anything that grows in a
client is its own.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import yaml

from common.api.contract import MAINTENANCE_LABEL, SEEN_MIGRATIONS
from common.api.migrations import (
    Amounts,
    ControllerRef,
    MigrationSpec,
    Phase,
    PodRef,
    new_migration,
)
from common.clock import SYSTEM
from common.kube.resources import LEASES, MIGRATIONS, NODES, REPLICASETS
from simulator import build
from simulator.api import Json
from simulator.api.errors import Refusal
from simulator.cluster import Settings, SimulatedCluster, simulate
from simulator.faults import DropWatches, MetricsUnavailable
from simulator.scheduler import read_config
from simulator.scheduler.extenders import extenders_of

_ROOT: Final = Path(__file__).resolve().parents[2]
_REPLICAS: Final = 30
_SPEED: Final = 5.0
_MOVE_EVERY_S: Final = 0.25
_LOOK_EVERY_S: Final = 0.05
_PATIENCE_S: Final = 5.0
_DONE_AFTER_S: Final = 3.0
_FORGOTTEN_AFTER_S: Final = 6.0
_LIFETIME_S: Final = {"moved": 60.0, "withdrawn": 60.0, "expired": 2.0}
_FATES: Final = ("moved",) * 8 + ("withdrawn", "expired")


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the cluster."""

    nodes: int
    pods: int


def fill(cluster: SimulatedCluster, size: Size) -> None:
    """Create nodes, workloads and the Migration CRD."""
    definition = yaml.safe_load((_ROOT / "deploy" / "crds" / "migrations.yaml").read_text())
    nodes = [build.node(f"node-{n:04d}", zone="abc"[n % 3]) for n in range(size.nodes)]
    owners = [
        build.replica_set(f"app-{n:03d}", _REPLICAS, usage_cpu=f"{50 + n * 37 % 300}m")
        for n in range(size.pods // _REPLICAS)
    ]
    cluster.create([definition, *nodes, *owners])


async def serve(size: Size) -> None:
    """Serve a filled cluster, print its URL, read that of the extender, and change forever."""
    shipped = read_config(_ROOT / "scheduler-config.yaml")
    # The address of the extender is known only once it has read this cluster.
    alone = msgspec.structs.replace(shipped, extenders=())
    settings = Settings(seed=1, speed=_SPEED, scheduler=alone)
    async with simulate(settings, clock=SYSTEM, build=lambda c: fill(c, size)) as cluster:
        while not all("nodeName" in pod["spec"] for pod in cluster.pods("default")):
            await SYSTEM.sleep(0.2)
        print(cluster.server.url, flush=True)
        url = await asyncio.to_thread(input)
        told = [msgspec.structs.replace(each, url_prefix=url) for each in shipped.extenders]
        cluster.scheduler.extenders += extenders_of(told, clock=SYSTEM)
        await Churn(cluster).run()


@dataclass(slots=True)
class Churn:
    """Makes the changes, each at its own interval."""

    cluster: SimulatedCluster
    dice: random.Random = field(default_factory=lambda: random.Random(1))
    moving: set[str] = field(default_factory=set)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._moves(group))
            group.create_task(self._sizes())
            group.create_task(self._maintenance())
            group.create_task(self._measurements())
            group.create_task(self._watches())

    async def _moves(self, group: asyncio.TaskGroup) -> None:
        while True:
            await SYSTEM.sleep(_MOVE_EVERY_S)
            pods = list(self._movable())
            for pod in self.dice.sample(pods, min(2, len(pods))):
                group.create_task(self._move(pod, self.dice.choice(_FATES)))

    def _movable(self) -> Iterator[Json]:
        for pod in self.cluster.pods("default"):
            metadata = pod["metadata"]
            if (
                "nodeName" in pod["spec"]
                and "deletionTimestamp" not in metadata
                and metadata["uid"] not in self.moving
            ):
                yield pod

    async def _move(self, pod: Json, fate: str) -> None:
        metadata = pod["metadata"]
        name, uid, store = metadata["name"], metadata["uid"], self.cluster.store
        self.moving.add(uid)
        target = self.dice.choice(
            [node for node in self.cluster.node_names() if node != pod["spec"]["nodeName"]]
        )
        made = store.create(MIGRATIONS, _migration(pod, target, _LIFETIME_S[fate]))
        await self._acknowledged(int(made["metadata"]["resourceVersion"]))
        with suppress(Refusal):
            if fate == "moved":
                store.evict(name, "default")
                await SYSTEM.sleep(_DONE_AFTER_S)
                done = {"status": {"phase": Phase.COMPLETED.value}}
                store.patch(MIGRATIONS, uid, done, status=True)
        await SYSTEM.sleep(_FORGOTTEN_AFTER_S)
        store.delete(MIGRATIONS, uid)
        self.moving.discard(uid)

    async def _acknowledged(self, version: int) -> None:
        """Wait until the extender has seen a version of the Migrations, as the rebalancer does."""
        for _ in range(round(_PATIENCE_S / _LOOK_EVERY_S)):
            leases = self.cluster.store.list(LEASES, "default")
            told = [lease["metadata"]["annotations"].get(SEEN_MIGRATIONS) for lease in leases]
            if told and all(int(each or 0) >= version for each in told):
                return
            await SYSTEM.sleep(_LOOK_EVERY_S)

    async def _sizes(self) -> None:
        """Scale workloads down and up, so that pods appear without a plan."""
        while True:
            names = [owner["metadata"]["name"] for owner in self.cluster.store.list(REPLICASETS)]
            chosen = self.dice.sample(names, min(3, len(names)))
            for replicas in (_REPLICAS - 3, _REPLICAS):
                for name in chosen:
                    size = {"spec": {"replicas": replicas}}
                    self.cluster.store.patch(REPLICASETS, name, size, namespace="default")
                await SYSTEM.sleep(1.0)

    async def _maintenance(self) -> None:
        while True:
            name = self.dice.choice(self.cluster.node_names())
            for value in ("true", None):
                labels = {"metadata": {"labels": {MAINTENANCE_LABEL: value}}}
                self.cluster.store.patch(NODES, name, labels)
                await SYSTEM.sleep(0.5)

    async def _measurements(self) -> None:
        while True:
            await SYSTEM.sleep(40.0)
            number = self.cluster.faults.inject(MetricsUnavailable())
            await SYSTEM.sleep(20.0)
            self.cluster.faults.withdraw(number)

    async def _watches(self) -> None:
        while True:
            await SYSTEM.sleep(15.0)
            self.cluster.faults.inject(DropWatches())


def _migration(pod: Json, target: str, lifetime_s: float) -> Json:
    metadata, owner = pod["metadata"], pod["metadata"]["ownerReferences"][0]
    spec = MigrationSpec(
        pod=PodRef(**{key: metadata[key] for key in ("namespace", "name", "uid")}),
        controller=ControllerRef(kind=owner["kind"], name=owner["name"], uid=owner["uid"]),
        source=pod["spec"]["nodeName"],
        target=target,
        strategy="LoadBalancing",
        reason="NodeOverloaded",
        deadline=datetime.fromtimestamp(SYSTEM.now() + lifetime_s, UTC),
        load=Amounts(cpu_milli=100.0, memory_bytes=1.0e8),
        requests=Amounts(cpu_milli=100.0, memory_bytes=1.0e8),
    )
    made: Json = msgspec.to_builtins(new_migration(spec))
    return made
