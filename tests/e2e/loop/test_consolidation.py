# SPDX-License-Identifier: Apache-2.0
"""Nodes are emptied for an autoscaler on a real cluster, and new pods do not fill them again.

An autoscaler is played: it removes nodes that have been empty for a while, and looks only at
what Cluster Autoscaler looks at: taints, cordons, and pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from bench.stands.cluster import Cluster
from bench.stands.episode import episode
from bench.stands.real_scenario import node_of
from bench.stands.rebalancer_process import QUICK
from common.api.contract import CONSOLIDATION_SINCE
from simulator import build
from simulator.scenarios import Scenario
from tests.support.stands.control_plane import Say

pytestmark = pytest.mark.real

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects

TARGET = 65.0
EMPTIED_S = 90.0
SETTINGS = {
    **QUICK,
    "enabledStrategies": ["Consolidation", "LoadBalancing", "ResourceOptimization"],
    "consolidation": {"minNodeAge": "1s"},
    "workloadCooldown": "0s",
    "maxInFlightPerNode": 5,
    "maxReschedulePods": 20,
    "minNodeAge": "1s",
}
WORKLOADS = [
    {
        "name": "web",
        "count": 5,
        "replicas": 3,
        "usage": {"cpu": "500m", "memory": "200Mi"},
        "requests": {"cpu": "300m", "memory": "256Mi"},
        "pdb": {"maxUnavailable": 1},
    },
]


def scenario() -> Scenario:
    pool = {"name": "node", "count": 6, "zones": ["a", "b", "c"]}
    load = [{"nodes": 6, "from": 12, "to": 18}]
    return Scenario.model_validate({"pools": [pool], "workloads": WORKLOADS, "load": load})


async def test_nodes_are_freed_and_stay_free_until_an_autoscaler_removes_them(
    cluster: Cluster, tmp_path: Path, say: Say
) -> None:
    async with episode(cluster, tmp_path, scenario(), seed=1, settings=SETTINGS) as loop:
        total = sum(loop.percent().values())
        most = len(loop.nodes) - ceil(total / TARGET)

        def used() -> set[str]:
            return {node_of(pod) for pod in loop.pods.now.values()} & set(loop.nodes.values())

        def freed() -> bool:
            return len(loop.nodes) - len(used()) >= most and loop.pods.settled

        await cluster.wait(freed, EMPTIED_S, f"{most} nodes are empty")
        free = set(loop.nodes.values()) - used()
        assert {name for name in free if not _untouched(await _node(cluster, name))} == set()
        # More pods than nodes that stay: kube-scheduler alone would spread them over all.
        late = build.deployment(
            "late",
            4,
            namespace=cluster.namespace,
            cpu="100m",
            memory="64Mi",
            usage_cpu="100m",
        )
        await cluster.create([late])
        await cluster.wait(lambda: len(_of(loop.pods.now.values(), "late")) == 4, what="they come")
        await cluster.wait(lambda: loop.pods.settled, what="they run")
        await loop.quiet(cycles=5, samples=2)
        assert used().isdisjoint(free), "a node that was freed was filled again"
        landed = await loop.landed()
        for name in sorted(free):
            path = f"/api/v1/nodes/{name}"
            await asyncio.to_thread(cluster.control_plane.api.delete, path)
        await loop.quiet(cycles=5, samples=0)
        hottest = max(loop.pods.percent(used()).values())
        say(
            f"{len(free)} of {len(loop.nodes)} nodes freed, {most} at most; "
            f"{landed.evictions} moves, {landed.as_planned} as planned; the others use at most "
            f"{hottest:.0f} %"
        )
    assert len(free) >= most
    assert landed.as_planned == landed.evictions
    assert landed.again == 0
    assert hottest <= TARGET


async def _node(cluster: Cluster, name: str) -> Json:
    found: Json = await asyncio.to_thread(cluster.control_plane.api.get, f"/api/v1/nodes/{name}")
    return found


def _untouched(node: Json) -> bool:
    """Tell whether an autoscaler sees a node like any other, and both of our programs do not."""
    spec, annotations = node["spec"], node["metadata"].get("annotations") or {}
    ours = [taint for taint in spec.get("taints", ()) if "evenkeel" in taint["key"]]
    return CONSOLIDATION_SINCE in annotations and not spec.get("unschedulable") and not ours


def _of(pods: Iterable[Json], app: str) -> list[Json]:
    return [p for p in pods if (p["metadata"].get("labels") or {}).get("app") == app]
