# SPDX-License-Identifier: Apache-2.0
"""A zone comes back on a real cluster, and pods are spread over it with the fewest moves.

kube-scheduler alone leaves them where they are; what counts is where it has placed the
replacements in the end, by a watch of the pods.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from bench.stands.cluster import Cluster
from bench.stands.episode import Episode, episode
from bench.stands.real_scenario import app_of, ending, node_of
from bench.stands.rebalancer_process import QUICK
from simulator import build
from simulator.scenarios import Scenario
from tests.support.stands.control_plane import Say

pytestmark = pytest.mark.real

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects

REPLICAS, MINIMUM = 12, 4
"""6, 6 and none become 4, 4 and 4: every plan moves four pods at least."""
BASE = {
    "name": "base",
    "replicas": 6,
    "requests": {"cpu": "50m", "memory": "64Mi"},
    "usage": {"cpu": "50m", "memory": "64Mi"},
    "nodes": [f"node-{number}" for number in range(1, 7)],
}
LOAD = {"usageSource": "requests"}
SETTINGS = {
    **QUICK,
    "enabledStrategies": ["TopologySpread"],
    "workloadCooldown": "0s",
    "lineageCooldown": "1h",
    "maxInFlightPerNode": 5,
}


def scenario() -> Scenario:
    pool = {"name": "node", "count": 6, "zones": ["a", "b", "c"]}
    return Scenario.model_validate({"pools": [pool], "workloads": [BASE]})


def spread(key: str) -> Json:
    selector = {"matchLabels": {"app": "web"}}
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": "Honor",
        "labelSelector": selector,
    }


async def test_pods_are_spread_over_a_zone_that_has_come_back(
    cluster: Cluster, tmp_path: Path, say: Say
) -> None:
    async with episode(cluster, tmp_path, scenario(), seed=1, settings=SETTINGS, load=LOAD) as loop:
        zones = await _zones(cluster, loop)
        back = [node for node, zone in zones.items() if zone == "zone-3"]
        await _close(cluster, back, on=True)
        keys = ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
        constraints = {"topologySpreadConstraints": [spread(key) for key in keys]}
        web = build.deployment(
            "web", REPLICAS, namespace=cluster.namespace, cpu="100m", spec=constraints
        )
        await cluster.create([web])
        await cluster.wait(
            lambda: sum(_held(loop).values()) == REPLICAS and loop.pods.settled, 90.0, "all run"
        )
        assert _by_zone(loop, zones) == {"zone-1": 6, "zone-2": 6}
        await loop.quiet(cycles=3, samples=0)

        await _close(cluster, back, on=False)
        await loop.over(lambda: _by_zone(loop, zones) == {"zone-1": 4, "zone-2": 4, "zone-3": 4})
        await loop.quiet(cycles=5, samples=0)
        landed = await loop.landed()
        assert (landed.evictions, landed.again) == (MINIMUM, 0)
        assert set(_held(loop).values()) == {2}
        say(
            f"{landed.evictions} evictions, {MINIMUM} at least; {landed.as_planned} landed as "
            f"planned; pods by zone {dict(sorted(_by_zone(loop, zones).items()))}"
        )


def _held(loop: Episode) -> Counter[str]:
    web = (p for p in loop.pods.now.values() if app_of(p) == "web" and not ending(p))
    return Counter(node_of(pod) for pod in web if node_of(pod))


def _by_zone(loop: Episode, zones: dict[str, str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for node, count in _held(loop).items():
        found[zones[node]] += count
    return found


async def _zones(cluster: Cluster, loop: Episode) -> dict[str, str]:
    found = {}
    for name in loop.nodes.values():
        path = f"/api/v1/nodes/{name}"
        node = await asyncio.to_thread(cluster.control_plane.api.get, path)
        found[name] = str(node["metadata"]["labels"]["topology.kubernetes.io/zone"])
    return found


async def _close(cluster: Cluster, nodes: Iterable[str], *, on: bool) -> None:
    taint = {"key": "zone", "value": "down", "effect": "NoSchedule"}
    for node in nodes:
        await cluster.patch_node(node, {"spec": {"taints": [taint] if on else None}})
