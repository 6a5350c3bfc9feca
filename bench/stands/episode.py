# SPDX-License-Identifier: Apache-2.0
"""One episode of the closed loop on the real control plane, as the cluster shows it.

Evictions and replacements are read from Migrations and from a watch of the pods, and both must
agree. An episode is over when no move is under way; afterwards nothing may move for many cycles
and several new measurements.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from bench.stands.cluster import Cluster
from bench.stands.extender_process import (
    DEPLOY,
    ExtenderProcess,
    extender_running,
    install,
    use_extender,
)
from bench.stands.real_scenario import NODE_MILLI, Pods, node_of, stage, watched
from bench.stands.rebalancer_process import LOAD, RebalancerProcess, rebalancer_running
from common.api.contract import API_VERSION
from common.clock import SYSTEM
from common.cluster import quantities as quantity
from controlplane.errors import Refused
from controlplane.scheduler_config import SHIPPED
from simulator.scenarios import Scenario

MEASURED_S = 120.0
CLOSE = 5.0
"""Points of utilization."""
LEVEL_S = 180.0
CYCLES, SAMPLES = 20, 5
QUIET_S = 120.0
OPEN = ("", "Pending", "InProgress")
GUIDE = DEPLOY / "components" / "admission-guide" / "policy.yaml"

Json = dict[str, Any]  # Any: nested API objects
Prepare = Callable[[Cluster, Mapping[str, str]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Both programs running on a cluster."""

    cluster: Cluster
    nodes: Mapping[str, str]
    """By their names in the scenario."""
    pods: Pods
    before: Mapping[str, Json]
    """The pods at the beginning, by uid."""
    extender: ExtenderProcess | None
    """None if the API server guides replacements."""
    rebalancer: RebalancerProcess

    def percent(self) -> dict[str, float]:
        """Return the actual CPU utilization of each node."""
        return self.pods.percent(self.nodes.values())

    async def migrations(self) -> list[Json]:
        return await migrations_of(self.cluster)

    async def over(self, reached: Callable[[], bool]) -> float:
        """Wait until a state is reached and nothing is under way; return the seconds it took."""
        began_s = SYSTEM.monotonic()

        async def done() -> bool:
            await SYSTEM.sleep(0.5)
            if not (reached() and self.pods.settled):
                return False
            return await nothing_open(self.cluster)

        await self.cluster.wait(done, LEVEL_S, "the goal is reached and nothing is under way")
        return SYSTEM.monotonic() - began_s

    async def quiet(self, cycles: int = CYCLES, samples: int = SAMPLES) -> None:
        """Wait for many cycles and new measurements; no pod may be evicted meanwhile."""
        left, began = self.pods.left, await self.rebalancer.cycles()
        node, seen = next(iter(self.nodes.values())), set[str]()

        async def long_enough() -> bool:
            await SYSTEM.sleep(1.0)
            if samples:
                seen.add(await self._measured(node))
            assert self.pods.left == left, "a pod was evicted although the cluster is level"
            passed = await self.rebalancer.cycles() - began
            return passed >= cycles and (not samples or len(seen) > samples)

        await self.cluster.wait(long_enough, QUIET_S, f"{cycles} cycles, {samples} new samples")

    async def landed(self) -> Landed:
        """Return the results of the moves, and check that Migrations and pods agree."""
        moves = [each for each in await self.migrations() if was_evicted(each)]
        evicted = {each["spec"]["pod"]["uid"] for each in moves}
        assert evicted == self.pods.left, "pods left without a Migration"
        replaced = {replacement_of(each) for each in moves}
        hits = sum(self._hit(each) for each in moves)
        assert hits == sum(each["status"].get("outcome") == "AsPlanned" for each in moves)
        return Landed(len(moves), hits, len(evicted & replaced))

    def _hit(self, migration: Json) -> bool:
        pod = self.pods.now.get(replacement_of(migration))
        return pod is not None and node_of(pod) == migration["spec"]["target"]

    async def _measured(self, node: str) -> str:
        path = f"/apis/metrics.k8s.io/v1beta1/nodes/{node}"
        found = await asyncio.to_thread(self.cluster.control_plane.api.get, path)
        return str(found["timestamp"])


@dataclass(frozen=True, slots=True)
class Landed:
    """The results of moves."""

    evictions: int
    as_planned: int
    again: int
    """Replacements that were evicted themselves."""


@asynccontextmanager
async def episode(
    cluster: Cluster,
    folder: Path,
    scenario: Scenario,
    *,
    seed: int,
    settings: Mapping[str, Any],
    load: Mapping[str, Any] = LOAD,
    close: float = CLOSE,
    prepare: Prepare | None = None,
) -> AsyncIterator[Episode]:
    """Create a scenario on a cluster, and run both programs once its load is measured.

    `prepare` adds to the scenario what it cannot say, before anything is scheduled.

    `close` is how many points a measurement may be away from what pods use. With
    `guide: admission` a policy takes the place of the extender, and kube-scheduler is stock.
    """
    alone = settings.get("guide") == "admission"
    steered = guided(cluster) if alone else extender_running(cluster, folder, settings=load)
    async with steered as extender:
        nodes = await stage(cluster, scenario, seed)
        if prepare is not None:
            await prepare(cluster, nodes)
        if extender is None:
            await cluster.configure_scheduler(stock_scheduler(folder))
        else:
            await use_extender(cluster, extender.url)
        async with watched(cluster) as pods:
            if "usageSource" not in load:
                await measured(cluster, pods, nodes.values(), close)
            async with rebalancer_running(
                cluster, folder, settings={**settings, **load}
            ) as rebalancer:
                yield Episode(
                    cluster=cluster,
                    nodes=nodes,
                    pods=pods,
                    before=dict(pods.now),
                    extender=extender,
                    rebalancer=rebalancer,
                )


@asynccontextmanager
async def guided(cluster: Cluster) -> AsyncIterator[None]:
    """Install the CRDs and the policy that guides replacements, as shipped."""
    await install(cluster)
    await cluster.apply(yaml.safe_load_all(GUIDE.read_text()))
    yield


def stock_scheduler(folder: Path) -> Path:
    """Write the configuration of a scheduler that was never touched: no extender, sampling."""
    config = yaml.safe_load(SHIPPED.read_text())
    del config["extenders"]
    for profile in config["profiles"]:
        del profile["percentageOfNodesToScore"]
    path = folder / "stock-scheduler.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


async def measured(
    cluster: Cluster, pods: Pods, nodes: Iterable[str], close: float = CLOSE
) -> None:
    """Wait until measurements show what pods use; the first ones are of pods that start."""
    true = partial(_are_measured, cluster, pods, list(nodes), close)
    await cluster.wait(true, MEASURED_S, "all nodes and pods are measured")


async def _are_measured(cluster: Cluster, pods: Pods, nodes: Sequence[str], close: float) -> bool:
    await SYSTEM.sleep(0.5)
    try:
        return await _shown(cluster, pods, nodes, close)
    except Refused as refusal:
        # A metrics-server that answers late is not available for a moment.
        if refusal.status != 503:
            raise
        return False


async def _shown(cluster: Cluster, pods: Pods, nodes: Sequence[str], close: float) -> bool:
    used = {each["metadata"]["name"]: each["usage"] for each in await _metrics(cluster, "nodes")}
    milli = {node: quantity.milli(usage["cpu"]) for node, usage in used.items()}
    true = pods.percent(nodes)
    if any(abs(milli.get(n, 0) / NODE_MILLI * 100 - true[n]) >= close for n in nodes):
        return False
    known = {each["metadata"]["name"] for each in await _metrics(cluster, "pods")}
    return known.issuperset(pod["metadata"]["name"] for pod in pods.now.values())


async def _metrics(cluster: Cluster, kind: str) -> list[Json]:
    path = f"/apis/metrics.k8s.io/v1beta1/{kind}"
    found: list[Json] = (await asyncio.to_thread(cluster.control_plane.api.get, path))["items"]
    return found


async def migrations_of(cluster: Cluster) -> list[Json]:
    """Return all Migrations."""
    path = f"/apis/{API_VERSION}/migrations"
    found: list[Json] = (await asyncio.to_thread(cluster.control_plane.api.get, path))["items"]
    return found


async def nothing_open(cluster: Cluster) -> bool:
    """Tell whether no move is under way."""
    return not any(phase_of(each) in OPEN for each in await migrations_of(cluster))


def phase_of(migration: Json) -> str:
    return str(migration.get("status", {}).get("phase", ""))


def was_evicted(migration: Json) -> bool:
    return "evictedAt" in migration.get("status", {})


def replacement_of(migration: Json) -> str:
    """Return the uid of the replacement."""
    return str(migration["status"].get("replacement", {}).get("uid", ""))
