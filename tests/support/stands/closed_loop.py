# SPDX-License-Identifier: Apache-2.0
"""Both programs at work on a simulated cluster, and someone who watches what they do.

The extender's and the rebalancer's own `run()` are started in this process and talk to the
API server over real sockets. Everybody has the same clock, which goes ten times as fast as
the machine's: waits are short, and what is decided stays what it is. A rebalancer that is to
die runs in a process of its own, which is told the same time.

`Witness` sees every change of the store in the moment it happens: an eviction that a budget
has no room for, that hits a protected pod, or that hits a lineage for a second time fails
the test whatever comes after. A rebalancer's block ends only when nothing is left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from common.api.contract import (
    API_VERSION,
    CORDONED_BY,
    MAINTENANCE_LABEL,
    MIGRATION_STATUS_LABEL,
    TEMPORARY_PDB_LABEL,
)
from common.config import ExtenderConfiguration, RebalancerConfiguration
from common.kube.resources import MIGRATIONS, NODES, PDBS, PODS, Resource
from common.kube.timestamps import micro_time
from extender.main import ExtenderOptions
from extender.main import run as run_extender
from rebalancer.main import RebalancerOptions
from rebalancer.main import run as run_rebalancer
from rebalancer.migration.pod_marks import MarkStatus
from simulator import build
from simulator.api import Change, Json, is_ready
from simulator.build import Manifest
from simulator.cluster import Settings, SimulatedCluster, simulate
from tests.support.fast_clock import SPEED, FastClock
from tests.support.oracles.loop_witness import Witness, root_of
from tests.support.stands.extender import asked_by, eventually
from tests.support.stands.loop_programs import EXTENDER, REBALANCER, figure, is_ready_at, running
from tests.support.stands.migration import cleaned, condition, manifest
from tests.support.waiting import until
from tests.support.worlds.migrations import definition

CLUSTER_SPEED = 5.0
"""How much faster than everybody's clock kubelets and measurements are."""
PATIENCE_S = 300.0
"""Long enough for a machine that has a lot else to do; no one waits for nothing."""
ENOUGH_S = 600.0


class Loop:
    """A cluster, the time that everybody goes by, and the programs that a test starts."""

    def __init__(self, cluster: SimulatedCluster, clock: FastClock, folder: Path) -> None:
        self.cluster = cluster
        self.store = cluster.store
        self.clock = clock
        self.folder = folder
        self.kubeconfig = cluster.write_kubeconfig(folder / "kubeconfig")
        self.witness = Witness(cluster.store)

    @asynccontextmanager
    async def extender(self, *, asked: bool = True, **settings: Any) -> AsyncIterator[str]:
        """Run an extender, which the scheduler is told of or not; give its URL."""
        config = ExtenderConfiguration.model_validate({**EXTENDER, **settings})
        options = ExtenderOptions(kubeconfig=str(self.kubeconfig))
        async with running(run_extender, config, options, self.clock) as said:
            health, url = f"http://{said['health']}", f"http://{said['extender']}"
            ready = "the extender is ready"
            # Told first: a rebalancer that waits for an extender acts as soon as one has a Lease.
            async with self.asking(url) if asked else nullcontext():
                await eventually(lambda: is_ready_at(health), ready, patience_s=PATIENCE_S)
                yield url

    def asking(self, url: str) -> AbstractAsyncContextManager[None]:
        """Have the scheduler ask an extender, and do without it where it does not answer."""
        return asked_by(self.cluster, url, ignorable=True)

    @asynccontextmanager
    async def rebalancer(
        self,
        file: Path | None = None,
        /,
        *,
        dry_run: bool = False,
        mode: str | None = "act",
        flags: Mapping[str, Any] = MappingProxyType({}),
        **settings: Any,
    ) -> AsyncIterator[str]:
        """Run a rebalancer, which follows a file if it is given one; give its health port.

        The block ends only when all moves have ended and nothing is left of them.
        """
        said = {} if mode is None else {"mode": mode}
        config = RebalancerConfiguration.model_validate({**REBALANCER, **said, **settings})
        followed = None if file is None else str(file)
        options = RebalancerOptions(
            kubeconfig=str(self.kubeconfig), config=followed, dry_run=dry_run, **flags
        )
        async with running(run_rebalancer, config, options, self.clock) as said:
            yield f"http://{said['health']}"
            await self.settled()

    def configured(self, *, mode: str | None = "act", **settings: Any) -> Path:
        """Write down what a rebalancer is to go by from now on; return the file."""
        file = self.folder / "rebalancer.yaml"
        kind = {"apiVersion": API_VERSION, "kind": "RebalancerConfiguration"}
        said = {} if mode is None else {"mode": mode}
        file.write_text(yaml.safe_dump({**kind, **REBALANCER, **said, **settings}))
        return file

    async def settled(self) -> None:
        """Wait until nothing is left of any move, and hear the witness."""
        try:
            await self.until(lambda: not self.left_behind(), "everything is tidy")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.left_behind()}") from None
        self.witness.check()

    def left_behind(self) -> list[str]:
        """Return what moves that are over, or never end, have left."""
        migrations, pods = self.migrations(), self.pods()
        alive = {pod["metadata"]["uid"] for pod in self.store.list(PODS)}
        undone = {
            m["spec"].get("replacementName") for m in migrations if m["spec"]["pod"]["uid"] in alive
        }
        return [
            *(f"open: {m['metadata']['name']} {m.get('status')}" for m in migrations if open_(m)),
            *(f"marks on {_name(pod)}" for pod in pods if _marked(pod)),
            *(f"budget {_name(found)}" for found in self.store.list(PDBS) if _ours(found)),
            *(f"stray copy {_name(pod)}" for pod in pods if _name(pod) in undone),
            *(f"cordon of {node}" for node in self.ours() if not self._maintained(node)),
        ]

    def _maintained(self, node: str) -> bool:
        return MAINTENANCE_LABEL in (self.store.get(NODES, node)["metadata"].get("labels") or {})

    def migrations(self) -> list[Json]:
        """Return all Migrations, the oldest first."""
        found = self.store.list(MIGRATIONS)
        return sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))

    def status(self, name: str) -> Json:
        """Return what is said of a Migration."""
        found: Json = self.store.get(MIGRATIONS, name).get("status") or {}
        return found

    def outcomes(self) -> list[str]:
        """Return how all Migrations ended: the outcome, or why one failed."""
        return sorted(ending(each) for each in self.migrations())

    def pods(self, app: str = "") -> list[Json]:
        """Return the pods, or those of an app, that are not ending, by name."""
        found = [
            pod
            for pod in self.store.list(PODS)
            if "deletionTimestamp" not in pod["metadata"]
            and pod.get("status", {}).get("phase") not in ("Failed", "Succeeded")
            and app in ("", (pod["metadata"].get("labels") or {}).get("app"))
        ]
        return sorted(found, key=_name)

    def ready(self, app: str = "") -> list[Json]:
        return [pod for pod in self.pods(app) if is_ready(pod)]

    def on(self, node: str, app: str = "") -> list[Json]:
        """Return the pods of a node."""
        return [pod for pod in self.pods(app) if pod["spec"].get("nodeName") == node]

    def plan(self, pod: Json, target: str, **spec: Any) -> str:
        """Create a Migration as anybody with the right could; return its name."""
        owners = pod["metadata"].get("ownerReferences") or ()
        top = root_of(self.store, owners[0], pod["metadata"]["namespace"]) if owners else None
        made = {
            "strategy": "ResourceOptimization",
            "deadline": micro_time(self.clock.now() + ENOUGH_S),
            **({"workload": top} if top else {}),
            **spec,
        }
        written = self.store.create(MIGRATIONS, manifest(pod, target, **made))
        return str(written["metadata"]["name"])

    def when(
        self, resource: Resource, sign: Callable[[Json], bool], act: Callable[[], object]
    ) -> None:
        """Act once, right after the first change of a kind that is the sign."""
        over: list[bool] = []

        def told(change: Change) -> None:
            if not over and sign(change.obj):
                over.append(True)
                asyncio.get_running_loop().call_soon(act)

        self.store.subscribe(resource, told)

    def when_done(self, name: str, step: str, act: Callable[[], object]) -> None:
        """Act once, right after a Migration says that it has done a step."""

        def sign(found: Json) -> bool:
            done = condition(found, step).get("status") == "True"
            return bool(found["metadata"]["name"] == name and done)

        self.when(MIGRATIONS, sign, act)

    def when_evicted(self, act: Callable[[], object]) -> None:
        """Act once, right after the first eviction."""
        self.when(PODS, lambda pod: pod["metadata"]["uid"] in self.witness.evicted, act)

    async def cycles(self, health: str, count: int) -> None:
        """Wait until a rebalancer has looked at the cluster so many times more."""
        first = await figure(health, "cycles_total")

        async def looked() -> bool:
            return await figure(health, "cycles_total") >= first + count

        await eventually(looked, f"{count} cycles", patience_s=PATIENCE_S)

    async def until(self, done: Callable[[], Any], what: str) -> None:
        """Wait until something holds."""
        await until(done, what, patience_s=PATIENCE_S, told=self._states)

    def _states(self) -> list[Any]:
        return [found.get("status") for found in self.migrations()][-5:]

    async def until_ready(self, app: str, count: int) -> list[Json]:
        """Return the pods of an app once they are Ready and a second old."""
        await self.until(lambda: len(self.ready(app)) == count, f"{count} of {app} are Ready")
        await self.clock.sleep(1.0)
        return self.ready(app)

    async def until_ended(self, *names: str) -> list[Json]:
        """Wait until Migrations are closed and cleaned up; return their status."""

        def ended() -> bool:
            return all(cleaned(self.store.get(MIGRATIONS, name)) for name in names)

        await self.until(ended, "the moves have ended")
        return [self.status(name) for name in names]

    async def until_says(self, name: str, step: str, reason: str) -> None:
        """Wait until a Migration gives a reason for the state of a step."""

        def says() -> bool:
            found = condition(self.store.get(MIGRATIONS, name), step)
            return bool(found.get("reason") == reason)

        await self.until(says, f"{step} says {reason}")

    def cordon(self, *nodes: str, on: bool = True) -> None:
        """Let nodes take no more pods, as a person does."""
        for node in nodes:
            self.store.patch(NODES, node, {"spec": {"unschedulable": on or None}})

    def ours(self) -> list[str]:
        """Return the nodes that Evenkeel has cordoned."""
        found = self.store.list(NODES)
        return [_name(n) for n in found if CORDONED_BY in (n["metadata"].get("annotations") or {})]


@asynccontextmanager
async def closed_loop(
    folder: Path,
    *manifests: Manifest,
    nodes: int | Iterable[Manifest] = 3,
    places: Mapping[str, Iterable[str]] | None = None,
    guided: bool = True,
    speed: float = SPEED,
    pace: float = CLUSTER_SPEED,
    load: Mapping[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Loop]:
    """Run a cluster, and an extender if it is to be guided; no rebalancer yet.

    `places` says on which nodes the first pods of an app begin; the others are scheduled.
    `speed` is that of everybody's clock, and `pace` how much faster kubelets are than that.
    `load` is what the extender is told beside the usual.
    """
    clock = FastClock(speed=speed)
    made = nodes
    if isinstance(made, int):
        made = [build.node(f"node-{number}") for number in range(made)]
    first = [definition(), *made, *manifests]

    def fill(cluster: SimulatedCluster) -> None:
        cluster.create(first)
        cluster.settle()
        for app, names in (places or {}).items():
            waiting = sorted((p for p in cluster.pods() if _is_of(p, app)), key=_name)
            for pod, node in zip(waiting, names, strict=False):
                cluster.store.bind(_name(pod), pod["metadata"]["namespace"], node)

    chosen = Settings(**{"seed": 1, "speed": pace, **settings})
    async with simulate(chosen, clock=clock, build=fill) as cluster, AsyncExitStack() as stack:
        loop = Loop(cluster, clock, folder)
        if guided:
            await stack.enter_async_context(loop.extender(**(load or {})))
        yield loop
        loop.witness.check()


def open_(migration: Json) -> bool:
    """Tell whether anything is still to be done about a Migration."""
    return not cleaned(migration)


def ending(migration: Json) -> str:
    """Return how a Migration ended: its outcome, or why it failed."""
    status = migration.get("status") or {}
    said = status.get("outcome") or status.get("message", "").partition(":")[0]
    return str(said or status.get("phase") or "Pending")


def _marked(pod: Json) -> bool:
    """Tell whether a pod says that a move is in progress; a replacement keeps other marks."""
    labels = pod["metadata"].get("labels") or {}
    return bool(labels.get(MIGRATION_STATUS_LABEL) == MarkStatus.IN_PROGRESS)


def _ours(budget: Json) -> bool:
    return TEMPORARY_PDB_LABEL in (budget["metadata"].get("labels") or {})


def _is_of(pod: Json, app: str) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return bool(labels.get("app") == app and not pod["spec"].get("nodeName"))


def _name(obj: Json) -> str:
    return str(obj["metadata"]["name"])
