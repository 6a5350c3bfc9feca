# SPDX-License-Identifier: Apache-2.0
"""Repairs on real sockets: what changes in a living cluster, and the Migrations that follow."""

from __future__ import annotations

from pathlib import Path

from common.kube.resources import NODES
from simulator import build
from tests.integration.rebalancer.stand import Json, migrations, rebalancing
from tests.support.stands.extender import eventually
from tests.support.stands.simulated_cluster import cluster_of, ready, until
from tests.support.worlds.migrations import definition

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


async def test_a_taint_makes_the_pods_leave_that_do_not_tolerate_it(tmp_path: Path) -> None:
    web = build.deployment("web", 6)
    async with cluster_of(3, definition(), web) as cluster:
        await until(cluster, lambda: len(ready(cluster, "web")) == 6, "all pods run")
        config: Json = {"enabledStrategies": ["Violations"], "reschedulingInterval": "100ms"}
        async with rebalancing(cluster, tmp_path, **config) as one:
            await eventually(lambda: one.total("cycles_total", result="done") > 2)
            assert migrations(cluster) == []
            taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
            cluster.store.patch(NODES, "node-1", {"spec": {"taints": [taint]}})
            found: list[Json] = await eventually(lambda: migrations(cluster), "a pod is moved")
        for spec in (made["spec"] for made in found):
            assert (spec["source"], spec["strategy"]) == ("node-1", "Violations")
            assert spec["reason"] == "Violation"
            assert "it does not tolerate the taint team=a:NoSchedule" in spec["message"]
            assert spec["target"] in ("node-0", "node-2")


async def test_replicas_that_share_a_host_go_to_the_host_that_is_free_again(
    tmp_path: Path,
) -> None:
    """All have to be on two hosts while the third is cordoned, as after an upgrade."""
    web = build.deployment("web", 3)
    async with cluster_of(3, definition()) as cluster:
        cordon: Json = {"spec": {"unschedulable": True}}
        cluster.store.patch(NODES, "node-2", cordon)
        cluster.create([web])
        await until(cluster, lambda: len(ready(cluster, "web")) == 3, "all pods run")
        config: Json = {"enabledStrategies": ["Duplicates"], "reschedulingInterval": "100ms"}
        async with rebalancing(cluster, tmp_path, **config) as one:
            await eventually(lambda: one.total("cycles_total", result="done") > 2)
            assert migrations(cluster) == []
            cluster.store.patch(NODES, "node-2", {"spec": {"unschedulable": None}})
            [made] = await eventually(lambda: migrations(cluster), "a pod is moved")
            await eventually(lambda: one.total("cycles_total", result="done") > 6)
            assert migrations(cluster) == [made]
        spec: Json = made["spec"]
        assert (spec["target"], spec["strategy"], spec["reason"]) == (
            "node-2",
            "Duplicates",
            "Duplicate",
        )
        assert spec["message"].endswith("its share is 1")


async def test_a_pod_goes_to_the_pool_that_it_prefers_once_that_has_a_node(tmp_path: Path) -> None:
    term = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["spot"]}]}
    weighted = [{"weight": 10, "preference": term}]
    web = build.deployment("web", 2, spec={"affinity": {"nodeAffinity": {PREFERRED: weighted}}})
    async with cluster_of(2, definition(), web) as cluster:
        await until(cluster, lambda: len(ready(cluster, "web")) == 2, "all pods run")
        config: Json = {"enabledStrategies": ["PreferredNodes"], "reschedulingInterval": "100ms"}
        async with rebalancing(cluster, tmp_path, **config) as one:
            await eventually(lambda: one.total("cycles_total", result="done") > 2)
            assert migrations(cluster) == []
            cluster.create([build.node("spot-0", labels={"pool": "spot"})])
            found: list[Json] = await eventually(lambda: migrations(cluster), "a pod is moved")
        for spec in (made["spec"] for made in found):
            assert (spec["target"], spec["strategy"]) == ("spot-0", "PreferredNodes")
            assert spec["reason"] == "Preference"
            assert spec["message"].endswith("its node affinity prefers others with 10 to 0")
