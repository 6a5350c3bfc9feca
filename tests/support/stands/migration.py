# SPDX-License-Identifier: Apache-2.0
"""A simulated cluster with a migration controller at work on it.

The API server, its eviction endpoint, controllers, scheduler and kubelets are the
simulator's; the controller talks to them over a socket. Steering, guard and replacer are
small ones that say what a test tells them to.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from common.api.contract import API_VERSION, MIGRATION_STATUS_LABEL
from common.cache.reader import CACHED_KINDS, MIGRATION_KIND, ClusterReader, lease_kind
from common.cache.snapshot import Snapshot
from common.clock import SYSTEM, Clock
from common.cluster.migrations import MigrationRecord
from common.cluster.records import PodRecord
from common.config import Duration, Mode, Reading, RebalancerConfiguration
from common.kube.api import KubeApi
from common.kube.client import KubeClient, connect
from common.kube.events import EventLimits, Recorder
from common.kube.resources import EVENTS, MIGRATIONS, NODES, PODS
from common.kube.timestamps import micro_time, parse_time
from common.metrics import Metrics
from common.runtime import Runtime
from rebalancer.migration import (
    Actuators,
    MigrationController,
    MigrationView,
    Preconditions,
    Proceed,
    Timing,
    Verdict,
)
from rebalancer.migration.bare_pods import BarePods
from rebalancer.migration.eviction import Stopped
from rebalancer.migration.pod_marks import MarkStatus
from rebalancer.migration.temporary_pdb.controller import Protection, TemporaryPdbs
from rebalancer.pacing.extenders import Asked
from rebalancer.pacing.policy import PacingPolicy
from rebalancer.pacing.votes import TRYING
from rebalancer.refusals import Refusal
from rebalancer.store import MigrationStore
from simulator import build
from simulator.api import Change, Json, is_ready
from simulator.build import Manifest
from simulator.cluster import Settings, SimulatedCluster, simulate
from tests.support.waiting import until
from tests.support.worlds.migrations import MARK_ANNOTATIONS, MARK_LABELS, definition

PATIENCE_S = 30.0
SPEED = 50.0
QUICK = Timing(
    resync_s=0.2,
    recheck_s=0.05,
    limit_recheck_s=0.02,
    pdb_backoff_min_s=0.1,
    pdb_backoff_max_s=0.4,
    backoff_min_s=0.02,
    backoff_max_s=0.2,
    guidance_s=0.0,
)
READING = Reading(backoff_min=Duration(0.02), backoff_max=Duration(0.2))


@dataclass
class OpenPolicy(PacingPolicy):
    """Lets everything pass by default."""

    refusal: Callable[[MigrationRecord], Refusal | None] = lambda _: None
    not_acknowledged: Refusal | None = None
    switch: Refusal | None = None
    """The switch that has stopped moves."""
    evidence: Asked = Asked.YES
    """Whether an extender was asked about replacements."""
    tries: bool = False
    """The breaker is half-open."""
    remembers: bool = False
    """Finished Migrations have to stay."""
    remembered: list[str] = field(default_factory=list)
    """Which Migrations were to be removed."""
    questions: list[str] = field(default_factory=list)
    known_against: list[str] = field(default_factory=list)
    """What the controller itself knew against moves."""

    def try_start(
        self, migration: MigrationRecord, snapshot: Snapshot, besides: Refusal | None = None
    ) -> Refusal | None:
        self.questions.append(migration.name)
        self.known_against += [besides.name] if besides is not None else []
        return self.refusal(migration) or besides

    def stopped(self, migration: MigrationRecord) -> Refusal | None:
        return self.switch

    def acknowledged(self, resource_version: int) -> Refusal | None:
        return self.not_acknowledged

    def asked(self, migration: MigrationRecord, replacement: PodRecord, bound_s: float) -> Asked:
        return self.evidence

    def trying(self, migration: MigrationRecord) -> str:
        return TRYING if self.tries else ""

    def must_keep(self, migration: MigrationRecord) -> bool:
        self.remembered.append(migration.name)
        return self.remembers


@dataclass
class NoGuard(TemporaryPdbs):
    """Protects nothing, and remembers what it was asked."""

    passed: ClassVar[Protection] = Proceed("NoPdbWanted")
    verdict: Protection = passed
    protected: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)

    async def protect(self, view: MigrationView) -> Protection:
        self.protected.append(view.migration.name)
        return self.verdict

    async def release(self, view: MigrationView) -> Protection:
        self.released.append(view.migration.name)
        return Proceed("NothingToRelease")


class CopyingReplacer(BarePods):
    """Makes the copy of a bare pod, straight in the store."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._store = cluster.store

    async def replace(self, view: MigrationView, stopped: Stopped) -> Verdict:
        migration = view.migration
        found = {pod["metadata"]["name"] for pod in self._store.list(PODS, migration.namespace)}
        if migration.replacement_name not in found:
            copy = build.pod(
                migration.replacement_name, namespace=migration.namespace, labels={"app": "web"}
            )
            copy["spec"]["nodeSelector"] = {"kubernetes.io/hostname": migration.target}
            self._store.create(PODS, copy)
        return Proceed("Copied")

    async def roll_back(self, migration: MigrationRecord) -> None:
        with suppress(LookupError, Exception):
            self._store.delete(PODS, migration.replacement_name, namespace=migration.namespace)


class MigrationStand:
    """A cluster, and one controller or more."""

    def __init__(self, cluster: SimulatedCluster, client: KubeClient, folder: Path) -> None:
        self.cluster = cluster
        self.client = client
        self.folder = folder
        self.policy = OpenPolicy()
        self.guard = NoGuard()
        self.replacer = CopyingReplacer(cluster)
        self.timing = QUICK
        self.config = RebalancerConfiguration(mode=Mode.ACT)
        self.blind: str | None = None
        """Why the controller cannot see the cluster, if so."""
        self.metrics = Metrics("test")
        self.deletions: list[str] = []
        """Uids of pods that were asked to go, in order; a second time is in it too."""
        cluster.store.subscribe(PODS, self._note)

    def _note(self, change: Change) -> None:
        new = change.obj
        if "deletionTimestamp" in new["metadata"]:
            uid = new["metadata"]["uid"]
            if uid not in self.deletions:
                self.deletions.append(uid)

    def watch_pods(self, seen: Callable[[Change], None]) -> None:
        """Have every change of a pod told, in the middle of it."""
        self.cluster.store.subscribe(PODS, seen)

    @asynccontextmanager
    async def controller(self, client: KubeApi | None = None) -> AsyncIterator[MigrationController]:
        """Run a controller with a cache of its own."""
        metrics = Metrics("test")
        reader = ClusterReader(
            self.client,
            reading=READING,
            clock=SYSTEM,
            metrics=metrics,
            kinds=(*CACHED_KINDS, MIGRATION_KIND, lease_kind("")),
        )
        recorder = Recorder(
            self.client,
            program="rebalancer",
            identity="test",
            limits=EventLimits(drain_s=1.0),
            clock=SYSTEM,
            metrics=metrics,
            rng=random.Random(1),
        )
        api = client or self.client
        controller = MigrationController(
            MigrationStore(api, reader.state, clock=SYSTEM, metrics=metrics),
            Actuators.of(api, self.guard, self.replacer),
            Preconditions(pacing=self.policy, why_not_synced=lambda: self.blind),
            recorder=recorder,
            config=lambda: self.config,
            runtime=Runtime(SYSTEM, metrics, random.Random(1)),
            timing=self.timing,
        )
        self.metrics = metrics
        tasks = [asyncio.create_task(reader.run()), asyncio.create_task(recorder.run())]
        try:
            await reader.wait_synced()
            await reader.reflector_of(MIGRATIONS).wait_synced()
            tasks.append(asyncio.create_task(controller.run()))
            yield controller
        finally:
            for task in reversed(tasks):
                task.cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            broken = [e for e in found if isinstance(e, Exception)]
            assert not broken, broken

    def pods(self, app: str = "web") -> list[Json]:
        """Return the pods of an app that are not ending, by name."""
        found = [
            pod
            for pod in self.cluster.pods("default")
            if pod["metadata"]["labels"].get("app") == app
            and "deletionTimestamp" not in pod["metadata"]
        ]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def ready(self, app: str = "web") -> list[Json]:
        return [pod for pod in self.pods(app) if is_ready(pod)]

    def migrations(self) -> list[Json]:
        return self.cluster.store.list(MIGRATIONS)

    def migration(self, name: str) -> Json:
        found: Json = self.cluster.store.get(MIGRATIONS, name)
        return found

    def plan(self, pod: Json, target: str, /, *, lasts_s: float = 60.0, **spec: Any) -> str:
        """Create a Migration; return its name."""
        made = self.cluster.store.create(MIGRATIONS, manifest(pod, target, lasts_s=lasts_s, **spec))
        return str(made["metadata"]["name"])

    def give(self, seconds: float) -> None:
        """Let replacements take no longer than this, counted from the eviction."""
        given = Duration(f"{seconds:g}s")
        self.config = self.config.model_copy(update={"migration_deadline": given})

    def only(self, *nodes: str) -> None:
        """Let the scheduler use these nodes only."""
        taint = {"key": "test", "value": "", "effect": "NoSchedule"}
        for node in self.cluster.node_names():
            patch = {"spec": {"taints": None if node in nodes else [taint]}}
            self.cluster.store.patch(NODES, node, patch)

    def others(self, pod: Json) -> list[str]:
        """Return the nodes that a pod is not on."""
        return [name for name in self.cluster.node_names() if name != pod["spec"]["nodeName"]]

    def movable(self, target: str) -> list[Json]:
        """Have all new pods go to one node; return the pods that are elsewhere."""
        self.only(target)
        return [pod for pod in self.ready() if pod["spec"]["nodeName"] != target]

    def record(self, uid: str) -> Json:
        """Return the pod with a uid."""
        return next(p for p in self.cluster.pods() if p["metadata"]["uid"] == uid)

    def marks(self, uid: str) -> set[str]:
        """Return the keys on a pod that tell of a move."""
        meta = self.record(uid)["metadata"]
        keys = {*(meta.get("labels") or {}), *(meta.get("annotations") or {})}
        return keys & {*MARK_LABELS, *MARK_ANNOTATIONS}

    def marks_anywhere(self) -> list[str]:
        """Return the uids of pods that are not terminating and marked as moving."""
        found = [pod["metadata"] for pod in self.pods()]
        return [
            meta["uid"]
            for meta in found
            if (meta.get("labels") or {}).get(MIGRATION_STATUS_LABEL) == MarkStatus.IN_PROGRESS
        ]

    def events(self, reason: str) -> list[Json]:
        """Return the Events with a reason."""
        return [found for found in self.cluster.store.list(EVENTS) if found["reason"] == reason]

    def figure(self, name: str, **labels: str) -> float:
        """Return a metric of the last controller."""
        return self.metrics.registry.get_sample_value(f"evenkeel_{name}", labels) or 0.0

    async def until(self, done: Callable[[], Any], what: str) -> None:
        """Wait until something holds."""
        await until(done, what, patience_s=PATIENCE_S, told=self._states)

    def _states(self) -> list[Any]:
        return [found.get("status") for found in self.migrations()]

    async def until_ended(self, *names: str) -> list[Json]:
        """Wait until Migrations are closed and cleaned up; return their status."""
        await self.until(lambda: all(cleaned(self.migration(n)) for n in names), "all ended")
        return [self.migration(name)["status"] for name in names]

    async def until_ready(self, count: int, app: str = "web") -> list[Json]:
        """Return the pods once they are Ready and older than anything that comes next.

        Times are whole seconds: a sibling of the same second would pass for a younger one.
        """
        await self.until(lambda: len(self.ready(app)) == count, f"{count} pods of {app} Ready")
        youngest = max(parse_time(p["metadata"]["creationTimestamp"]) for p in self.ready(app))
        await self.until(lambda: SYSTEM.now() >= youngest + 1, "a second is over")
        return self.ready(app)

    async def until_waits(self, name: str, step: str, reason: str) -> None:
        """Wait until a Migration says that it waits with a step for a reason."""

        def says() -> bool:
            found = condition(self.migration(name), step)
            return (found.get("status"), found.get("reason")) == ("False", reason)

        await self.until(says, f"{step} waits for {reason}")


@asynccontextmanager
async def migrating(
    folder: Path,
    *manifests: Manifest,
    nodes: int = 3,
    speed: float = SPEED,
    clock: Clock = SYSTEM,
    **settings: Any,
) -> AsyncIterator[MigrationStand]:
    """Run a cluster that knows Migrations; nodes are called node-0 and so on.

    `clock` is the cluster's own; the controller goes by the machine's.
    """
    made = [build.node(f"node-{number}") for number in range(nodes)]
    chosen = Settings(seed=1, speed=speed, metrics=False, **settings)
    first: Iterable[Manifest] = (definition(), *made, *manifests)

    def fill(cluster: SimulatedCluster) -> None:
        cluster.create(first)

    async with simulate(chosen, clock=clock, build=fill) as cluster:
        path = cluster.write_kubeconfig(folder / "kubeconfig")
        async with connect(kubeconfig=str(path), qps=10_000, burst=10_000, clock=SYSTEM) as client:
            yield MigrationStand(cluster, client, folder)


def manifest(pod: Json, target: str, /, *, lasts_s: float = 60.0, **spec: Any) -> Json:
    """Return the Migration of a pod, as the rebalancer would write it."""
    meta = pod["metadata"]
    owners = meta.get("ownerReferences") or ()
    wanted = ("apiVersion", "kind", "name", "uid")
    controlled = {"controller": {key: owners[0][key] for key in wanted}} if owners else {}
    return {
        "apiVersion": API_VERSION,
        "kind": "Migration",
        "metadata": {"name": meta["uid"]},
        "spec": {
            "pod": {key: meta[key] for key in ("namespace", "name", "uid")},
            **controlled,
            "source": pod["spec"]["nodeName"],
            "target": target,
            "strategy": "LoadBalancing",
            "reason": "AboveCeiling",
            "deadline": micro_time(SYSTEM.now() + lasts_s),
            **spec,
        },
    }


def condition(found: Json, step: str) -> Json:
    """Return a condition of a Migration; an empty one if it has none."""
    conditions = found.get("status", {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == step), {})


def cleaned(found: Json) -> bool:
    """Tell whether a Migration is closed and nothing is left to be undone."""
    closed = found.get("status", {}).get("phase") in ("Completed", "Failed")
    return closed and condition(found, "CleanedUp").get("status") == "True"
