# SPDX-License-Identifier: Apache-2.0
"""A living simulated cluster for the guards of a move: what they see, and what they are told.

A look at the cluster is taken from the API server's store at the moment a test asks, so a
test decides what is known: an old view is what a slow watch would have shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from common.api.migrations import ControllerRef, PodRef
from common.cache.reader import CACHED_KINDS, MIGRATION_KIND, lease_kind
from common.cache.snapshot import Snapshot
from common.cache.state import ClusterState
from common.clock import SYSTEM
from common.config import Mode, RebalancerConfiguration
from common.kube.client import KubeClient, connect
from common.kube.events import EventType, ObjectRef
from common.kube.resources import MIGRATIONS, NODES, PDBS, PODS, REPLICASETS, Resource
from common.metrics import Metrics
from rebalancer.migration.view import MigrationView
from simulator import build
from simulator.api import Json, is_ready
from simulator.build import Manifest
from simulator.cluster import Settings, SimulatedCluster, simulate
from tests.support.clock import FakeClock
from tests.support.worlds.migrations import START, definition, manifest_of, spec_of
from tests.support.worlds.wire import wire

LONG_S = 30.0
ACKNOWLEDGED = {
    "phase": "InProgress",
    "conditions": [
        {
            "type": "Acknowledged",
            "status": "True",
            "reason": "Acknowledged",
            "lastTransitionTime": "2026-11-16T09:00:00Z",
        }
    ],
}


@dataclass
class Notes:
    """Remembers which Events were recorded, and about what."""

    told: list[tuple[str, str, str]] = field(default_factory=list)

    def record(
        self,
        *,
        regarding: ObjectRef,
        type_: EventType,
        reason: str,
        note: str,
        action: str,
        related: ObjectRef | None = None,
    ) -> None:
        self.told.append((regarding.name, reason, note))

    async def record_now(
        self,
        *,
        regarding: ObjectRef,
        type_: EventType,
        reason: str,
        note: str,
        action: str,
        related: ObjectRef | None = None,
    ) -> None:
        self.told.append((regarding.name, reason, note))

    def of(self, reason: str) -> list[str]:
        return [note for _, found, note in self.told if found == reason]


class GuardWorld:
    """The cluster, a client to it, and the time that the guards go by."""

    def __init__(self, cluster: SimulatedCluster, client: KubeClient) -> None:
        self.cluster = cluster
        self.store = cluster.store
        self.client = client
        self.clock = FakeClock()
        self.metrics = Metrics("rebalancer")
        self.notes = Notes()
        self.config = RebalancerConfiguration(mode=Mode.ACT)

    def configure(self, **said: Any) -> None:
        """Put another configuration in force, as a changed file does."""
        self.config = RebalancerConfiguration.model_validate({"mode": "act", **said})

    def fill(self, state: ClusterState) -> ClusterState:
        """Put everything that the API server has into a state."""
        for reading in (*CACHED_KINDS, MIGRATION_KIND, lease_kind("")):
            table = reading.table(state)
            for found in self.store.list(reading.resource):
                phase = (found.get("status") or {}).get("phase")
                if reading.resource != PODS or phase not in ("Succeeded", "Failed"):
                    table.upsert(wire(reading.type_, found))
        return state

    def snapshot(self) -> Snapshot:
        """Return the cluster as a watch that is up to date shows it."""
        return self.fill(ClusterState()).snapshot()

    def view(self, name: str) -> MigrationView:
        """Return what a Migration sees now."""
        snapshot = self.snapshot()
        return MigrationView(snapshot.migrations[name], snapshot, self.clock.now())

    def migrate(self, pod: Json, **said: Any) -> str:
        """Create the Migration of a pod; return its name."""
        meta = pod["metadata"]
        owner = next(iter(meta.get("ownerReferences") or ()), None)
        above = self._above(owner, meta["namespace"]) if owner else None
        other = {
            "pod": PodRef(namespace=meta["namespace"], name=meta["name"], uid=meta["uid"]),
            "controller": _ref(owner),
            "workload": _ref(above or owner),
            "replacement_name": "" if owner else f"rescheduled-{meta['name']}-1800000000",
            "source": pod["spec"]["nodeName"],
            "target": "elsewhere",
            "alternatives": (),
            "deadline": START + timedelta(days=900),
        }
        made = manifest_of(spec_of(**{**other, **said}))
        self.store.create(MIGRATIONS, made)
        return str(made["metadata"]["name"])

    def say(self, name: str, **status: Any) -> None:
        """Change the status of a Migration."""
        wired = msgspec.json.decode(msgspec.json.encode(status))

        def change(old: Json) -> Json:
            return {**old, "status": {**(old.get("status") or {}), **wired}}

        self.store.modify(MIGRATIONS, name, change, status=True)

    def close(self, name: str, phase: str = "Completed") -> None:
        self.say(name, phase=phase)

    def migration(self, name: str) -> Json:
        found = self.store.find(MIGRATIONS, name)
        assert found is not None
        return found

    def budget(self, name: str = "web-rescheduler-pdb") -> Json | None:
        return self.store.find(PDBS, name, "default")

    def node(self, name: str) -> Json:
        found = self.store.find(NODES, name)
        assert found is not None
        return found

    def pod(self, name: str) -> Json | None:
        return self.store.find(PODS, name, "default")

    def pods(self, app: str) -> list[Json]:
        """Return the pods of an app, by name."""
        found = [p for p in self.cluster.pods() if p["metadata"]["labels"].get("app") == app]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def patch(
        self, resource: Resource, name: str, body: Json, namespace: str | None = None
    ) -> None:
        """Change an object as a person does."""
        self.store.modify(resource, name, lambda old: _merged(old, body), namespace=namespace)

    def fault(self, verb: str, resource: Resource, status: int, times: int | None = 1) -> None:
        """Let requests fail before anything is done."""
        self.cluster.server.faults.add(
            verbs=(verb,), resources=(resource.plural,), status=status, times=times
        )

    def break_pod(self, pod: Json) -> None:
        """Let a pod say that it is not ready."""

        def change(old: Json) -> Json:
            conditions = [{**c, "status": "False"} for c in old["status"]["conditions"]]
            return {**old, "status": {**old["status"], "conditions": conditions}}

        name = pod["metadata"]["name"]
        self.store.modify(PODS, name, change, namespace="default", status=True)

    def calls(self, result: str, metric: str) -> float:
        """Return how often something was counted."""
        found = self.metrics.registry.get_sample_value(f"evenkeel_{metric}", {"result": result})
        return found or 0.0

    async def ready(self, app: str, count: int) -> list[Json]:
        """Wait until an app has so many ready pods."""
        await self.until(lambda: sum(map(is_ready, self.pods(app))) == count)
        return self.pods(app)

    async def counted(self, name: str = "web-rescheduler-pdb") -> Json:
        """Wait until the disruption controller has counted a budget's pods."""

        def counted() -> bool:
            found = self.budget(name) or {}
            generation = found.get("metadata", {}).get("generation")
            seen: int | None = found.get("status", {}).get("observedGeneration")
            return seen is not None and seen == generation

        await self.until(counted)
        found = self.budget(name)
        assert found is not None
        return found

    async def until(self, done: Callable[[], Any]) -> None:
        """Wait until something holds, looking whenever an object changes."""
        changed = asyncio.Event()
        kinds = (PODS, PDBS, NODES, MIGRATIONS)
        stops = [self.store.subscribe(kind, lambda _: changed.set()) for kind in kinds]
        try:
            async with asyncio.timeout(LONG_S):
                while not done():
                    changed.clear()
                    await changed.wait()
        finally:
            for stop in stops:
                stop()

    def _above(self, owner: Json, namespace: str) -> Json | None:
        if owner["kind"] != "ReplicaSet":
            return None
        found = self.store.find(REPLICASETS, owner["name"], namespace)
        references = (found or {}).get("metadata", {}).get("ownerReferences") or ()
        return next(iter(references), None)


@asynccontextmanager
async def guard_world(
    folder: Path, *manifests: Manifest, nodes: int | list[Manifest] = 3
) -> AsyncIterator[GuardWorld]:
    """Run a cluster with these objects; time passes for it, but not for the guards."""
    made = [build.node(f"node-{n}") for n in range(nodes)] if isinstance(nodes, int) else nodes

    def fill(cluster: SimulatedCluster) -> None:
        cluster.create([*made, *manifests])
        cluster.create([definition()])

    async with simulate(Settings(seed=1, speed=50.0), clock=SYSTEM, build=fill) as cluster:
        path = cluster.write_kubeconfig(folder / "kubeconfig")
        async with connect(kubeconfig=str(path), qps=1000, burst=1000, clock=SYSTEM) as client:
            yield GuardWorld(cluster, client)


def _ref(owner: Json | None) -> ControllerRef | None:
    if owner is None:
        return None
    return ControllerRef(
        api_version=owner["apiVersion"], kind=owner["kind"], name=owner["name"], uid=owner["uid"]
    )


def _merged(old: Json, body: Json) -> Json:
    """Merge as a JSON merge patch does."""
    found = dict(old)
    for key, value in body.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            found[key] = _merged(found.get(key) or {}, value)
        else:
            found[key] = value
    return found
