# SPDX-License-Identifier: Apache-2.0
"""The objects of the fuzz test are put to the real API server, which accepts every one.

Dry runs store nothing. Statuses are written to one object of each kind, as dry runs too.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bench.stands.cluster import Cluster
from common.cache.reader import CACHED_KINDS
from common.kube.api import PatchKind
from common.kube.client import KubeClient
from common.kube.errors import ApiError
from common.kube.resources import Resource
from simulator.build import Manifest
from tests.support.worlds.fuzz_objects import FuzzCluster, fuzz_cluster

pytestmark = pytest.mark.real

CLUSTERS = 40
AT_ONCE = 8
RESOURCES = {reading.resource.kind: reading.resource for reading in CACHED_KINDS}
WITH_STATUS = ("Pod", "PodDisruptionBudget", "Deployment", "ReplicaSet", "StatefulSet")
SERVERS = ("uid", "resourceVersion", "creationTimestamp", "generation", "deletionTimestamp")
"""Metadata that the API server sets itself."""

Json = dict[str, Any]


async def test_the_api_server_accepts_every_object_of_the_fuzz_test(cluster: Cluster) -> None:
    made = [fuzz_cluster(seed) for seed in range(CLUSTERS)]
    async with cluster.client() as client:
        asked = asyncio.Semaphore(AT_ONCE)
        calls = [
            _refused(client, asked, RESOURCES[manifest["kind"]], _created(manifest, cluster))
            for manifest in _distinct(made)
        ]
        refused = [words for words in await asyncio.gather(*calls) if words]
    assert not refused, f"{len(refused)} of {len(calls)}: " + "\n".join(refused[:10])
    assert len(calls) > 300


async def test_the_api_server_accepts_every_status_of_the_fuzz_test(cluster: Cluster) -> None:
    made = [fuzz_cluster(seed) for seed in range(CLUSTERS)]
    wanted = {
        kind: {repr(m["status"]): m["status"] for m in _distinct(made) if m["kind"] == kind}
        for kind in WITH_STATUS
    }
    async with cluster.client() as client:
        await _examples(client, made, cluster)
        asked = asyncio.Semaphore(AT_ONCE)
        calls = [
            _status_refused(client, asked, RESOURCES[kind], cluster.namespace, status)
            for kind, statuses in wanted.items()
            for status in statuses.values()
        ]
        refused = [words for words in await asyncio.gather(*calls) if words]
    assert not refused, f"{len(refused)} of {len(calls)}: " + "\n".join(refused[:10])
    assert len(calls) > 30


def _distinct(made: list[FuzzCluster]) -> list[Manifest]:
    return [m for each in made for table in each.objects.values() for m in table]


def _created(manifest: Manifest, cluster: Cluster) -> Json:
    """Return an object as a client would create it."""
    meta = {k: v for k, v in manifest["metadata"].items() if k not in SERVERS}
    name = f"fuzz-{meta['name']}" if manifest["kind"] == "Namespace" else meta["name"]
    meta["name"] = name
    if "namespace" in meta:
        meta["namespace"] = cluster.namespace
    found = {**manifest, "metadata": meta}
    if manifest["kind"] == "Pod":
        # Admission computes the priority from the class, and the class is none of ours here.
        left_out = ("priority", "priorityClassName")
        found["spec"] = {k: v for k, v in manifest["spec"].items() if k not in left_out}
    return found


async def _refused(
    client: KubeClient, asked: asyncio.Semaphore, resource: Resource, body: Json
) -> str:
    namespace = body["metadata"].get("namespace")
    async with asked:
        try:
            await client.create(resource, body, namespace=namespace, dry_run=True)
        except ApiError as error:
            return f"{resource.kind} {body['metadata']['name']}: {error}"
    return ""


async def _examples(client: KubeClient, made: list[FuzzCluster], cluster: Cluster) -> None:
    """Create one object of each kind whose statuses are to be written."""
    for kind in WITH_STATUS:
        ordinary = next(m for m in _distinct(made) if m["kind"] == kind)
        body = _created(ordinary, cluster)
        body["metadata"] = {"name": "example", "namespace": cluster.namespace}
        if kind == "Pod":
            container = {"name": "c", "image": "i"}
            body["spec"] = {"containers": [container], "schedulerName": "nobody"}
        elif kind != "PodDisruptionBudget":
            body["spec"]["replicas"] = 0
            labels = body["spec"]["template"]["metadata"]["labels"]
            assert labels["app"] == body["spec"]["selector"]["matchLabels"]["app"]
        await client.create(RESOURCES[kind], body, namespace=cluster.namespace)


async def _status_refused(
    client: KubeClient, asked: asyncio.Semaphore, resource: Resource, namespace: str, status: Json
) -> str:
    path = resource.path(namespace=namespace, name="example", subresource="status")
    async with asked:
        try:
            await client.request(
                "PATCH",
                path,
                params={"dryRun": "All"},
                body={"status": status},
                content_type=PatchKind.MERGE.value,
            )
        except ApiError as error:
            return f"{resource.kind} {status}: {error}"
    return ""
