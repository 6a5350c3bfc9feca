# SPDX-License-Identifier: Apache-2.0
"""Repairs on real sockets: what changes in a living cluster, and the Migrations that follow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from common.kube.resources import MIGRATIONS, NODES, PODS
from simulator import build
from simulator.faults import RejectPods
from tests.integration.rebalancer.stand import Json, migrations, rebalancing
from tests.support.http import fetch
from tests.support.stands.closed_loop import Loop, closed_loop
from tests.support.stands.extender import eventually
from tests.support.stands.loop_programs import figure
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


HYGIENE: Json = {
    "enabledStrategies": ["Hygiene"],
    "hygiene": {
        "failedPods": [{"reasons": ["UnexpectedAdmissionError"]}],
        "tooManyRestarts": [{"restarts": 20}],
    },
}


def failed(loop: Loop) -> list[str]:
    pods = loop.cluster.pods("default")
    return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Failed"]


async def test_a_failed_pod_is_removed_without_a_migration_once_the_mode_allows_it(
    tmp_path: Path,
) -> None:
    web = build.deployment("web", 3)
    guard = build.pdb("web", match={"app": "web"}, min_available=3)
    async with closed_loop(tmp_path, guard) as loop:
        fault = loop.cluster.faults.inject(RejectPods(node="node-1"))
        loop.cluster.create([web])
        await loop.until(lambda: failed(loop), "the kubelet rejects pods")
        loop.cluster.faults.withdraw(fault)
        await loop.until(lambda: len(loop.ready("web")) == 3, "its controller has made others")
        ended, *_ = rejected = failed(loop)
        async with loop.rebalancer(mode="observe", **HYGIENE) as health:
            await loop.cycles(health, 3)
            plan = (await fetch(f"{health}/debug/plan")).text
            assert f"default/{ended}" in plan
            assert (
                "it has failed (UnexpectedAdmissionError) (hygiene.failedPods[0]); not now: "
                in plan
            )
            assert failed(loop) == rejected
        async with loop.rebalancer(**HYGIENE) as health:
            await loop.until(lambda: not failed(loop), "it is removed")
            assert await figure(health, "pod_removals_total", result="accepted") == len(rejected)
        assert loop.migrations() == []
        assert len(loop.ready("web")) == 3


async def test_a_pod_that_restarts_too_often_goes_to_another_node(tmp_path: Path) -> None:
    web = build.deployment("web", 3, cpu="100m", usage_cpu="100m")
    async with closed_loop(tmp_path, web) as loop:
        await loop.until(lambda: len(loop.ready("web")) == 3, "all are Ready")
        pod = loop.pods("web")[0]
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        restarted = [{**each, "restartCount": 20} for each in pod["status"]["containerStatuses"]]
        status: Json = {"status": {"containerStatuses": restarted}}
        loop.store.patch(PODS, name, status, namespace="default", status=True)
        async with loop.rebalancer(**HYGIENE):
            await loop.until(lambda: loop.outcomes() == ["AsPlanned"], "it has moved")
        [spec] = [made["spec"] for made in loop.migrations()]
        assert (spec["source"], spec["strategy"], spec["reason"]) == (node, "Hygiene", "Hygiene")
        assert spec["message"].endswith(
            "its containers were restarted 20 times (limit 20) (hygiene.tooManyRestarts[0])"
        )
        assert spec["target"] != node


async def test_a_zone_that_is_open_again_gets_its_share_of_the_pods(tmp_path: Path) -> None:
    each = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    web = build.deployment("web", 6, spec={"topologySpreadConstraints": [each]})
    async with cluster_of(3, definition()) as cluster:
        taint = {"key": "zone", "value": "down", "effect": "NoSchedule"}
        cluster.store.patch(NODES, "node-2", {"spec": {"taints": [taint]}})
        cluster.create([web])
        await until(cluster, lambda: len(ready(cluster, "web")) == 6, "all pods run")
        config: Json = {"enabledStrategies": ["TopologySpread"], "reschedulingInterval": "100ms"}
        async with rebalancing(cluster, tmp_path, **config) as one:
            await eventually(lambda: one.total("cycles_total", result="done") > 2)
            assert migrations(cluster) == []
            cluster.store.patch(NODES, "node-2", {"spec": {"taints": None}})
            await eventually(lambda: migrations(cluster), "pods are moved")
            await eventually(lambda: one.total("cycles_total", result="done") > 6)
            # Two are missing in the zone, one from each of the others.
            made, *_ = found = migrations(cluster)
            sources = [each["spec"]["source"] for each in found]
            assert len(sources) == len(set(sources)) <= 2
        spec: Json = made["spec"]
        assert (spec["target"], spec["strategy"], spec["reason"]) == (
            "node-2",
            "TopologySpread",
            "TopologySpread",
        )
        assert spec["message"].endswith(
            "and 0 in c, and its DoNotSchedule constraint allows a difference of 1"
        )


async def test_moves_that_limits_keep_from_running_at_once_take_turns(tmp_path: Path) -> None:
    """Each zone has room for pods of the other only once its own have left."""
    zone = "topology.kubernetes.io/zone"
    apps = [
        build.deployment(
            app,
            count,
            cpu=cpu,
            usage_cpu="20m",
            spec={
                "topologySpreadConstraints": [
                    {
                        "maxSkew": 1,
                        "topologyKey": zone,
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": {"app": app}},
                    }
                ]
            },
        )
        for app, count, cpu in (("web", 9, "500m"), ("big", 5, "1"))
    ]
    nodes = [
        build.node(name, cpu="4", labels={zone: name[:2]}) for name in ("z0-a", "z0-b", "z1-a")
    ]
    places = {
        "web": ["z0-a"] * 4 + ["z0-b"] * 5,
        "big": ["z0-b"] + ["z1-a"] * 4,
    }
    most = 0

    async with closed_loop(tmp_path, *apps, nodes=nodes, places=places) as loop:
        await loop.until(lambda: len(loop.ready()) == 14, "all pods run")

        def count(_: object) -> None:
            nonlocal most
            phases = Counter(
                each["spec"]["source"]
                for each in loop.migrations()
                if (each.get("status") or {}).get("phase") == "InProgress"
            )
            most = max(most, *phases.values(), 0)

        def held(app: str) -> int:
            return len(loop.on("z1-a", app))

        loop.store.subscribe(MIGRATIONS, count)
        async with loop.rebalancer(enabledStrategies=["TopologySpread"], maxInFlightPerNode=1):
            await loop.until(lambda: (held("web"), held("big")) == (4, 2), "both are spread")
            await loop.until(lambda: len(loop.ready()) == 14, "all pods run again")
        assert len(loop.witness.evicted) == 6
        assert any(each["spec"].get("needs") for each in loop.migrations())
    assert most == 1
