# SPDX-License-Identifier: Apache-2.0
"""The whole extender, asked by a scheduler, in a cluster that lives."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from common.api.contract import FILTER_CALLS, LOAD_SETTINGS, SEEN_MIGRATIONS
from common.config import ExtenderConfiguration, load_settings_hash
from common.kube.resources import LEASES, NODES, PODS
from simulator import build
from simulator.cluster import SimulatedCluster
from simulator.faults import MetricsFrozen
from tests.support.stands.extender import (
    QUICK,
    Extender,
    Json,
    eventually,
    extender,
    guided,
    leases,
    maintain,
    plan,
)
from tests.support.stands.extender_service import args
from tests.support.stands.simulated_cluster import cluster_of, condition, pods_of, until
from tests.support.worlds.migrations import definition

NAMES = ("node-0", "node-1", "node-2")
TARGET = "node-2"


def crowded_target() -> AbstractAsyncContextManager[SimulatedCluster]:
    """Run a cluster in which the scheduler alone would choose any node but the target."""
    full = build.pod("full", node=TARGET, cpu="4", memory="16Gi", usage_cpu="4")
    return cluster_of(3, definition(), full)


def landed(cluster: SimulatedCluster, app: str) -> Counter[str]:
    """Count the pods of an app by node; those that wait are counted as nowhere."""
    return Counter(pod["spec"].get("nodeName", "") for pod in pods_of(cluster, app))


async def placed(cluster: SimulatedCluster, app: str, count: int) -> Counter[str]:
    """Wait until so many pods of an app have nodes; count them by node."""

    def all_placed() -> bool:
        found = landed(cluster, app)
        return found.total() == count and not found[""]

    await until(cluster, all_placed, f"{count} pods of {app} have nodes")
    return landed(cluster, app)


async def knows_maintenance(service: Extender, node: str, *, on: bool) -> None:
    async def known() -> bool:
        return bool((await service.node(node)).get("maintenance") is on)

    await eventually(known, f"the extender knows about {node}")


async def test_pods_avoid_a_node_under_maintenance(tmp_path: Path) -> None:
    async with cluster_of(3, definition()) as cluster, guided(cluster, tmp_path) as service:
        maintain(cluster, "node-1", on=True)
        await knows_maintenance(service, "node-1", on=True)
        cluster.create([build.deployment("web", 12)])
        found = await placed(cluster, "web", 12)
        assert set(found) == {"node-0", "node-2"}
        refused = await service.total("nodes_refused_total", reason="node under maintenance")
        assert refused == 12


async def test_pods_wait_while_every_node_is_under_maintenance_and_say_why(tmp_path: Path) -> None:
    async with cluster_of(3, definition()) as cluster, guided(cluster, tmp_path) as service:
        for name in NAMES:
            maintain(cluster, name, on=True)
            await knows_maintenance(service, name, on=True)
        cluster.create([build.pod("web")])

        def waiting() -> str:
            pod = cluster.store.get(PODS, "web", "default")
            return str(condition(pod, "PodScheduled").get("message", ""))

        await until(cluster, waiting, "the pod says why it waits")
        assert waiting().startswith("0/3 nodes are available: 3 node under maintenance.")
        maintain(cluster, "node-2", on=False)
        assert await placed(cluster, "web", 1) == {"node-2": 1}


async def test_pods_avoid_measured_load(tmp_path: Path) -> None:
    hot = build.pod("hot", node="node-0", cpu="100m", usage_cpu="7")
    async with cluster_of(3, definition(), hot) as cluster, guided(cluster, tmp_path) as service:

        async def measured() -> bool:
            rows = [await service.node(name) for name in NAMES]
            return (rows[0].get("use") or 0) > 1 and all(row["unknown"] is None for row in rows)

        await eventually(measured, "the load of all nodes is known")
        assert (await service.scores(args(*NAMES)))["node-0"] == 0
        cluster.create([build.deployment("web", 12)])
        found = await placed(cluster, "web", 12)
        assert set(found) == {"node-1", "node-2"}


async def moved(cluster: SimulatedCluster, app: str, target: str) -> Json:
    """Move the only pod of an app as the rebalancer would; return its successor.

    Were there more, a sibling on the target could be as young as the Migration and be taken
    for the successor: stamps are whole seconds.
    """
    [victim] = pods_of(cluster, app)
    made = plan(cluster, victim, target)
    version = int(made["metadata"]["resourceVersion"])
    await eventually(lambda: seen(cluster) >= version, "every Lease has its version")
    return await succeeded(cluster, app, victim)


async def succeeded(cluster: SimulatedCluster, app: str, victim: Json) -> Json:
    """Evict a pod and return its successor once that has a node."""
    cluster.store.evict(victim["metadata"]["name"], "default")

    def successor() -> Json | None:
        pods = [pod for pod in pods_of(cluster, app) if pod["spec"].get("nodeName")]
        uid = victim["metadata"]["uid"]
        return next((pod for pod in pods if pod["metadata"]["uid"] != uid), None)

    await until(cluster, successor, f"the successor of {app} has a node")
    found = successor()
    assert found is not None
    return found


def seen(cluster: SimulatedCluster) -> int:
    """Return up to which version every extender knows the Migrations."""
    versions = [int(each["metadata"]["annotations"][SEEN_MIGRATIONS]) for each in leases(cluster)]
    return min(versions, default=0)


async def test_the_replacement_of_an_evicted_pod_goes_to_the_planned_node(tmp_path: Path) -> None:
    async with crowded_target() as cluster, guided(cluster, tmp_path) as service:
        cluster.create([build.deployment("web", 1)])
        await placed(cluster, "web", 1)
        successor = await moved(cluster, "web", TARGET)
        assert successor["spec"]["nodeName"] == TARGET

        async def counted() -> bool:
            return await service.total("intents_total", outcome="AsPlanned") == 1

        await eventually(counted, "the move is counted")
        assert await service.total("intents_total") == 1
        assert await service.total("intents_open") == 0
        [intent] = await service.intents()
        assert (intent["state"], intent["node"]) == ("filled", TARGET)


async def test_a_replacement_counts_for_what_its_predecessor_used(tmp_path: Path) -> None:
    async with crowded_target() as cluster, guided(cluster, tmp_path) as service:
        cluster.create([build.deployment("web", 1)])
        await placed(cluster, "web", 1)

        async def used() -> float:
            return float((await service.node(TARGET)).get("cpuMilli", 0.0))

        async def measured() -> bool:
            # A sample that is older than the pod on the node comes with an estimate of it, and
            # the next sample would lower the load again.
            found = await service.node(TARGET)
            newcomers: int = found["newcomers"]["pods"]
            return found["unknown"] is None and not newcomers and await used() > 3_900

        await eventually(measured, "the load of the target is known")
        cluster.faults.inject(MetricsFrozen())
        before = await used()
        await moved(cluster, "web", TARGET)

        async def counted() -> bool:
            # Its own request is a tenth of a core; what the Migration says is more.
            return await used() > before + 800

        await eventually(counted, "the board contains the replacement")


async def test_the_lease_is_where_the_configuration_wants_it(tmp_path: Path) -> None:
    async with (
        cluster_of(1, definition()) as cluster,
        guided(cluster, tmp_path, leaseNamespace="kube-system"),
    ):
        await eventually(lambda: cluster.store.list(LEASES, "kube-system"), "there is a Lease")
        assert leases(cluster) == []


async def test_the_lease_says_who_asks_and_what_is_believed(tmp_path: Path) -> None:
    async with cluster_of(3, definition()) as cluster, guided(cluster, tmp_path):
        cluster.create([build.pod("web")])
        await placed(cluster, "web", 1)

        def calls() -> Json:
            notes = [each["metadata"]["annotations"] for each in leases(cluster)]
            return json.loads(notes[0][FILTER_CALLS]) if notes else {}

        # A newer version makes it renew at once, without waiting for five seconds.
        plan(cluster, _bare(cluster), "node-1")
        reported = await eventually(calls, "the Lease names the scheduler")
        assert list(reported) == ["default-scheduler"]
        assert reported["default-scheduler"]["share"] == 1.0
        [lease] = leases(cluster)
        settings = load_settings_hash(ExtenderConfiguration.model_validate(QUICK))
        assert lease["metadata"]["annotations"][LOAD_SETTINGS] == settings
    assert leases(cluster) == []


def _bare(cluster: SimulatedCluster) -> Json:
    """Return a pod that is about to be moved, with a controller that would replace it."""
    pod = cluster.store.get(PODS, "web", "default")
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs-1"}
    metadata = {**pod["metadata"], "ownerReferences": [owner]}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": "node-0"}}


async def test_a_restarted_extender_directs_pods_as_before(tmp_path: Path) -> None:
    async with crowded_target() as cluster:
        async with guided(cluster, tmp_path) as service:
            cluster.create([build.deployment("web", 1), build.deployment("api", 1)])
            await placed(cluster, "web", 1)
            await placed(cluster, "api", 1)
            await moved(cluster, "web", TARGET)
            [victim] = pods_of(cluster, "api")
            plan(cluster, victim, TARGET)

            async def one_is_filled() -> bool:
                return {row["state"] for row in await service.intents()} == {"filled", "open"}

            await eventually(one_is_filled, "both intents are known")
            before = await service.intents()
        assert leases(cluster) == []
        async with guided(cluster, tmp_path) as service:
            assert await service.intents() == before
            assert await service.total("intents_total") == 0
            successor = await succeeded(cluster, "api", victim)
            assert successor["spec"]["nodeName"] == TARGET


async def test_what_was_evicted_while_no_extender_ran_is_directed_later(tmp_path: Path) -> None:
    async with crowded_target() as cluster:
        cluster.create([build.deployment("web", 1)])
        await placed(cluster, "web", 1)
        [victim] = pods_of(cluster, "web")
        plan(cluster, victim, TARGET)
        for name in NAMES:
            cluster.store.patch(NODES, name, {"spec": {"unschedulable": True}})
        cluster.store.evict(victim["metadata"]["name"], "default")
        await until(cluster, lambda: [*landed(cluster, "web")] == [""], "its successor waits")
        async with guided(cluster, tmp_path) as service:
            for name in NAMES:
                cluster.store.patch(NODES, name, {"spec": {"unschedulable": None}})
            assert await placed(cluster, "web", 1) == {TARGET: 1}
            assert len(await service.intents()) == 1


async def test_replicas_know_the_same(tmp_path: Path) -> None:
    async with crowded_target() as cluster, guided(cluster, tmp_path) as service:
        cluster.create([build.deployment("web", 1)])
        await placed(cluster, "web", 1)
        async with extender(tmp_path / "kubeconfig") as other:
            await eventually(lambda: len(leases(cluster)) == 2, "both have a Lease")
            await moved(cluster, "web", TARGET)

            async def alike() -> bool:
                mine, its = await service.intents(), await other.intents()
                return mine == its and [row["node"] for row in its] == [TARGET]

            await eventually(alike, "the one that was not asked knows it too")
