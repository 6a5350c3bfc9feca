# SPDX-License-Identifier: Apache-2.0
"""`python -m rebalancer --once --dry-run` on a real cluster: a plan, and nothing else happens."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.stands.cluster import Cluster
from simulator import build
from tests.support.repository import DEPLOY
from tests.support.stands.once import Json, plan_of, planned, written

READER = DEPLOY / "base" / "reader.yaml"
MEASURED_S = 90.0
HUNGRY, NODES, REPLICAS = "1700m", 6, 4
"""Four such pods use 85 % of a node of 8 cores."""


async def test_a_real_cluster_is_planned_from_what_is_measured(
    cluster: Cluster, tmp_path: Path
) -> None:
    hot = await _one_hot_node(cluster)
    await cluster.bind("planner", READER)
    config = written(
        tmp_path, minPodAge="1s", minNodeAge="1s", enabledStrategies=["ResourceOptimization"]
    )
    kubeconfig = str(await cluster.kubeconfig_of(user="planner"))
    arguments = ["--kubeconfig", kubeconfig, "--config", config]

    async def seen() -> Json | None:
        # The first measurements are of pods that start, and may be anything.
        plan = await plan_of(*arguments)
        return plan if plan["evictions"] == 1 else None

    plan = await cluster.wait(seen, MEASURED_S, "the load is measured and calls for a move")
    assert plan is not None
    assert {move["source"] for move in plan["moves"]} == {hot}
    assert plan["lowerBound"] == 1
    assert plan["unmet"] == []
    after = {node["name"]: node["after"]["cpu"] for node in plan["nodes"]}
    assert max(after.values()) < 80
    _, text, _ = await planned(*arguments)
    print(text)
    assert f"{hot} uses" in text
    assert await _pods_on(cluster, hot) == REPLICAS


async def _one_hot_node(cluster: Cluster) -> str:
    """Fill one node with hungry pods, while the others are closed."""
    names = await cluster.add_nodes(NODES)
    for name in names[1:]:
        await _cordon(cluster, name, on=True)
    await cluster.create(
        [
            build.deployment(
                f"hungry-{i}",
                REPLICAS // 2,
                namespace=cluster.namespace,
                cpu="100m",
                usage_cpu=HUNGRY,
                usage_memory="256Mi",
            )
            for i in range(2)
        ]
    )

    async def running() -> bool:
        return await _pods_on(cluster, names[0]) == REPLICAS

    await cluster.wait(running, what="the hungry pods run")
    for name in names[1:]:
        await _cordon(cluster, name, on=False)
    return names[0]


async def _cordon(cluster: Cluster, node: str, *, on: bool) -> None:
    await cluster.kubectl("cordon" if on else "uncordon", node)


async def _pods_on(cluster: Cluster, node: str) -> int:
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    pods = (await asyncio.to_thread(cluster.control_plane.api.get, path))["items"]
    return sum(pod["spec"].get("nodeName") == node for pod in pods)
