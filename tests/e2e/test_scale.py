# SPDX-License-Identifier: Apache-2.0
"""What a surge relies on: the real API server's counts, field owners, and ReplicaSets.

The requests are those of the program, with the permissions of its shipped roles.
"""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest

from bench.stands.cluster import Cluster
from common.api.contract import API_VERSION, DELETION_COST, FIELD_MANAGER
from common.api.migrations import Migration, SurgeState
from common.api.objects import Pod
from common.cluster.interning import Interner
from common.cluster.migrations import MigrationRecord, migration_record
from common.cluster.records import pod_record
from common.kube.client import KubeClient
from common.kube.errors import Conflict, Forbidden
from common.kube.resources import DEPLOYMENTS, PODS, REPLICASETS
from rebalancer.migration.deletion_cost import LOWEST, DeletionCosts
from rebalancer.migration.live_workload import LiveWorkload, Whose, WorkloadScaler
from rebalancer.migration.pod_marks import MarkResult
from simulator import build
from tests.support.repository import DEPLOY

pytestmark = pytest.mark.real

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects

ROLES = [DEPLOY / "base" / name for name in ("rebalancer.yaml", "rebalancer-surge.yaml")]
USER = "surge-test"
APPLY = "application/apply-patch+yaml"


def manifest(cluster: Cluster, count: int) -> Json:
    return build.deployment("web", count, namespace=cluster.namespace, cpu="10m")


async def applied(client: KubeClient, cluster: Cluster, count: int, *, force: bool = False) -> None:
    """Apply the Deployment as a GitOps controller does."""
    path = DEPLOYMENTS.path(namespace=cluster.namespace, name="web")
    params: dict[str, str | int] = {"fieldManager": "gitops", "force": str(force).lower()}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", **manifest(cluster, count)}
    await client.request("PATCH", path, params=params, body=body, content_type=APPLY)


async def migration_of(client: KubeClient, cluster: Cluster) -> MigrationRecord:
    found = await get(client, DEPLOYMENTS.path(namespace=cluster.namespace, name="web"))
    whose = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {
        "pod": {"namespace": cluster.namespace, "name": "web-0", "uid": "u-pod"},
        "controller": {**whose, "kind": "ReplicaSet", "uid": "u-rs"},
        "workload": {**whose, "uid": found["metadata"]["uid"]},
        "source": "a",
        "target": "b",
        "strategy": "LoadBalancing",
        "reason": "Spread",
        "deadline": "2030-01-01T00:00:00Z",
        "surge": True,
    }
    wire = {"apiVersion": API_VERSION, "metadata": {"name": "u-pod", "uid": "u"}, "spec": spec}
    return migration_record(msgspec.convert(wire, Migration, strict=False), Interner())


async def get(client: KubeClient, path: str) -> Json:
    found: Json = msgspec.json.decode(await client.get(path))
    return found


async def read(scaler: WorkloadScaler, migration: MigrationRecord) -> LiveWorkload:
    found = await scaler.read(migration)
    assert found is not None
    return found


async def test_whose_the_count_is_can_be_told_from_its_field_managers(cluster: Cluster) -> None:
    await cluster.bind(USER, *ROLES)
    async with cluster.client() as admin, cluster.client(user=USER) as ours:
        await applied(admin, cluster, 1)
        migration, scaler = await migration_of(admin, cluster), WorkloadScaler(ours)
        before, state = await scaled(scaler, migration, 2), SurgeState(replicas=1)
        assert (before.whose(state), before.others()) == (Whose.BEFORE, "gitops")
        with pytest.raises(Conflict):  # what was read is not what is there any more
            await scaler.scale(migration, before, 2)
        raised = await read(scaler, migration)
        assert raised.whose(state) is Whose.OURS
        assert raised.metadata.generation == before.metadata.generation + 1
        with pytest.raises(Conflict, match=FIELD_MANAGER):
            await applied(admin, cluster, 1)
        await applied(admin, cluster, 2)  # the very count that we raised to
        assert (await read(scaler, migration)).whose(state) is Whose.CLAIMED
        await applied(admin, cluster, 1, force=True)
        reverted = await read(scaler, migration)
        assert (reverted.whose(state), reverted.others()) == (Whose.BEFORE, "gitops")
        await scaled(scaler, migration, 2)
        await cluster.kubectl("scale", "deployment/web", "--replicas=2")  # changes nothing
        assert (await read(scaler, migration)).whose(state) is Whose.OURS
        await cluster.kubectl("scale", "deployment/web", "--replicas=3")
        await cluster.kubectl("scale", "deployment/web", "--replicas=2")
        assert (await read(scaler, migration)).whose(state) is Whose.CLAIMED


async def test_a_replica_set_removes_the_pod_with_the_lowest_cost(cluster: Cluster) -> None:
    await cluster.bind(USER, *ROLES)
    await cluster.add_nodes(3)
    await cluster.create([manifest(cluster, 2)])
    async with cluster.client() as admin, cluster.client(user=USER) as ours:
        migration, scaler = await migration_of(admin, cluster), WorkloadScaler(ours)
        for _ in range(3):
            pods = await _pods(cluster, admin, 2)
            await scaler.scale(migration, await at_rest(cluster, scaler, migration), 3)
            await _pods(cluster, admin, 3)
            victim = min(pods, key=lambda pod: str(pod["metadata"]["name"]))
            record = pod_record(msgspec.convert(victim, Pod, strict=False), Interner())
            done = await DeletionCosts(ours).lower(record, "test")
            assert done.result is MarkResult.DONE
            await scaler.scale(migration, await at_rest(cluster, scaler, migration), 2)
            left = await _pods(cluster, admin, 2)
            assert victim["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in left}
            assert LOWEST not in {_cost(pod) for pod in left}


async def test_no_other_part_of_a_workload_can_be_written(cluster: Cluster) -> None:
    await cluster.bind(USER, *ROLES)
    await cluster.create([manifest(cluster, 1)])
    patch = {"spec": {"paused": True}}
    async with cluster.client(user=USER) as ours:
        for resource in (DEPLOYMENTS, REPLICASETS):
            with pytest.raises(Forbidden):
                await ours.patch(resource, patch, name="web", namespace=cluster.namespace)


async def scaled(scaler: WorkloadScaler, migration: MigrationRecord, count: int) -> LiveWorkload:
    """Scale what the controller may be writing to as well; return it as it was before."""
    while True:
        before = await read(scaler, migration)
        with contextlib.suppress(Conflict):
            await scaler.scale(migration, before, count)
            return before


async def at_rest(
    cluster: Cluster, scaler: WorkloadScaler, migration: MigrationRecord
) -> LiveWorkload:
    async def rests() -> LiveWorkload | None:
        found = await read(scaler, migration)
        return None if found.unrest else found

    found = await cluster.wait(rests, what="the Deployment is at rest")
    assert found is not None
    return found


async def _pods(cluster: Cluster, client: KubeClient, count: int) -> list[Json]:
    """Return the pods once so many are Ready and no other exists."""

    async def ready() -> list[Json]:
        found = await get(client, PODS.path(namespace=cluster.namespace))
        pods = [pod for pod in found["items"] if "deletionTimestamp" not in pod["metadata"]]
        up = [pod for pod in pods if _is_ready(pod)]
        return up if len(up) == len(pods) == count else []

    return await cluster.wait(ready, what=f"{count} pods are Ready")


def _is_ready(pod: Json) -> bool:
    found = pod.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in found)


def _cost(pod: Json) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(DELETION_COST, ""))
