# SPDX-License-Identifier: Apache-2.0
"""Scenarios of the simulator on the real control plane, and a watch of their pods.

The same manifests as on the simulator; pods are bound as the scenario requires, without the
scheduler, which must not run meanwhile. The usage of nodes is known from the manifests, so that
nothing here depends on the programs under test.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from bench.stands.cluster import Cluster
from bench.stands.http import open_http
from common.cluster import quantities as quantity
from simulator import build
from simulator.scenarios import Scenario
from simulator.scenarios.applying import placements
from simulator.scenarios.manifests import names_of, nodes_of, workload_manifests
from simulator.scenarios.schema import Pool

if TYPE_CHECKING:
    import httpx

PATIENCE_S = 60.0
NODE_MILLI = 8_000

Json = dict[str, Any]  # Any: nested API objects


class Pods:
    """All pods of a test, from a watch."""

    def __init__(self, namespace: str, found: Iterable[Json]) -> None:
        self.namespace = namespace
        self.now: dict[str, Json] = {uid_of(pod): pod for pod in found}
        self.ever: dict[str, Json] = dict(self.now)
        self.checks: list[Callable[[], None]] = []
        """Called after each event; what they raise fails the test."""

    @property
    def left(self) -> set[str]:
        """Uids of the pods that are gone or terminating."""
        return {uid for uid in self.ever if uid not in self.now or ending(self.now[uid])}

    @property
    def settled(self) -> bool:
        """Return whether every pod is Ready and none is terminating."""
        return all(is_ready(pod) and not ending(pod) for pod in self.now.values())

    def on(self, node: str) -> list[Json]:
        return [pod for pod in self.now.values() if node_of(pod) == node]

    def percent(self, nodes: Iterable[str]) -> dict[str, float]:
        """Return the CPU utilization of each node, without terminating pods."""
        used: Counter[str] = Counter()
        for pod in self.now.values():
            if not ending(pod):
                used[node_of(pod)] += use_of(pod)
        return {node: 100 * used[node] / NODE_MILLI for node in nodes}

    async def follow(self, http: httpx.AsyncClient, version: str) -> None:
        """Follow all changes since a version."""
        params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "3600"}
        path = pods_path(self.namespace)
        async with http.stream("GET", path, params=params, timeout=None) as answer:
            async for line in answer.aiter_lines():
                self._take(json.loads(line))
        raise AssertionError("the watch of pods has ended")

    def _take(self, event: Json) -> None:
        pod = event["object"]
        assert event["type"] in ("ADDED", "MODIFIED", "DELETED"), event
        self.ever[uid_of(pod)] = pod
        if event["type"] == "DELETED":
            self.now.pop(uid_of(pod), None)
        else:
            self.now[uid_of(pod)] = pod
        for check in self.checks:
            check()


@contextlib.asynccontextmanager
async def watched(cluster: Cluster) -> AsyncIterator[Pods]:
    """Watch the pods of a test; a check that failed fails the block at its end."""
    async with open_http(cluster.kubeconfig) as http:
        found = (await http.get(pods_path(cluster.namespace))).raise_for_status().json()
        pods = Pods(cluster.namespace, found["items"])
        following = asyncio.create_task(pods.follow(http, found["metadata"]["resourceVersion"]))
        try:
            yield pods
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following


async def stage(cluster: Cluster, scenario: Scenario, seed: int) -> dict[str, str]:
    """Stop the scheduler and create a scenario; return its nodes by their names in it."""
    await cluster.stop("kube-scheduler")
    nodes: dict[str, str] = {}
    for pool in (pool for pool in scenario.pools if not pool.joins_after):
        nodes |= await join(cluster, pool)
    for workload in scenario.workloads:
        here = workload.model_copy(update={"namespace": cluster.namespace})
        await cluster.create(workload_manifests(here))
    if scenario.workloads:
        await _place(cluster, scenario, nodes, seed)
    await cluster.wait(lambda: _run(cluster), PATIENCE_S, "all pods run")
    return nodes


async def join(cluster: Cluster, pool: Pool) -> dict[str, str]:
    """Let the nodes of a pool join; return their names here by those in the scenario."""
    made = await cluster.add_nodes(
        pool.count, cpu=pool.cpu, memory=pool.memory, pods=pool.pods, zones=len(pool.zones)
    )
    return {f"{pool.name}-{number}": name for number, name in enumerate(made, 1)}


async def _place(cluster: Cluster, scenario: Scenario, nodes: dict[str, str], seed: int) -> None:
    wanted = {name: w.replicas for w in scenario.workloads for name in names_of(w)}
    made = await cluster.wait(lambda: _made(cluster, wanted), PATIENCE_S, "all pods are made")
    await _bind(cluster, placement(scenario, made, nodes, seed))


def placement(
    scenario: Scenario, made: Iterable[Json], nodes: dict[str, str], seed: int
) -> dict[str, str]:
    """Return the node of each pod, by name; the same for the same seed."""
    present = [node for pool in scenario.pools if not pool.joins_after for node in nodes_of(pool)]
    found = placements(scenario, present, list(made), seed)
    return {name: nodes[node] for (_, name), node in found.items()}


async def place(cluster: Cluster, workloads: Mapping[str, tuple[Json, Sequence[str]]]) -> None:
    """Create workloads by name, with one pod on each of their nodes; the scheduler must not run."""
    await cluster.create(made for made, _ in workloads.values())
    wanted = {name: len(nodes) for name, (_, nodes) in workloads.items()}
    pods = await cluster.wait(lambda: _made(cluster, wanted), PATIENCE_S, "all pods are made")
    left = {name: list(nodes) for name, (_, nodes) in workloads.items()}
    await _bind(cluster, {str(p["metadata"]["name"]): left[app_of(p)].pop(0) for p in pods})
    await cluster.wait(lambda: _run(cluster), PATIENCE_S, "all pods run")


async def _made(cluster: Cluster, wanted: dict[str, int]) -> list[Json]:
    """Return the pods of these workloads once all exist."""
    found = [pod for pod in await _list(cluster) if app_of(pod) in wanted]
    done = Counter(map(app_of, found)) == Counter(wanted)
    return sorted(found, key=lambda pod: str(pod["metadata"]["name"])) if done else []


async def _run(cluster: Cluster) -> bool:
    return all(is_ready(pod) for pod in await _list(cluster))


async def _list(cluster: Cluster) -> list[Json]:
    path = pods_path(cluster.namespace)
    found: list[Json] = (await asyncio.to_thread(cluster.control_plane.api.get, path))["items"]
    return found


async def _bind(cluster: Cluster, where: dict[str, str]) -> None:
    """Bind pods, as a scheduler does."""
    api, path = cluster.control_plane.api, pods_path(cluster.namespace)

    def one(name: str, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        api.request("POST", f"{path}/{name}/binding", body)

    await asyncio.gather(*(asyncio.to_thread(one, *each) for each in where.items()))


def pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def uid_of(pod: Json) -> str:
    return str(pod["metadata"]["uid"])


def app_of(pod: Json) -> str:
    return str(pod["metadata"].get("labels", {}).get("app", ""))


def node_of(pod: Json) -> str:
    return str(pod["spec"].get("nodeName", ""))


def use_of(pod: Json) -> int:
    """Return the actual CPU usage of a pod."""
    return quantity.milli(pod["metadata"].get("annotations", {}).get(build.USAGE_CPU, "0"))


def fewest(pods: Iterable[Json], ceiling_percent: float) -> int:
    """Return the fewest evictions with which any plan can bring all nodes to a ceiling."""
    by_node: dict[str, list[int]] = {}
    for pod in pods:
        by_node.setdefault(node_of(pod), []).append(use_of(pod))
    ceiling_milli = NODE_MILLI * ceiling_percent / 100
    return sum(_fewest_of(uses, ceiling_milli) for uses in by_node.values())


def _fewest_of(uses: list[int], ceiling_milli: float) -> int:
    """Return how many of the largest pods exceed what is above the ceiling."""
    excess = sum(uses) - ceiling_milli
    departed = accumulate(sorted(uses, reverse=True), initial=0)
    return next(count for count, gone in enumerate(departed) if gone >= excess)


def ending(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
