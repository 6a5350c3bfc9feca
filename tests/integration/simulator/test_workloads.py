# SPDX-License-Identifier: Apache-2.0
"""Deployments, ReplicaSets and StatefulSets come to life and stay as wanted."""

from __future__ import annotations

import json

import aiohttp

from common.kube.resources import DEPLOYMENTS, PODS, REPLICASETS, STATEFULSETS
from simulator import build
from simulator.api import Change, Json
from tests.support.stands.simulated_cluster import (
    History,
    cluster_of,
    condition,
    events,
    pods_of,
    ready,
    until,
)


async def test_a_deployment_comes_to_run_and_http_shows_it() -> None:
    web = build.deployment("web", 4, usage_cpu="100m")
    async with cluster_of(3, web) as cluster:
        await until(cluster, lambda: len(ready(cluster, "web")) == 4)
        async with aiohttp.ClientSession(cluster.server.url) as session:
            async with session.get("/api/v1/namespaces/default/pods?labelSelector=app=web") as got:
                pods = json.loads(await got.read())["items"]
            async with session.get("/apis/apps/v1/namespaces/default/deployments/web") as got:
                deployment = json.loads(await got.read())
    assert [pod["status"]["phase"] for pod in pods] == ["Running"] * 4
    assert all(pod["spec"]["nodeName"] for pod in pods)
    assert all(pod["status"]["startTime"] and pod["status"]["podIP"] for pod in pods)
    assert [c["type"] for c in pods[0]["status"]["conditions"]][-1] == "PodScheduled"
    assert {c["status"] for c in pods[0]["status"]["conditions"]} == {"True"}
    assert deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"


async def test_replicas_are_spread_over_nodes() -> None:
    async with cluster_of(3, build.deployment("web", 6)) as cluster:
        await until(cluster, lambda: len(ready(cluster, "web")) == 6)
        nodes = [pod["spec"]["nodeName"] for pod in ready(cluster, "web")]
    assert sorted(nodes.count(node) for node in set(nodes)) == [2, 2, 2]


async def test_a_deleted_pod_is_replaced_at_its_deletion_timestamp() -> None:
    slow = build.deployment(
        "web", 2, annotations={build.STOP_AFTER: "1h"}, spec={"terminationGracePeriodSeconds": 3600}
    )
    async with cluster_of(3, slow) as cluster:
        await until(cluster, lambda: len(ready(cluster, "web")) == 2)
        victim = ready(cluster, "web")[0]["metadata"]["name"]
        cluster.store.delete(PODS, victim, namespace="default")
        await until(cluster, lambda: len(ready(cluster, "web")) == 2, "the replacement is ready")
        ending = cluster.store.get(PODS, victim, "default")
    assert "deletionTimestamp" in ending["metadata"]


async def test_scaling_goes_up_and_down() -> None:
    async with cluster_of(3, build.deployment("web", 2)) as cluster:
        await until(cluster, lambda: len(ready(cluster, "web")) == 2)
        for replicas in (5, 1):
            cluster.store.patch(
                DEPLOYMENTS, "web", {"spec": {"replicas": replicas}}, namespace="default"
            )
            await until(
                cluster,
                lambda replicas=replicas: (
                    len(pods_of(cluster, "web"))
                    == replicas  # type: ignore[misc]
                    == len(ready(cluster, "web"))
                ),
            )
        assert len(cluster.store.list(REPLICASETS)) == 1
        words = {event["note"].split(" from ")[1] for event in events(cluster, "ScalingReplicaSet")}
    assert words == {"0 to 2", "2 to 5", "5 to 1"}


def with_image(image: str) -> Json:
    return {
        "spec": {
            "template": {
                "spec": {
                    "containers": [
                        {"name": "app", "image": image, "resources": {"requests": {"cpu": "100m"}}}
                    ]
                }
            }
        }
    }


async def test_a_new_template_rolls_out_within_its_limits() -> None:
    web = build.deployment("web", 4)
    web["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    async with cluster_of(3, web) as cluster:
        await until(cluster, lambda: len(ready(cluster, "web")) == 4)
        worst: list[tuple[int, int]] = []

        def count(_: Change) -> None:
            worst.append((len(pods_of(cluster, "web")), len(ready(cluster, "web"))))

        cluster.store.subscribe(PODS, count)
        cluster.store.patch(
            DEPLOYMENTS, "web", with_image("registry.invalid/app:2"), namespace="default"
        )
        await until(
            cluster, lambda: _images(ready(cluster, "web")) == ["registry.invalid/app:2"] * 4
        )
        await until(cluster, lambda: _status(cluster.store.get(DEPLOYMENTS, "web", "default")))
        sets = cluster.store.list(REPLICASETS)
    assert max(total for total, _ in worst) <= 5
    assert min(healthy for _, healthy in worst) >= 4
    assert sorted(each["spec"]["replicas"] for each in sets) == [0, 4]


def _images(pods: list[Json]) -> list[str]:
    return [pod["spec"]["containers"][0]["image"] for pod in pods]


def _status(deployment: Json) -> bool:
    status = deployment["status"]
    conditions = {c["type"]: c.get("reason") for c in status["conditions"]}
    return bool(
        status.get("updatedReplicas") == status["replicas"] == 4
        and conditions["Progressing"] == "NewReplicaSetAvailable"
        and status["observedGeneration"] == deployment["metadata"]["generation"]
    )


async def test_a_paused_deployment_scales_but_does_not_roll() -> None:
    web = build.deployment("web", 2)
    web["spec"]["paused"] = False
    async with cluster_of(3, web) as cluster:
        await until(cluster, lambda: len(ready(cluster, "web")) == 2)
        change = with_image("registry.invalid/app:2")
        change["spec"] |= {"paused": True, "replicas": 3}
        cluster.store.patch(DEPLOYMENTS, "web", change, namespace="default")
        await until(cluster, lambda: len(ready(cluster, "web")) == 3)
        assert len(cluster.store.list(REPLICASETS)) == 1
        cluster.store.patch(DEPLOYMENTS, "web", {"spec": {"paused": False}}, namespace="default")
        await until(
            cluster, lambda: _images(ready(cluster, "web")) == ["registry.invalid/app:2"] * 3
        )


async def test_recreating_ends_the_old_pods_first() -> None:
    web = build.deployment("web", 3)
    web["spec"]["strategy"] = {"type": "Recreate"}
    async with cluster_of(3, web) as cluster:
        await until(cluster, lambda: len(ready(cluster, "web")) == 3)
        mixed: list[set[str]] = []
        cluster.store.subscribe(PODS, lambda _: mixed.append(set(_images(cluster.pods()))))
        cluster.store.patch(
            DEPLOYMENTS, "web", with_image("registry.invalid/app:2"), namespace="default"
        )
        await until(
            cluster, lambda: _images(ready(cluster, "web")) == ["registry.invalid/app:2"] * 3
        )
    assert all(len(images) <= 1 for images in mixed)


async def test_deleting_a_deployment_takes_everything_with_it() -> None:
    async with cluster_of(3, build.deployment("web", 3)) as cluster:
        await until(cluster, lambda: len(ready(cluster, "web")) == 3)
        cluster.store.delete(DEPLOYMENTS, "web", namespace="default")
        await until(cluster, lambda: not cluster.pods() and not cluster.store.list(REPLICASETS))


async def test_a_stateful_set_starts_in_order_and_keeps_its_names() -> None:
    async with cluster_of(3, build.stateful_set("db", 3)) as cluster:
        history = History(cluster)
        await until(cluster, lambda: len(ready(cluster, "db")) == 3)
        became_ready = [
            change.obj["metadata"]["name"]
            for change in history.changes
            if condition(change.obj, "Ready").get("status") == "True"
            and condition(change.old_obj or {}, "Ready").get("status") != "True"
        ]
        assert became_ready == ["db-0", "db-1", "db-2"]
        uid = cluster.store.get(PODS, "db-1", "default")["metadata"]["uid"]
        cluster.store.delete(PODS, "db-1", namespace="default")
        await until(cluster, lambda: _is_new(cluster.store.find(PODS, "db-1", "default"), uid))
        status = cluster.store.get(STATEFULSETS, "db", "default")["status"]
    assert status["currentRevision"] == status["updateRevision"]


def _is_new(pod: Json | None, uid: str) -> bool:
    return (
        pod is not None
        and pod["metadata"]["uid"] != uid
        and condition(pod, "Ready").get("status") == "True"
    )


async def test_a_stateful_set_updates_from_the_top_down_to_its_partition() -> None:
    async with cluster_of(3, build.stateful_set("db", 3)) as cluster:
        await until(cluster, lambda: len(ready(cluster, "db")) == 3)
        change = with_image("registry.invalid/app:2")
        change["spec"]["updateStrategy"] = {"rollingUpdate": {"partition": 1}}
        cluster.store.patch(STATEFULSETS, "db", change, namespace="default")
        wanted = {
            "db-0": "registry.invalid/app:1",
            "db-1": "registry.invalid/app:2",
            "db-2": "registry.invalid/app:2",
        }
        await until(
            cluster,
            lambda: (
                len(ready(cluster, "db")) == 3
                and {pod["metadata"]["name"]: _images([pod])[0] for pod in ready(cluster, "db")}
                == wanted
            ),
        )


async def test_a_stateful_set_makes_claims_for_its_pods() -> None:
    from common.kube.resources import PVCS

    db = build.stateful_set("db", 1)
    db["spec"]["volumeClaimTemplates"] = [
        {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    ]
    async with cluster_of(3, db) as cluster:
        await until(cluster, lambda: pods_of(cluster, "db"))
        assert cluster.store.get(PVCS, "data-db-0", "default")
        pod = pods_of(cluster, "db")[0]
    assert pod["spec"]["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}
    ]
