# SPDX-License-Identifier: Apache-2.0
"""Two pools and two namespaces that want the opposite, on a real cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.stands.cluster import Cluster
from bench.stands.episode import migrations_of, nothing_open, was_evicted
from bench.stands.extender_process import extender_running, use_extender
from bench.stands.real_scenario import app_of, is_ready, node_of, pods_path
from bench.stands.rebalancer_process import LOAD, QUICK, rebalancer_running
from simulator import build
from tests.support.stands.command import evenkeel
from tests.support.stands.control_plane import Say

pytestmark = pytest.mark.real

Json = dict[str, Any]  # Any: what a program says, and what it is told

CEILINGS = "ResourceOptimization"
PATIENCE_S = 120.0
REPLICAS = 3


def pools(prefix: str) -> list[Json]:
    return [
        {
            "name": "web",
            "nodeSelector": f"pool={prefix}-web",
            "cpuThreshold": 60.0,
            "modes": {CEILINGS: "act"},
        },
        {"name": "batch", "nodeSelector": {"pool": f"{prefix}-batch"}, "cpuThreshold": 95.0},
    ]


async def pods_of(cluster: Cluster, *namespaces: str) -> list[Json]:
    get = cluster.control_plane.api.get
    lists = [await asyncio.to_thread(get, pods_path(name)) for name in namespaces]
    return [pod for found in lists for pod in found["items"]]


async def test_each_gets_what_it_asked_for_and_why_says_which_rule_decided(
    cluster: Cluster, tmp_path: Path, say: Say
) -> None:
    """Six pods ask for three quarters of a node of each pool; another node of it is empty.

    The pool `web` wants to be relieved early and acts, `batch` is packed and only observes. Of the
    two namespaces on both, the bank's pods must stay.
    """
    shop, bank = cluster.namespace, await cluster.new_namespace()
    load = {**LOAD, "usageSource": "requests", "pools": pools(shop)}
    rules = [
        {"selector": {"kubernetes.io/metadata.name": bank}, "modes": {CEILINGS: "observe"}},
        {"selector": ""},
    ]
    settings = {
        **QUICK,
        "mode": "observe",
        "enabledStrategies": [CEILINGS],
        "namespaces": rules,
        "workloadCooldown": "0s",
    }
    async with extender_running(cluster, tmp_path, settings=load) as extender:
        await use_extender(cluster, extender.url)
        full = {p: await one_node(cluster, f"{shop}-{p}") for p in ("web", "batch")}
        await cluster.create(
            build.deployment(
                f"{kind}-{pool}",
                REPLICAS,
                namespace=namespace,
                cpu="1000m",
                spec={"nodeSelector": {"pool": f"{shop}-{pool}"}},
            )
            for kind, namespace in (("shop", shop), ("bank", bank))
            for pool in full
        )

        async def all_ready() -> bool:
            found = await pods_of(cluster, shop, bank)
            return len(found) == 4 * REPLICAS and all(map(is_ready, found))

        await cluster.wait(all_ready, PATIENCE_S, "all pods are Ready")
        before = {pod["metadata"]["uid"] for pod in await pods_of(cluster, bank)}
        empty = {p: await one_node(cluster, f"{shop}-{p}") for p in full}
        async with rebalancer_running(
            cluster, tmp_path, settings={**settings, **load}
        ) as rebalancer:

            async def relieved() -> bool:
                found = await pods_of(cluster, shop, bank)
                left = sum(node_of(pod) == full["web"] for pod in found)
                return left == 4 and await all_ready() and await nothing_open(cluster)

            await cluster.wait(relieved, PATIENCE_S, "the node of web is relieved")
            began = await rebalancer.cycles()

            async def later() -> bool:
                return await rebalancer.cycles() >= began + 3

            await cluster.wait(later, PATIENCE_S, "three more cycles")
            flags = ["--kubeconfig", str(cluster.kubeconfig), "--timeout", "60s"]
            flags += ["--config", str(tmp_path / "rebalancer.yaml")]
            found = await pods_of(cluster, shop, bank)
            kept = next(pod for pod in found if app_of(pod) == "bank-web")
            why_kept = await evenkeel(*flags, "why", "pod", f"{bank}/{kept['metadata']['name']}")
            why_packed = await evenkeel(*flags, "why", "node", full["batch"])
            moved = [each for each in await migrations_of(cluster) if was_evicted(each)]
    places = Counter((app_of(pod), node_of(pod)) for pod in found)
    say(f"{len(moved)} moves, to {[each['spec']['target'] for each in moved]}")
    assert places["shop-web", empty["web"]] == len(moved) == 2
    assert {each["spec"]["source"] for each in moved} == {full["web"]}
    assert before <= {pod["metadata"]["uid"] for pod in found}
    assert places["shop-batch", full["batch"]] == places["bank-batch", full["batch"]] == REPLICAS
    assert why_kept.code == why_packed.code == 0, (why_kept.err, why_packed.err)
    assert "RuleObserves" in why_kept.out
    assert f"namespaces[0] (kubernetes.io/metadata.name={bank})" in why_kept.out
    assert f"pool batch (pool={shop}-batch) sets cpuThreshold" in why_packed.out
    assert "95 % CPU" in why_packed.out


async def one_node(cluster: Cluster, pool: str) -> str:
    [name] = await cluster.add_nodes(1, cpu="8", memory="16Gi", labels={"pool": pool})
    return name
