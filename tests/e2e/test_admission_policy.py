# SPDX-License-Identifier: Apache-2.0
"""What the shipped policy makes of new pods, asked of a real API server by dry runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import pytest

from bench.stands.cluster import Cluster
from bench.stands.episode import guided
from bench.stands.landing import migration
from common.api.contract import API_VERSION, GUIDE_LABEL, GUIDED_BY
from common.clock import SYSTEM
from common.kube.timestamps import micro_time
from simulator import build
from tests.support.releases import needs_mutation

pytestmark = [pytest.mark.real, needs_mutation]

Json = dict[str, Any]  # Any: nested API objects

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
OWNER: Final[Json] = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web"}
SET: Final[Json] = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "db"}
ZONE: Final[Json] = {"key": "zone", "operator": "In", "values": ["a"]}
NOT_N9: Final[Json] = {"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}
TARGET: Final[Json] = {"key": "metadata.name", "operator": "In", "values": ["n2"]}


async def test_each_term_of_a_replacement_is_narrowed_to_the_target(cluster: Cluster) -> None:
    async with guided(cluster):
        uid = await _moved(cluster, OWNER, "web-a")
        terms = [{"matchExpressions": [ZONE]}, {"matchFields": [NOT_N9]}, {}]
        liked = [{"weight": 5, "preference": {"matchExpressions": [ZONE]}}]
        affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}, PREFERRED: liked}}
        await cluster.wait(lambda: _told(cluster, OWNER), what="the policy is effective")

        made = await _made(cluster, OWNER)
        assert made["metadata"]["annotations"][GUIDED_BY] == uid
        assert _terms(made) == [{"matchFields": [TARGET]}]
        made = await _made(cluster, OWNER, affinity=affinity)
        assert _terms(made) == [
            {"matchExpressions": [ZONE], "matchFields": [TARGET]},
            {"matchFields": [NOT_N9, TARGET]},
        ]
        assert made["spec"]["affinity"]["nodeAffinity"][PREFERRED] == liked
        made = await _made(cluster, OWNER, affinity={"podAntiAffinity": {}}, annotations=None)
        assert _terms(made) == [{"matchFields": [TARGET]}]


async def test_other_pods_are_left_alone(cluster: Cluster) -> None:
    async with guided(cluster):
        await _moved(cluster, OWNER, "web-a")
        await _moved(cluster, SET, "db-1")
        await _moved(cluster, {**OWNER, "uid": "late"}, "late-a", seconds=-1)
        await cluster.wait(lambda: _told(cluster, OWNER), what="the policy is effective")
        await cluster.wait(lambda: _told(cluster, SET, name="db-1"), what="the set's pod is told")

        nowhere: Json = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}
        assert _terms(await _made(cluster, OWNER, affinity=nowhere)) == [{}]
        assert not await _told(cluster, SET, name="db-0"), "another pod of the set"
        assert not await _told(cluster, {**OWNER, "uid": "late"}), "its deadline has passed"
        assert not await _told(cluster, {**OWNER, "uid": "other"})
        assert not await _told(cluster, {**OWNER, "kind": "ReplicationController"})
        assert not await _told(cluster, OWNER, controller=False)
        assert not await _told(cluster, OWNER, namespace="default")
        assert not await _told(cluster, OWNER, nodeName="n7")


async def _moved(cluster: Cluster, owner: Json, name: str, *, seconds: float = 300.0) -> str:
    """Create a Migration to n2 that guides; return its uid."""
    metadata = {"namespace": cluster.namespace, "name": name, "uid": f"uid-{name}"}
    pod = {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": {"nodeName": "n1"}}
    body = migration(pod, "n2")
    body["metadata"]["labels"] = {GUIDE_LABEL: "admission"}
    body["spec"]["deadline"] = micro_time(SYSTEM.now() + seconds)
    request = cluster.control_plane.api.request
    path = f"/apis/{API_VERSION}/migrations"
    made = await asyncio.to_thread(request, "POST", path, body)
    return str(made["metadata"]["uid"])


async def _told(cluster: Cluster, owner: Json, **more: Any) -> bool:
    made = await _made(cluster, owner, **more)
    return GUIDED_BY in made["metadata"].get("annotations", {})


async def _made(
    cluster: Cluster,
    owner: Json,
    *,
    name: str = "new",
    namespace: str | None = None,
    controller: bool = True,
    annotations: Mapping[str, str] | None = {"a": "b"},
    **spec: Any,
) -> Json:
    """Return a pod as it would be created."""
    space = namespace or cluster.namespace
    pod = build.pod(name, namespace=space, annotations=annotations, spec=spec)
    if not annotations:
        del pod["metadata"]["annotations"]
    pod["metadata"]["ownerReferences"] = [{**owner, "controller": controller}]
    request, path = cluster.control_plane.api.request, f"/api/v1/namespaces/{space}/pods"
    return await asyncio.to_thread(request, "POST", path, pod, params={"dryRun": "All"})


def _terms(pod: Json) -> list[Json]:
    found: list[Json] = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return found
