# SPDX-License-Identifier: Apache-2.0
"""The idea in a hundred lines: plan, tell the extender, evict, and it lands.

Requests mislead here: hungry pods ask for a tenth of what they use and idle ones for half
as much again, so that kube-scheduler alone takes the hottest nodes for the emptiest. The
loop knows the true load from the manifests, keeps its intents in memory, and moves pods
with nothing but the Eviction API and an extender whose filter keeps the planned node.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from bench.stands.cluster import Cluster
from controlplane.errors import Refused
from controlplane.scheduler_config import SHIPPED
from simulator import build

NODES = 20
HOT = (920, 930, 950, 970)
"""What each of a hot node's pods uses, in milli CPU; the others' use is `COOL`."""
COOL = 550
PODS_A_NODE = 8
CEILING = 6_400
"""80 % of 8 CPU."""

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects


class Intents:
    """Which node the next pod of an owner should get; a pod keeps the node it was given."""

    def __init__(self) -> None:
        self.open: defaultdict[str, list[str]] = defaultdict(list)
        self.given: dict[str, str] = {}

    def target_of(self, pod: Json) -> str | None:
        uid, owner = pod["metadata"]["uid"], owner_of(pod)
        if uid not in self.given and self.open[owner]:
            self.given[uid] = self.open[owner].pop(0)
        return self.given.get(uid)


@asynccontextmanager
async def extender(intents: Intents) -> AsyncIterator[str]:
    """Serve the two verbs that kube-scheduler asks for; give the URL."""

    async def filtered(request: web.Request) -> web.Response:
        asked = await request.json()
        names, target = asked["NodeNames"], intents.target_of(asked["Pod"])
        kept = [target] if target in names else names
        failed = {name: "pod planned for another node" for name in names if name not in kept}
        answer = {"NodeNames": kept, "FailedAndUnresolvableNodes": failed, "Error": ""}
        return web.json_response(answer)

    async def scored(request: web.Request) -> web.Response:
        names = (await request.json())["NodeNames"]
        return web.json_response([{"Host": name, "Score": 5} for name in names])

    app = web.Application()
    app.add_routes([web.post("/filter", filtered), web.post("/prioritize", scored)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def test_every_replacement_lands_as_planned_with_the_fewest_evictions(
    cluster: Cluster, tmp_path: Path
) -> None:
    intents = Intents()
    async with extender(intents) as url:
        await cluster.configure_scheduler(_with_extender(tmp_path), extender_url=url)
        before = await _hot_cluster(cluster)
        moves = list(_plan(before))
        for pod, target in moves:
            intents.open[owner_of(pod)].append(target)
        await asyncio.gather(*(_evict(cluster, pod) for pod, _ in moves))
        after = await cluster.wait(lambda: _replaced(cluster, moves), 60, "all pods run again")

    moved = {uid_of(pod) for pod in before} - {uid_of(pod) for pod in after}
    landed = {uid_of(pod): node_of(pod) for pod in after}
    print(f"{len(moves)} evictions, hottest node {max(_loads(before).values()) / 80:.0f} %"
          f" before, {max(_loads(after).values()) / 80:.0f} % after")  # fmt: skip
    assert len(moved) == len(moves) == _lower_bound(before) == 8
    assert not any(intents.open.values())
    assert len(intents.given) == len(moves)
    assert {uid: landed.get(uid) for uid in intents.given} == intents.given
    assert max(_loads(after).values()) <= CEILING


async def _hot_cluster(cluster: Cluster) -> list[Json]:
    """Fill the nodes, the first ones too much, and give the pods owners afterwards."""
    nodes = await cluster.add_nodes(NODES)
    hungry = [_owner(cluster, f"hungry{i}", use, ask=use // 10) for i, use in enumerate(HOT)]
    idle = [_owner(cluster, f"idle{i}", COOL, ask=COOL * 3 // 2) for i in range(NODES - len(HOT))]
    owners = [*hungry, *idle]
    await cluster.create(
        _pod_of(owner, number, node)
        for owner, node in zip(owners, nodes, strict=True)
        for number in range(PODS_A_NODE)
    )
    await cluster.wait(lambda: _running(cluster), 60, "all pods run")
    await cluster.create(owners)
    return await cluster.wait(lambda: _running(cluster, owned=True), 60, "all pods have owners")


def _owner(cluster: Cluster, name: str, use: int, *, ask: int) -> Json:
    return build.replica_set(
        name, PODS_A_NODE, namespace=cluster.namespace, cpu=f"{ask}m", usage_cpu=f"{use}m"
    )


def _pod_of(owner: Json, number: int, node: str) -> Json:
    """Return a pod for the ReplicaSet to adopt."""
    template = owner["spec"]["template"]
    metadata = template["metadata"] | {"name": f"{owner['metadata']['name']}-{number}"}
    spec = template["spec"] | {"nodeName": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _plan(pods: list[Json]) -> Iterator[tuple[Json, str]]:
    """Move a hot node's largest pods to the least loaded node until it is below the ceiling."""
    loads = _loads(pods)
    for node in sorted(loads, key=lambda name: -loads[name]):
        for pod in sorted((p for p in pods if node_of(p) == node), key=use_of, reverse=True):
            if loads[node] <= CEILING:
                break
            target = min(loads, key=lambda name: (loads[name], name))
            assert loads[target] + use_of(pod) <= CEILING
            loads[node] -= use_of(pod)
            loads[target] += use_of(pod)
            yield pod, target


def _lower_bound(pods: list[Json]) -> int:
    """Return the fewest evictions with which any plan can bring all nodes to the ceiling."""
    bound = 0
    for node, load in _loads(pods).items():
        excess = load - CEILING
        for use in sorted((use_of(p) for p in pods if node_of(p) == node), reverse=True):
            if excess <= 0:
                break
            excess -= use
            bound += 1
    return bound


async def _evict(cluster: Cluster, pod: Json) -> None:
    name, uid = pod["metadata"]["name"], uid_of(pod)
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{name}/eviction"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    body["deleteOptions"] = {"preconditions": {"uid": uid}}

    async def accepted() -> bool:
        try:
            await asyncio.to_thread(cluster.control_plane.api.request, "POST", path, body)
        except Refused as refusal:
            if refusal.status != 429:
                raise
            return False
        return True

    await cluster.wait(accepted, what=f"the eviction of {name}")


async def _running(cluster: Cluster, *, owned: bool = False) -> list[Json]:
    """Return all pods once they run; until then nothing."""
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    pods = (await asyncio.to_thread(cluster.control_plane.api.get, path))["items"]
    settled = len(pods) == NODES * PODS_A_NODE and all(
        pod["status"]["phase"] == "Running" and (owner_of(pod) or not owned) for pod in pods
    )
    return pods if settled else []


async def _replaced(cluster: Cluster, moves: list[tuple[Json, str]]) -> list[Json]:
    pods = await _running(cluster, owned=True)
    gone = {uid_of(pod) for pod, _ in moves}
    return [] if gone & {uid_of(pod) for pod in pods} else pods


def _loads(pods: list[Json]) -> dict[str, int]:
    loads: defaultdict[str, int] = defaultdict(int)
    for pod in pods:
        loads[node_of(pod)] += use_of(pod)
    return loads


def _with_extender(folder: Path) -> Path:
    """Write the shipped configuration with one extender of the sketch's two verbs."""
    config = yaml.safe_load(SHIPPED.read_text())
    verbs = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 1}
    config["extenders"] = [{"urlPrefix": "http://127.0.0.1", "nodeCacheCapable": True, **verbs}]
    path = folder / "scheduler-config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def owner_of(pod: Json) -> str:
    return next((ref["uid"] for ref in pod["metadata"].get("ownerReferences", ())), "")


def uid_of(pod: Json) -> str:
    return str(pod["metadata"]["uid"])


def node_of(pod: Json) -> str:
    return str(pod["spec"]["nodeName"])


def use_of(pod: Json) -> int:
    return int(pod["metadata"]["annotations"][build.USAGE_CPU].removesuffix("m"))
