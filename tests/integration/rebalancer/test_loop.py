# SPDX-License-Identifier: Apache-2.0
"""The loop on real sockets: a cluster that lives, and Migrations as they are written."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

from common.api.contract import PREDICTED_USE
from common.cluster.records import NodeName
from common.kube.resources import DEPLOYMENTS, MIGRATIONS, NODES
from rebalancer.triggers import Trigger
from simulator import build
from simulator.cluster import SimulatedCluster
from tests.integration.rebalancer.stand import Json, Rebalancer, migrations, rebalancing
from tests.support.stands.extender import eventually, maintain
from tests.support.stands.simulated_cluster import cluster_of, ready, until
from tests.support.worlds.migrations import definition

LOAD: Json = {"enabledStrategies": ["ResourceOptimization"]}
MAINTENANCE: Json = {"enabledStrategies": ["NodeMaintenance"], "maintenanceParallelism": 2}
SETTLED = 89.0
"""What the hot node uses is 91 %; smoothed measurements come near it after a few."""


def one_hot_node() -> AbstractAsyncContextManager[SimulatedCluster]:
    """Run a cluster whose first node takes all pods of `web`, and gets too hot by one."""
    web = build.deployment("web", 6, cpu="100m", usage_cpu="1200m")
    others = [build.node(f"node-{number}", unschedulable=True) for number in (1, 2)]
    return cluster_of([build.node("node-0"), *others], definition(), web)


async def open_the_others(cluster: SimulatedCluster) -> None:
    await until(cluster, lambda: len(ready(cluster, "web")) == 6, "all pods run")
    for name in ("node-1", "node-2"):
        cluster.store.patch(NODES, name, {"spec": {"unschedulable": None}})


async def test_a_hot_node_gets_as_many_migrations_as_it_needs(tmp_path: Path) -> None:
    async with one_hot_node() as cluster:
        await open_the_others(cluster)
        async with rebalancing(cluster, tmp_path, **LOAD, reschedulingInterval="100ms") as one:
            await eventually(lambda: migrations(cluster), "a Migration begins")
            looks = one.total("cycles_total", result="done")
            await eventually(lambda: one.total("cycles_total", result="done") > looks + 3)
            [made] = migrations(cluster)
        spec = made["spec"]
        assert (spec["source"], spec["controller"]["kind"]) == ("node-0", "ReplicaSet")
        deployment = cluster.store.get(DEPLOYMENTS, "web", "default")
        assert spec["workload"]["uid"] == deployment["metadata"]["uid"]
        assert {spec["target"], *spec["alternatives"]} == {"node-1", "node-2"}
        assert 1100 < spec["load"]["cpuMilli"] < 1300
        predicted = json.loads(made["metadata"]["annotations"][PREDICTED_USE])
        assert 70 < predicted["source"]["cpuPercent"] < 80


async def test_of_equal_pods_one_that_uses_more_than_it_asked_for_is_moved(tmp_path: Path) -> None:
    modest = build.deployment("modest", 3, cpu="1300m", usage_cpu="1200m")
    greedy = build.deployment("greedy", 3, cpu="100m", usage_cpu="1200m")
    others = [build.node(f"node-{number}", unschedulable=True) for number in (1, 2)]
    async with cluster_of([build.node("node-0"), *others], definition(), modest, greedy) as cluster:
        running = ("modest", "greedy")
        await until(cluster, lambda: sum(len(ready(cluster, app)) for app in running) == 6)
        for name in ("node-1", "node-2"):
            cluster.store.patch(NODES, name, {"spec": {"unschedulable": None}})
        async with rebalancing(cluster, tmp_path, **LOAD, reschedulingInterval="100ms"):
            await eventually(lambda: migrations(cluster), "a Migration begins")
        [made] = migrations(cluster)
    assert made["spec"]["pod"]["name"].startswith("greedy-")


async def test_every_sample_counts_however_rarely_plans_are_made(tmp_path: Path) -> None:
    async with one_hot_node() as cluster:
        await open_the_others(cluster)
        async with rebalancing(cluster, tmp_path, **LOAD, observations=3, dry_run=True) as one:
            await eventually(lambda: one.total("cycles_total", result="done"), "a first plan")
            seen: set[float | None] = set()

            async def measured_often() -> bool:
                node = (await one.observer.look()).load.nodes[NodeName("node-0")]
                if node.cpu_percent > SETTLED:
                    seen.add(node.sample_end_s)
                return len(seen) > 4

            await eventually(measured_often, "the hot node was measured several times")
            assert one.total("cycles_total", result="done") == 1
            one.triggers.fire(Trigger.CONFIG)
            await eventually(lambda: one.total("cycles_total", result="done") == 2)
            assert one.loop.plan is not None
            assert one.loop.plan.moves


async def test_a_dry_run_plans_and_writes_nothing(tmp_path: Path) -> None:
    async with one_hot_node() as cluster:
        await open_the_others(cluster)
        async with rebalancing(
            cluster, tmp_path, dry_run=True, **LOAD, reschedulingInterval="100ms"
        ) as one:
            await eventually(lambda: one.loop.plan and one.loop.plan.moves, "a plan is made")
            looks = one.total("cycles_total", result="done")
            await eventually(lambda: one.total("cycles_total", result="done") > looks + 2)
            assert migrations(cluster) == []


async def test_the_maintenance_label_is_answered_without_waiting_for_the_interval(
    tmp_path: Path,
) -> None:
    web = build.deployment("web", 6)
    database = build.stateful_set("db", 2)
    async with cluster_of(3, definition(), web, database) as cluster:
        await until(cluster, lambda: len(ready(cluster, "web") + ready(cluster, "db")) == 8)
        async with rebalancing(cluster, tmp_path, **MAINTENANCE) as one:
            await eventually(lambda: knows(one), "the load is known")
            maintain(cluster, "node-0", on=True)
            found: list[Json] = await eventually(lambda: migrations(cluster), "it is emptied")
            assert {made["spec"]["source"] for made in found} == {"node-0"}
            assert {made["spec"]["reason"] for made in found} == {"Maintenance"}


async def test_a_node_that_comes_of_age_is_answered_without_waiting_for_the_interval(
    tmp_path: Path,
) -> None:
    async with cluster_of(2, definition()) as cluster:
        settings: Json = {"enabledStrategies": ["LoadBalancing"], "minNodeAge": "3s"}
        async with rebalancing(cluster, tmp_path, **settings) as one:

            def looked() -> float:
                return one.total("cycles_total", result="done")

            def takes_part() -> bool:
                plan = one.loop.plan
                found = {str(node.name): node for node in plan.nodes} if plan is not None else {}
                return "late" in found and not any(
                    refusal.name == "TooYoung" for refusal in found["late"].target_refusals
                )

            await eventually(looked, "a first plan")
            cluster.create([build.node("late")])
            await eventually(takes_part, "the new node takes part")


async def test_only_the_leader_acts_and_the_next_one_goes_on(tmp_path: Path) -> None:
    # So many replicas that the limit per workload lets pods of two nodes move at once.
    web = build.deployment("web", 60)
    async with cluster_of(3, definition(), web) as cluster, AsyncExitStack() as first_term:
        await until(cluster, lambda: len(ready(cluster, "web")) == 60)
        elder = await first_term.enter_async_context(
            rebalancing(cluster, tmp_path, identity="elder", **MAINTENANCE)
        )
        await eventually(lambda: knows(elder), "the elder knows the load")
        async with rebalancing(cluster, tmp_path, identity="younger", **MAINTENANCE) as younger:
            await eventually(lambda: younger.elector.holder == "elder", "it waits for its turn")
            maintain(cluster, "node-0", on=True)
            await eventually(lambda: sources(cluster) == {"node-0"}, "the elder acts")
            assert younger.observer.why_not_ready() is None
            assert younger.loop.plan is None
            assert younger.total("cycles_total", result="done") == 0
            await first_term.aclose()
            for made in migrations(cluster):
                cluster.store.delete(MIGRATIONS, made["metadata"]["name"])
            maintain(cluster, "node-1", on=True)
            await eventually(lambda: "node-1" in sources(cluster), "the younger goes on")


def knows(one: Rebalancer) -> bool:
    """Tell whether a leader knows the load of all nodes."""
    return not one.observer.resting and one.total("nodes_unknown") == 0


def sources(cluster: SimulatedCluster) -> set[str]:
    return {made["spec"]["source"] for made in migrations(cluster)}


async def test_a_finished_move_is_compared_with_its_prediction(tmp_path: Path) -> None:
    async with one_hot_node() as cluster:
        await open_the_others(cluster)
        async with rebalancing(cluster, tmp_path, **LOAD, reschedulingInterval="100ms") as one:
            [made] = await eventually(lambda: migrations(cluster), "a Migration begins")
            name = made["metadata"]["name"]
            ended = {
                "phase": "Completed",
                "outcome": "AsPlanned",
                "finishedAt": made["metadata"]["creationTimestamp"],
            }
            cluster.store.patch(MIGRATIONS, name, {"status": ended}, status=True)

            def status() -> Json:
                found: Json = cluster.store.get(MIGRATIONS, name)["status"]
                return found

            await eventually(lambda: "actual" in status(), "both figures are told")
            # No one was moved, so the source uses what it used, and the error says so.
            assert status()["actual"]["source"]["cpuPercent"] > 85
            assert status()["predicted"]["source"]["cpuPercent"] < 80
            assert status()["phase"] == "Completed"
            labels = {"node": "source", "resource": "cpu"}
            await eventually(lambda: one.total("prediction_error_points_count", **labels) == 1)
            assert len(one.events.of("MigrationMeasured")) == 1
