# SPDX-License-Identifier: Apache-2.0
"""What a demo reads: the cluster's API, and the rebalancer's health port.

Nodes, pods and Migrations come from watches, usage from the metrics API, the plan and its
lower bound from the rebalancer's health port. An `Observation` has all of it at one moment.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

import aiohttp
import msgspec

from common.cache.reader import CACHED_KINDS, MIGRATION_KIND, ClusterReader
from common.cache.snapshot import Snapshot
from common.clock import Clock
from common.cluster.migrations import MigrationRecord
from common.config import Duration, Reading
from common.kube import resources as kinds
from common.kube.client import KubeClient
from common.kube.errors import KubeError
from common.metrics import Metrics
from simulator.demo.availability import Availability
from simulator.figures import Utilization, utilization

_NODE_METRICS: Final = "/apis/metrics.k8s.io/v1beta1/nodes"
_READ: Final = frozenset(
    {kinds.NODES, kinds.PODS, kinds.REPLICASETS, kinds.DEPLOYMENTS, kinds.STATEFULSETS}
)
_SERIES: Final = re.compile(r"^evenkeel_(\w+)(?:{(.*)})? (\S+)$", re.MULTILINE)
_LIMIT: Final = aiohttp.ClientTimeout(total=5)


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of what is read of a plan."""


class PlannedMove(_Part, frozen=True, kw_only=True):
    """One move of a plan."""

    pod: str
    source: str
    target: str
    alternatives: tuple[str, ...] = ()
    reason: str = ""
    words: str = ""


class Bound(_Part, frozen=True, kw_only=True):
    """How the lower bound is known."""

    words: str = ""


class Unmet(_Part, frozen=True, kw_only=True):
    """A goal that cannot be met."""

    goal: str
    why: str


class ReportedPlan(_Part, frozen=True, kw_only=True):
    """The rebalancer's plan."""

    plan_id: str
    lower_bound: int
    bound: Bound = Bound()
    moves: tuple[PlannedMove, ...] = ()
    unmet: tuple[Unmet, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One moment of a demo."""

    utilization: Utilization
    pods: int = 0
    ready: int = 0
    migrations: Sequence[MigrationRecord] = ()
    """The oldest first."""
    plan: ReportedPlan | None = None
    cycles: int = 0
    lower_bound: int = 0
    """Of the episode, as the rebalancer counts it."""

    @property
    def settled(self) -> bool:
        """Whether every node is measured and every pod is Ready."""
        return self.utilization.complete and self.pods > 0 and self.ready == self.pods


class DemoClient:
    """Reads one cluster, and the rebalancer once it runs."""

    def __init__(self, client: KubeClient, *, ceiling: float, clock: Clock) -> None:
        self._client = client
        self._ceiling = ceiling
        readings = [each for each in CACHED_KINDS if each.resource in _READ]
        self._reader = ClusterReader(
            client,
            reading=Reading(backoff_min=Duration(0.2), backoff_max=Duration(2.0)),
            clock=clock,
            metrics=Metrics("demo"),
            kinds=[*readings, replace(MIGRATION_KIND, optional=False)],
        )
        self._last = Utilization({}, 0, ceiling)
        self._plan: ReportedPlan | None = None
        self._cycles = self._bound = 0
        self._session: aiohttp.ClientSession | None = None
        self.rebalancer: str = ""
        """Host and port of the rebalancer's health port; empty before it runs."""
        self.availability = Availability()
        self._reader.state.pods.listen(self.availability.on_pod)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Watch the cluster while the block lasts."""
        async with aiohttp.ClientSession(timeout=_LIMIT) as self._session:
            reading = asyncio.create_task(self._reader.run())
            try:
                await self._reader.wait_synced()
                yield
            finally:
                reading.cancel()
                with suppress(asyncio.CancelledError):
                    await reading

    def snapshot(self) -> Snapshot:
        """Return the cluster as the watches report it."""
        return self._reader.state.snapshot()

    async def observe(self) -> Observation:
        """Return the current state; what cannot be read keeps its last value."""
        snapshot = self.snapshot()
        with suppress(KubeError):
            measured = json.loads(await self._client.get(_NODE_METRICS, timeout_s=5))["items"]
            self._last = utilization(measured, snapshot, self._ceiling)
        alive = [pod for pod in snapshot.pods.values() if not pod.terminating]
        with suppress(aiohttp.ClientError, TimeoutError):
            await self._read_rebalancer()
        return Observation(
            utilization=self._last,
            pods=len(alive),
            ready=sum(pod.ready for pod in alive),
            migrations=sorted(snapshot.migrations.values(), key=lambda m: (m.created_s, m.name)),
            plan=self._plan,
            cycles=self._cycles,
            lower_bound=self._bound,
        )

    async def _read_rebalancer(self) -> None:
        if not self.rebalancer:
            return
        page, metrics = await self._page("/debug/plan?output=json"), await self._page("/metrics")
        self._plan = msgspec.json.decode(page, type=ReportedPlan) if page else self._plan
        text = metrics.decode()
        self._cycles = figure(text, "cycles_total")
        self._bound = figure(text, "episode_lower_bound")

    async def _page(self, path: str) -> bytes:
        assert self._session is not None
        async with self._session.get(f"http://{self.rebalancer}{path}") as answer:
            return await answer.read() if answer.ok else b""


def figure(text: str, name: str) -> int:
    """Return the sum of a metric's series."""
    return int(sum(float(value) for found, _, value in _SERIES.findall(text) if found == name))
