# SPDX-License-Identifier: Apache-2.0
"""A tenant with the stock `admin` role in one namespace, against its neighbours.

The tenant writes into the real API server whatever it may, all at once and again and again:
objects that cannot be judged, forged ownerReferences, pods that wait for ever, and moves that
go wrong. Meanwhile the neighbour's hot node is leveled and its node is drained, with the
fewest evictions and every replacement where the plan wants it; nothing else of the neighbour
is touched. Nothing is measured here: both programs go by requests, which the API server keeps.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.stands.cluster import MERGE, RBAC, Cluster
from bench.stands.episode import migrations_of, was_evicted
from bench.stands.extender_process import extender_running, use_extender
from bench.stands.http import open_http
from bench.stands.real_scenario import node_of, pods_path, uid_of
from bench.stands.rebalancer_process import QUICK, rebalancer_running
from common.api.contract import API_VERSION
from common.clock import SYSTEM
from simulator import build
from simulator.build import Manifest
from tests.support.stands.control_plane import Say

if TYPE_CHECKING:
    import httpx

pytestmark = pytest.mark.real

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects

LOAD: Mapping[str, Any] = {"usageInterval": "2s", "observations": 2, "usageSource": "requests"}
SETTINGS: Mapping[str, Any] = {
    **QUICK,
    **LOAD,
    "mode": "act",
    "enabledStrategies": ["ResourceOptimization", "NodeMaintenance"],
    "migrationDeadline": "15s",
    "breaker": {"minimum": 2},
}
MOST = 2**63 - 1
NOWHERE = {"nodeSelector": {"nowhere": "at-all"}}
SOON = {"terminationGracePeriodSeconds": 1}
DONE_S = 120.0
LITTLE = "1m"
"""Of the CPU; a pod that asks for nothing would count with an estimate."""


async def test_a_tenant_harms_only_itself(cluster: Cluster, tmp_path: Path, say: Say) -> None:
    tenant_space = await cluster.new_namespace()
    async with extender_running(cluster, tmp_path, settings=LOAD) as extender:
        stage = await staged(cluster, tenant_space)
        before = await stage.pods(cluster.namespace)
        await use_extender(cluster, extender.url)
        async with (
            tenant_of(cluster, tenant_space) as tenant,
            rebalancer_running(cluster, tmp_path, settings=SETTINGS) as rebalancer,
        ):
            accepted = await tenant.write(odd_objects(stage))
            say(f"accepted: {', '.join(sorted(accepted)) or 'nothing'}")
            assert {"owns-itself", "grace", "widgets", "unschedulable", "gang"} <= accepted
            await tenant.own_itself("owns-itself")
            forging = asyncio.create_task(tenant.forge(forged_owners(stage, before)))
            await cluster.maintain(stage.nodes["mine"], on=True)
            await cluster.wait(lambda: stage.failed(tenant_space, 2), DONE_S, "its moves fail")
            began_s = SYSTEM.monotonic()
            await stage.heat()
            await cluster.maintain(stage.nodes["drained"], on=True)
            await cluster.wait(stage.level, DONE_S, "the neighbour is leveled and drained")
            seconds = SYSTEM.monotonic() - began_s
            forging.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await forging
            metrics = await rebalancer.metrics()
            assert metrics.total("_cycles_total", result="failed") == 0
            assert metrics.total("_breaker_open") == 0
            assert metrics.total("_namespaces_stopped", purpose="load") == 1
            assert metrics.total("_namespaces_stopped", purpose="maintenance") == 1
            assert await extender.is_ready()
        moves = [m for m in await stage.migrations(cluster.namespace) if was_evicted(m)]
        say(f"{len(moves)} evictions in {seconds:.0f} s; {tenant.forged} forged pods")
        assert tenant.forged > 10, "it did try"
        assert [m["status"]["outcome"] for m in moves] == ["AsPlanned"] * 4
        evicted = {m["spec"]["pod"]["uid"] for m in moves}
        after = await stage.pods(cluster.namespace)
        gone = {uid for uid in before if uid not in after}
        assert gone == evicted, "something of the neighbour was touched beside the plan"
        apps = Counter(before[uid]["metadata"]["labels"]["app"] for uid in evicted)
        assert apps == {"web": 2, "db": 2}
        for move in moves:
            replaced = after[move["status"]["replacement"]["uid"]]
            assert replaced["metadata"]["namespace"] == cluster.namespace
            assert node_of(replaced) == move["spec"]["target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The cluster, with its nodes by what happens to them."""

    cluster: Cluster
    tenant: str
    """The tenant's namespace."""
    nodes: Mapping[str, str]

    async def pods(self, namespace: str) -> dict[str, Json]:
        """Return the pods of a namespace that stay, by uid."""
        path = pods_path(namespace)
        found = (await self._get(path))["items"]
        return {uid_of(p): p for p in found if "deletionTimestamp" not in p["metadata"]}

    async def migrations(self, namespace: str) -> list[Json]:
        found = await migrations_of(self.cluster)
        return [m for m in found if m["spec"]["pod"]["namespace"] == namespace]

    async def failed(self, namespace: str, count: int) -> bool:
        """Tell whether so many moves of both purposes have failed after their eviction."""
        await SYSTEM.sleep(0.5)
        found = await self.migrations(namespace)
        bad = [m for m in found if was_evicted(m) and m["status"].get("phase") == "Failed"]
        kinds = Counter(m["spec"]["strategy"] for m in bad)
        return min(kinds["ResourceOptimization"], kinds["NodeMaintenance"]) >= count

    async def level(self) -> bool:
        """Tell whether what is to be done for the neighbour is done."""
        await SYSTEM.sleep(0.5)
        space = self.cluster.namespace
        pods = (await self.pods(space)).values()
        hot = sum(_milli(pod) for pod in pods if node_of(pod) == self.nodes["hot"])
        left = [pod for pod in pods if node_of(pod) == self.nodes["drained"]]
        moves = await self.migrations(space)
        closed = all(m.get("status", {}).get("phase") in ("Completed", "Failed") for m in moves)
        return bool(moves) and closed and not left and hot <= 6_400

    async def heat(self) -> None:
        """Put a pod onto the neighbour's node that cannot be moved."""
        ballast = build.pod("ballast", cpu="1000m", node=self.nodes["hot"])
        del ballast["metadata"]["namespace"]
        await self.cluster.create([ballast])

    async def _get(self, path: str) -> Json:
        return await asyncio.to_thread(self.cluster.control_plane.api.get, path)


async def staged(cluster: Cluster, tenant: str) -> Stage:
    """Make nodes and pods of both, each pod where the test wants it.

    The neighbour: `web` fills a node up to its ceiling, `db` has two pods on a node that will
    be drained. The tenant: a node above its ceiling and a node that will be drained, full of
    ReplicaSets whose next pods will fit nowhere.
    """
    await cluster.stop("kube-scheduler")
    names = await cluster.add_nodes(6)
    nodes = dict(zip(("mine", "hot", "drained", "heavy", "free", "spare"), names, strict=True))
    stage = Stage(cluster=cluster, tenant=tenant, nodes=nodes)
    places = {"web": ["hot"] * 8, "db": ["drained", "drained", "free", "spare"]}
    places |= {"solo": ["hot"]}
    places |= {f"bad-{n}": ["heavy"] * 2 for n in range(8)}
    places |= {f"stuck-{n}": ["mine", "free"] for n in range(3)}
    theirs = [
        build.deployment("web", 8, namespace=cluster.namespace, cpu="800m"),
        build.deployment("db", 4, namespace=cluster.namespace, cpu="300m"),
        build.deployment("solo", 1, namespace=cluster.namespace, cpu=LITTLE),
    ]
    mine = [
        *(build.replica_set(f"bad-{n}", 2, namespace=tenant, cpu="450m") for n in range(8)),
        *(build.replica_set(f"stuck-{n}", 2, namespace=tenant, cpu="50m") for n in range(3)),
    ]
    for made in mine:
        made["spec"]["template"]["spec"].update(SOON)
    await cluster.create([*theirs, *mine])
    await cluster.wait(lambda: bound(stage, places), what="all pods run")
    return stage


async def bound(stage: Stage, places: Mapping[str, list[str]]) -> bool:
    """Give pods without a node the one that is theirs; tell whether all of them run."""
    found = [
        pod
        for space in (stage.cluster.namespace, stage.tenant)
        for pod in (await stage.pods(space)).values()
    ]
    by_app: dict[str, list[Json]] = {}
    for pod in sorted(found, key=lambda pod: str(pod["metadata"]["name"])):
        by_app.setdefault(pod["metadata"]["labels"]["app"], []).append(pod)
    if {app: len(pods) for app, pods in by_app.items()} != {a: len(p) for a, p in places.items()}:
        return False
    api = stage.cluster.control_plane.api
    for app, pods in by_app.items():
        for pod, place in zip(pods, places[app], strict=True):
            if not node_of(pod):
                name, space = pod["metadata"]["name"], pod["metadata"]["namespace"]
                target = {"apiVersion": "v1", "kind": "Node", "name": stage.nodes[place]}
                body = {"metadata": {"name": name}, "target": target}
                path = f"{pods_path(space)}/{name}/binding"
                kind = {"apiVersion": "v1", "kind": "Binding"}
                await asyncio.to_thread(api.request, "POST", path, {**kind, **body})
    return all(pod["status"]["phase"] == "Running" for pod in found)


class Tenant:
    """A user with the stock `admin` role in one namespace, and what it writes there."""

    def __init__(self, http: httpx.AsyncClient, namespace: str) -> None:
        self._http = http
        self._namespace = namespace
        self.forged = 0

    async def write(self, objects: Mapping[str, Manifest]) -> set[str]:
        """Create what the API server accepts; return the names of that."""
        answers = {name: await self._create(made) for name, made in objects.items()}
        for name, answer in answers.items():
            assert answer.status_code in (201, 400, 422), f"{name}: {answer.text}"
        return {name for name, answer in answers.items() if answer.status_code == 201}

    async def own_itself(self, name: str) -> None:
        """Let a ReplicaSet be its own controller, and spoil the pods that others will make."""
        path = f"/apis/apps/v1/namespaces/{self._namespace}/replicasets"
        found = (await self._http.get(f"{path}/{name}")).json()
        owner = {**_reference(found), "controller": True}
        await self._patch(f"{path}/{name}", {"metadata": {"ownerReferences": [owner]}})
        for each in (await self._http.get(path)).json()["items"]:
            if each["metadata"]["name"].startswith(("bad-", "stuck-")):
                spoiled = {"spec": {"template": {"spec": NOWHERE}}}
                await self._patch(f"{path}/{each['metadata']['name']}", spoiled)

    async def forge(self, owners: Iterable[tuple[Json, str]]) -> None:
        """Create pods that say they are others' without end; the garbage collector is quick."""
        wanted = list(owners)
        while True:
            for owner, node in wanted:
                made = build.pod(
                    f"forged-{self.forged}", namespace=self._namespace, node=node, cpu=LITTLE
                )
                made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
                if (await self._create(made)).status_code == 201:
                    self.forged += 1
            await SYSTEM.sleep(0.2)

    async def _create(self, made: Manifest) -> httpx.Response:
        group = "/api/v1" if made["apiVersion"] == "v1" else f"/apis/{made['apiVersion']}"
        plural = f"{made['kind'].lower()}s"
        return await self._http.post(f"{group}/namespaces/{self._namespace}/{plural}", json=made)

    async def _patch(self, path: str, body: Json) -> None:
        headers = {"Content-Type": MERGE}
        (await self._http.patch(path, json=body, headers=headers)).raise_for_status()


@asynccontextmanager
async def tenant_of(cluster: Cluster, namespace: str) -> AsyncIterator[Tenant]:
    """Bind the stock role in one namespace and act as its user."""
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "tenant", "namespace": namespace},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "tenant"}],
    }
    await cluster.create([binding])
    async with open_http(await cluster.kubeconfig_of(user="tenant")) as http:
        await cluster.wait(lambda: _may(http, pods_path(namespace)), what="it has its role")
        assert not await _may(http, pods_path(cluster.namespace)), "it is not its namespace"
        assert not await _may(http, f"/apis/{API_VERSION}/migrations")
        yield Tenant(http, namespace)


async def _may(http: httpx.AsyncClient, path: str) -> bool:
    return (await http.get(path)).status_code == 200


def odd_objects(stage: Stage) -> dict[str, Manifest]:
    """Return what a tenant may try to create, by a name for each."""
    space, node = stage.tenant, stage.nodes["hot"]

    def pod(name: str, **spec: Any) -> Manifest:
        return build.pod(name, namespace=space, cpu=LITTLE, memory="1Mi", spec=spec)

    def asking(name: str, amount: Any, resource: str, containers: int = 1) -> Manifest:
        made = pod(name)
        [container] = made["spec"]["containers"]
        wanted = {resource: amount}
        made["spec"]["containers"] = [
            {**container, "name": f"c{n}", "resources": {"requests": wanted, "limits": wanted}}
            for n in range(containers)
        ]
        return made

    grace = build.replica_set("grace", 2, namespace=space, cpu=LITTLE)
    grace["spec"]["template"]["spec"] |= {"terminationGracePeriodSeconds": MOST}
    gang = pod("gang")
    gang["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "training"
    gang["spec"] |= {"schedulingGates": [{"name": "example.com/wait"}]}
    return {
        "owns-itself": build.replica_set("owns-itself", 1, namespace=space, cpu=LITTLE),
        "grace": grace,
        "grace-there": pod("grace-there", terminationGracePeriodSeconds=MOST, nodeName=node),
        "widgets": asking("widgets", str(2**62), "example.com/widget", containers=2),
        "digits": asking("digits", "9" * 400, "cpu"),
        "exponent": asking("exponent", "1e400", "memory"),
        "tiny": asking("tiny", "0." + "0" * 400 + "1", "cpu"),
        "unschedulable": build.replica_set("unschedulable", 20, namespace=space, spec=NOWHERE),
        "elsewhere": pod("elsewhere", schedulerName="another"),
        "gang": gang,
    }


def forged_owners(stage: Stage, before: Mapping[str, Json]) -> Iterable[tuple[Json, str]]:
    """Yield the neighbour's controllers, as they are and as another kind, each with a node."""
    kept = ("apiVersion", "kind", "name", "uid")
    owners = {
        owner["uid"]: {key: owner[key] for key in kept}
        for pod in before.values()
        for owner in pod["metadata"].get("ownerReferences", ())
    }
    for owner in owners.values():
        for node in ("free", "spare"):
            yield owner, stage.nodes[node]
        yield {**owner, "apiVersion": "batch/v1", "kind": "Job"}, stage.nodes["hot"]


def _reference(made: Json) -> Json:
    metadata = made["metadata"]
    kind = {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    return {**kind, "name": metadata["name"], "uid": metadata["uid"]}


def _milli(pod: Json) -> int:
    asked = pod["spec"]["containers"][0].get("resources", {}).get("requests", {}).get("cpu", "0")
    return int(float(asked[:-1]) if asked.endswith("m") else 1000 * float(asked))
