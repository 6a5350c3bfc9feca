# SPDX-License-Identifier: Apache-2.0
"""A scenario made through an API: as its file says, and past the scheduler."""

from __future__ import annotations

import asyncio
from pathlib import Path

from common.clock import SYSTEM
from common.kube.client import connect
from simulator.cluster import Settings, simulate
from simulator.scenarios import Scenario
from simulator.scenarios.applying import apply, join_later
from tests.support.clock import FakeClock

TEXT = {
    "pools": [
        {"name": "node", "count": 3, "zones": ["a", "b"]},
        {"name": "late", "count": 1, "joinsAfter": "1m"},
    ],
    "workloads": [
        {"name": "web", "count": 2, "replicas": 6, "requests": {"cpu": "100m"},
         "usage": {"cpu": "1"}, "pdb": {"maxUnavailable": 1}},
        {"name": "pinned", "replicas": 2, "nodes": ["node-2"], "namespace": "other",
         "requests": {"cpu": "100m"}, "usage": {"cpu": "500m"}},
    ],
    "load": [{"nodes": 1, "from": 85, "to": 90}, {"nodes": 2, "from": 35, "to": 40}],
}  # fmt: skip


async def test_pods_begin_where_the_scenario_wants_them(tmp_path: Path) -> None:
    scenario = Scenario.model_validate(TEXT)
    async with simulate(Settings(speed=50), clock=SYSTEM) as cluster:
        kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig")
        async with connect(kubeconfig=str(kubeconfig), clock=SYSTEM) as client:
            await apply(scenario, client, seed=3, clock=SYSTEM)
            assert cluster.node_names() == ["node-1", "node-2", "node-3"]
            nodes = cluster.cache.snapshot().nodes
            used = {
                name: sum(_cores(pod.name) for pod in n.pods.values()) for name, n in nodes.items()
            }
            assert sorted(used.values()) == [3, 3, 7]
            assert {n.node.unschedulable for n in nodes.values()} == {False}
            homes = {p["spec"]["nodeName"] for p in cluster.pods("other")}
            assert homes == {"node-2"}
            clock = FakeClock()
            joining = asyncio.create_task(join_later(scenario, client, clock=clock))
            await clock.until_sleeping()
            await clock.advance(60)
            await joining
            assert "late-1" in cluster.node_names()


def _cores(name: str) -> float:
    return 0.5 if name.startswith("pinned") else 1.0
