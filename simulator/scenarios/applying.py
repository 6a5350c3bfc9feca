# SPDX-License-Identifier: Apache-2.0
"""Create a scenario on any cluster through its API.

Nodes join cordoned, so that the scheduler places no pods; pods are bound as the scenario
requires, without the scheduler; then the nodes are uncordoned. The scheduler places the pods
that are left.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any, Final

from common.clock import Clock
from common.cluster import quantities as quantity
from common.config import ConfigError
from common.kube.client import KubeClient
from common.kube.resources import (
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PDBS,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    Resource,
)
from simulator import build
from simulator.build import Manifest
from simulator.rng import Rng
from simulator.scenarios.manifests import names_of, namespaces_of, nodes_of, workload_manifests
from simulator.scenarios.placing import Piece, Place, PlacingError, drawn_levels, place
from simulator.scenarios.schema import Scenario, Workload

_KINDS: Final[Mapping[str, Resource]] = {
    each.kind: each
    for each in (NAMESPACES, NODES, PDBS, PODS, DEPLOYMENTS, REPLICASETS, STATEFULSETS)
}
_PATIENCE_S: Final = 120.0
_EVERY_S: Final = 0.5

Json = dict[str, Any]  # Any: nested API objects


async def apply(scenario: Scenario, client: KubeClient, *, seed: int, clock: Clock) -> None:
    """Create a scenario; return when all of its pods are Ready. Late nodes are left out."""
    nodes = [node for pool in scenario.pools if not pool.joins_after for node in nodes_of(pool)]
    placed = bool(scenario.load) or any(workload.nodes for workload in scenario.workloads)
    namespaces = [build.namespace(name) for name in namespaces_of(scenario)]
    await _create(client, [*(map(_cordoned, nodes) if placed else nodes), *namespaces])
    for workload in scenario.workloads:
        await _create(client, workload_manifests(workload))
    await _until(clock, "the nodes are Ready", lambda: _ready(client, NODES, len(nodes)))
    if placed:
        count = sum(_first_pods(each) for each in scenario.workloads)
        await _until(clock, "the pods are made", lambda: _made(client, count))
        await _bind(client, placements(scenario, nodes, await _items(client, PODS), seed))
        await _open(client, nodes)
    pods = sum(each.count * each.replicas for each in scenario.workloads)
    await _until(clock, "the pods are Ready", lambda: _ready(client, PODS, pods))


async def join_later(scenario: Scenario, client: KubeClient, *, clock: Clock) -> None:
    """Let the nodes of late pools join when their time comes."""
    passed = 0.0
    for pool in sorted(scenario.pools, key=lambda each: each.joins_after.seconds):
        if pool.joins_after:
            await clock.sleep(pool.joins_after.seconds - passed)
            passed = pool.joins_after.seconds
            await _create(client, nodes_of(pool))


def placements(
    scenario: Scenario, nodes: Sequence[Manifest], pods: Sequence[Json], seed: int
) -> dict[tuple[str, str], str]:
    """Return the node of each pod, by namespace and name; pure."""
    places = _places(scenario, nodes, seed)
    by_app: dict[str, list[Json]] = {}
    for pod in sorted(pods, key=_key):
        by_app.setdefault(pod["metadata"].get("labels", {}).get("app", ""), []).append(pod)
    found: dict[tuple[str, str], str] = {}
    rest: list[Json] = []
    for workload in scenario.workloads:
        mine = [pod for name in names_of(workload) for pod in by_app.get(name, ())]
        if workload.nodes:
            found |= _pinned(workload, mine, places)
        else:
            rest += mine
    if not scenario.load:
        return found
    try:
        chosen = place([_piece(pod) for pod in rest], list(places.values()))
    except PlacingError as error:
        raise ConfigError(f"load: {error}") from None
    return found | {_key(pod): chosen["/".join(_key(pod))] for pod in rest}


def _places(scenario: Scenario, nodes: Sequence[Manifest], seed: int) -> dict[str, Place]:
    """Return the nodes with their target usage."""
    by_name = {node["metadata"]["name"]: node for node in nodes}
    percent = drawn_levels(scenario, list(by_name), Rng(seed)) if scenario.load else {}
    return {name: _place_of(node, percent.get(name, 0.0)) for name, node in by_name.items()}


def _place_of(node: Manifest, percent: float) -> Place:
    whole = node["status"]["allocatable"]
    cpu = quantity.milli(whole["cpu"])
    memory, pods = quantity.whole(whole["memory"]), int(whole["pods"])
    return Place(node["metadata"]["name"], cpu * percent / 100, cpu, memory, pods)


def _pinned(
    workload: Workload, pods: Sequence[Json], places: Mapping[str, Place]
) -> dict[tuple[str, str], str]:
    """Place the pods of a workload with fixed nodes; they use up the targets."""
    found = {}
    for pod, name in zip(pods, cycle(workload.nodes)):
        if name not in places:
            raise ConfigError(f"workload {workload.name}: node {name} not found")
        piece = _piece(pod)
        places[name].take(piece)
        places[name].target_milli -= piece.usage_milli
        places[name].used_milli -= piece.usage_milli
        found[_key(pod)] = name
    return found


def _piece(pod: Json) -> Piece:
    metadata = pod["metadata"]
    asked = pod["spec"]["containers"][0]["resources"].get("requests", {})
    usage = metadata.get("annotations", {}).get(build.USAGE_CPU, "1m")
    return Piece(
        "/".join(_key(pod)),
        metadata.get("labels", {}).get("app", ""),
        quantity.milli(usage),
        quantity.milli(asked.get("cpu", "0")),
        quantity.whole(asked.get("memory", "0")),
    )


def _cordoned(node: Manifest) -> Manifest:
    return {**node, "spec": {**node["spec"], "unschedulable": True}}


def _first_pods(workload: Workload) -> int:
    """Return how many pods exist before any of them is Ready."""
    ordered = workload.kind == "StatefulSet" and not workload.parallel
    return workload.count * (1 if ordered else workload.replicas)


async def _create(client: KubeClient, manifests: Iterable[Manifest]) -> None:
    async def one(manifest: Manifest) -> None:
        resource = _KINDS[manifest["kind"]]
        namespace = manifest["metadata"].get("namespace") if resource.namespaced else None
        await client.create(resource, manifest, namespace=namespace)

    await asyncio.gather(*map(one, manifests))


async def _bind(client: KubeClient, where: Mapping[tuple[str, str], str]) -> None:
    """Bind pods, as a scheduler does."""

    async def one(namespace: str, name: str, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await client.create(PODS, body, namespace=namespace, name=name, subresource="binding")

    await asyncio.gather(*(one(*key, node) for key, node in where.items()))


async def _open(client: KubeClient, nodes: Iterable[Manifest]) -> None:
    """Uncordon the nodes."""
    body = {"spec": {"unschedulable": None}}
    names = [node["metadata"]["name"] for node in nodes]
    await asyncio.gather(*(client.patch(NODES, body, name=name) for name in names))


async def _items(client: KubeClient, resource: Resource) -> list[Json]:
    found: list[Json] = json.loads(await client.get(resource.path()))["items"]
    return found


async def _made(client: KubeClient, count: int) -> bool:
    return len(await _items(client, PODS)) >= count


async def _ready(client: KubeClient, resource: Resource, count: int) -> bool:
    return sum(_is_ready(each) for each in await _items(client, resource)) >= count


async def _until(clock: Clock, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
    end = clock.monotonic() + _PATIENCE_S
    while not await holds():
        if clock.monotonic() > end:
            raise ConfigError(f"the scenario was not created within {_PATIENCE_S:g} s: {what}")
        await clock.sleep(_EVERY_S)


def _is_ready(obj: Json) -> bool:
    conditions: Iterable[Json] = obj.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _key(pod: Json) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]
