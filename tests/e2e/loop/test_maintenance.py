# SPDX-License-Identifier: Apache-2.0
"""Nodes are emptied on a real cluster: within every budget, with reasons for the pods that stay.

The budgets are checked after every single event of the pods' watch, by counting the pods
that are Ready and not leaving, not by what anybody reports.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.stands.cluster import Cluster
from bench.stands.episode import Episode, episode, nothing_open, was_evicted
from bench.stands.real_scenario import Pods, app_of, ending, is_ready, uid_of
from bench.stands.rebalancer_process import LOAD, QUICK
from common.api.contract import CORDONED_BY, MAINTENANCE_PROGRESS
from simulator import build
from simulator.scenarios import Scenario
from simulator.scenarios.manifests import names_of
from tests.support.stands.control_plane import Say

pytestmark = pytest.mark.real

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects

EMPTIED_S = 240.0
CEILING = 80.0
SETTINGS = {**QUICK, "enabledStrategies": ["ResourceOptimization", "NodeMaintenance"]}
MEASURED_S = 90.0

ASKED = {"cpu": "300m", "memory": "512Mi"}
LEDGER, LOST, BARE = "ledger", "scratch", "bare"
POOL = {"name": "node", "count": 20, "zones": ["a", "b", "c"]}
WORKLOADS = [
    {
        "name": "web",
        "count": 12,
        "replicas": 6,
        "usage": {"cpu": "600m", "memory": "300Mi"},
        "pdb": {"maxUnavailable": 1},
    },
    {
        "name": "api",
        "count": 10,
        "replicas": 5,
        "usage": {"cpu": "700m", "memory": "300Mi"},
        "pdb": {"minAvailable": 4},
    },
    # No one guards these, so Evenkeel does while they move.
    {"name": "cache", "count": 5, "replicas": 4, "usage": {"cpu": "500m", "memory": "300Mi"}},
    # Its budget wants every pod.
    {
        "name": LEDGER,
        "replicas": 3,
        "usage": {"cpu": "500m", "memory": "300Mi"},
        "pdb": {"minAvailable": "100%"},
        "nodes": ["node-1", "node-11", "node-12"],
    },
]


def scenario() -> Scenario:
    workloads = [{"requests": ASKED, **workload} for workload in WORKLOADS]
    load = [{"nodes": 20, "from": 54, "to": 60}]
    return Scenario.model_validate({"pools": [POOL], "workloads": workloads, "load": load})


async def test_three_nodes_are_emptied_within_all_budgets_and_the_rest_is_explained(
    cluster: Cluster, tmp_path: Path, say: Say
) -> None:
    async with episode(cluster, tmp_path, scenario(), seed=1, settings=SETTINGS) as loop:
        first, second, third = maintained = [loop.nodes[f"node-{n}"] for n in (1, 2, 3)]
        await cluster.create([_with_local_storage(cluster, second), _bare(cluster, third)])
        await cluster.wait(lambda: loop.pods.settled, what="the pods that will stay run")
        await cluster.wait(lambda: _is_measured(loop), MEASURED_S, "the load is measured")
        assert loop.pods.left == set()
        staying = {LEDGER, LOST, BARE}
        leaving = {
            uid_of(p) for n in maintained for p in loop.pods.on(n) if app_of(p) not in staying
        }
        loop.pods.checks.append(_budgets_hold(loop.pods))
        for node in maintained:
            await cluster.maintain(node, on=True)
        await cluster.wait(lambda: loop.pods.left >= leaving, EMPTIED_S, "all who may have left")
        words = {n: await _explained(cluster, n) for n in maintained}
        await cluster.wait(lambda: loop.pods.settled, what="all replacements run")
        await loop.quiet(cycles=3, samples=0)
        moved = [m for m in await loop.migrations() if was_evicted(m)]
        outcomes = Counter(m["status"].get("outcome") for m in moved)
        others = [n for n in loop.nodes.values() if n not in maintained]
        hottest = max(loop.pods.percent(others).values())
        for node in maintained:
            say(f"{words[node]}; then {len(loop.pods.on(node))} left there")
        say(f"{len(moved)} moves, {dict(outcomes)}; the other nodes use at most {hottest:.0f} %")
        events = await _events(cluster, first)

    assert loop.pods.left == leaving
    assert outcomes["AsPlanned"] >= 0.99 * len(moved)
    assert hottest <= CEILING
    assert f"stays for PDB {LEDGER}" in words[first]
    assert "stay: local storage" in words[second]
    assert "stays: bare pod" in words[third]
    assert any(f"stays for PDB {LEDGER}" in note for note in events)


async def test_a_label_that_goes_half_way_stops_the_emptying_and_undoes_the_cordon(
    cluster: Cluster, tmp_path: Path, say: Say
) -> None:
    load = {**LOAD, "usageSource": "requests"}
    settings = {**SETTINGS, "maintenanceParallelism": 1}
    async with episode(cluster, tmp_path, scenario(), seed=2, settings=settings, load=load) as loop:
        node = loop.nodes["node-2"]
        there = len(loop.pods.on(node))
        loop.pods.checks.append(_budgets_hold(loop.pods))
        await cluster.maintain(node, on=True)
        await cluster.wait(lambda: len(loop.pods.left) >= 2, EMPTIED_S, "some have left")
        assert await _is_cordoned(cluster, node)
        await cluster.maintain(node, on=False)
        await cluster.wait(lambda: _is_free(cluster, node), what="the cordon is undone")
        await cluster.wait(lambda: nothing_open(cluster), what="no move is under way")
        await cluster.wait(lambda: loop.pods.settled, what="all replacements run")
        await loop.quiet(cycles=5, samples=0)
        left = len(loop.pods.left)
    say(f"{left} of {there} pods had left when the label went; the others stayed")
    assert left < there - 2


def _budgets_hold(pods: Pods) -> Callable[[], None]:
    """Return a check that every budget's minimum is there."""
    minimum = {}
    for workload in scenario().workloads:
        if (pdb := workload.pdb) is not None:
            lost = pdb.max_unavailable if pdb.max_unavailable is not None else 0
            least = pdb.min_available if pdb.min_available not in (None, "100%") else None
            for name in names_of(workload):
                minimum[name] = int(least or workload.replicas - int(lost))

    def check() -> None:
        found = Counter(app_of(p) for p in pods.now.values() if is_ready(p) and not ending(p))
        short = {name: found[name] for name, least in minimum.items() if found[name] < least}
        assert not short, f"fewer pods than a budget wants: {short}"

    return check


def _with_local_storage(cluster: Cluster, node: str) -> Json:
    """Return a ReplicaSet whose pods, all on one node, keep data there."""
    spec = {
        "volumes": [{"name": "data", "emptyDir": {}}],
        "nodeName": node,
    }
    made = build.replica_set(LOST, 2, namespace=cluster.namespace, usage_cpu="100m", spec=spec)
    return made


def _bare(cluster: Cluster, node: str) -> Json:
    return build.pod(BARE, namespace=cluster.namespace, node=node, usage_cpu="100m")


async def _node(cluster: Cluster, name: str) -> Json:
    return await asyncio.to_thread(cluster.control_plane.api.get, f"/api/v1/nodes/{name}")


async def _explained(cluster: Cluster, name: str) -> str:
    """Return what a node says of its emptying, once it names those who do not leave."""
    told = ""

    async def final() -> bool:
        nonlocal told
        told = (await _node(cluster, name))["metadata"]["annotations"][MAINTENANCE_PROGRESS]
        return not any(word in told for word in ("moving", "next", "for a turn"))

    await cluster.wait(final, what=f"{name} says why pods are still there")
    return told


async def _events(cluster: Cluster, node: str) -> list[str]:
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    found = (await asyncio.to_thread(cluster.control_plane.api.get, path))["items"]
    return [e.get("note", "") for e in found if e["regarding"].get("name") == node]


async def _is_cordoned(cluster: Cluster, name: str) -> bool:
    node = await _node(cluster, name)
    return (
        node["spec"].get("unschedulable", False) and CORDONED_BY in node["metadata"]["annotations"]
    )


async def _is_free(cluster: Cluster, name: str) -> bool:
    node = await _node(cluster, name)
    ours = {CORDONED_BY, MAINTENANCE_PROGRESS} & node["metadata"]["annotations"].keys()
    return not node["spec"].get("unschedulable", False) and not ours


async def _is_measured(loop: Episode) -> bool:
    metrics = await loop.rebalancer.metrics()
    known = metrics.total("_nodes_unknown") == 0
    return known and await loop.rebalancer.cycles() > 3
