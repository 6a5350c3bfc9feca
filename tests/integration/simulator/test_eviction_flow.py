# SPDX-License-Identifier: Apache-2.0
"""Evictions over HTTP: budgets are honoured, replacements come elsewhere."""

from __future__ import annotations

import json
from typing import Any

import aiohttp

from common.kube.resources import NODES, PDBS
from simulator import build
from simulator.api import Json
from simulator.cluster import SimulatedCluster
from tests.support.stands.simulated_cluster import cluster_of, condition, pods_of, ready, until

ANTI_AFFINITY = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }
            ]
        }
    }
}


async def evict(cluster: SimulatedCluster, pod: Json) -> tuple[int, Json]:
    """Evict as a client does; return the code and the answer."""
    name = pod["metadata"]["name"]
    body: dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "default"},
        "deleteOptions": {"preconditions": {"uid": pod["metadata"]["uid"]}},
    }
    path = f"/api/v1/namespaces/default/pods/{name}/eviction"
    async with (
        aiohttp.ClientSession(cluster.server.url) as session,
        session.post(path, json=body) as got,
    ):
        answer: Json = json.loads(await got.read())
        return got.status, answer


async def test_an_evicted_pod_is_replaced_on_another_node() -> None:
    # Of three nodes each holds one; while the old pod is ending it still repels, so the
    # replacement can only go to the fourth.
    web = build.deployment(
        "web",
        3,
        spec={**ANTI_AFFINITY, "terminationGracePeriodSeconds": 3600},
        annotations={build.STOP_AFTER: "1h"},
    )
    async with cluster_of(4, web) as cluster:
        await until(cluster, lambda: len(ready(cluster, "web")) == 3)
        before = {pod["spec"]["nodeName"] for pod in ready(cluster, "web")}
        victim = ready(cluster, "web")[0]
        code, _ = await evict(cluster, victim)
        await until(cluster, lambda: len(ready(cluster, "web")) == 3)
        after = {pod["spec"]["nodeName"] for pod in ready(cluster, "web")}
        ending = next(
            p for p in cluster.pods() if p["metadata"]["uid"] == victim["metadata"]["uid"]
        )
    assert code == 201
    assert after - before
    assert victim["spec"]["nodeName"] not in after
    assert condition(ending, "DisruptionTarget")["reason"] == "EvictionByEvictionAPI"


async def test_a_budget_lets_go_one_pod_at_a_time() -> None:
    web = build.deployment("web", 3)
    budget = build.pdb("web", match={"app": "web"}, max_unavailable=1)
    async with cluster_of(3, web, budget) as cluster:
        await until(cluster, lambda: len(ready(cluster, "web")) == 3)
        await until(cluster, lambda: allowed(cluster) == 1)
        first, second, _ = ready(cluster, "web")
        cordon(cluster, on=True)  # a replacement that is Ready by then would free the budget
        assert (await evict(cluster, first))[0] == 201
        code, answer = await evict(cluster, second)
        assert code == 429
        assert answer["details"]["causes"][0]["reason"] == "DisruptionBudget"
        cordon(cluster, on=False)
        await until(cluster, lambda: len(ready(cluster, "web")) == 3 and allowed(cluster) == 1)
        assert (await evict(cluster, second))[0] == 201


async def test_a_budget_that_wants_all_pods_lets_none_go() -> None:
    web = build.deployment("web", 2)
    budget = build.pdb("web", match={"app": "web"}, min_available="100%")
    async with cluster_of(3, web, budget) as cluster:
        await until(cluster, lambda: len(ready(cluster, "web")) == 2)
        code, _ = await evict(cluster, ready(cluster, "web")[0])
        assert code == 429
        assert len(pods_of(cluster, "web")) == 2


def cordon(cluster: SimulatedCluster, *, on: bool) -> None:
    for name in cluster.node_names():
        cluster.store.patch(NODES, name, {"spec": {"unschedulable": on or None}})


def allowed(cluster: SimulatedCluster) -> int:
    status = cluster.store.get(PDBS, "web", "default").get("status") or {}
    return int(status.get("disruptionsAllowed", 0))
