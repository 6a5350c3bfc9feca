# SPDX-License-Identifier: Apache-2.0
"""kube-apiserver as a stand of the conformance suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import httpx

from bench.stands.cluster import Cluster
from bench.stands.http import open_http
from common.kube.resources import PODS
from tests.support.stands.conformance import Json, Stand


class RealStand(Stand):
    """The real API server, with kube-controller-manager behind it."""

    name = "real"

    def __init__(self, http: httpx.AsyncClient, cluster: Cluster) -> None:
        super().__init__(http, cluster.namespace)
        self._etcd = cluster.control_plane.url("etcd")

    async def compact(self) -> None:
        # Events are the one kind that kube-apiserver does not cache, so that etcd's history
        # is all there is; the version of any answer is a revision of etcd.
        newest = (await self.call("GET", "/api/v1/events", params={"limit": 1})).version
        async with httpx.AsyncClient(base_url=self._etcd, trust_env=False) as etcd:
            body = {"revision": newest, "physical": True}
            (await etcd.post("/v3/kv/compaction", json=body)).raise_for_status()

    async def replicas_of(self, owner: Json, count: int) -> Iterable[str]:
        uid = owner["metadata"]["uid"]

        async def made() -> list[str]:
            pods = (await self.list(PODS)).body["items"]
            mine = [p["metadata"] for p in pods if _owned_by(p, uid)]
            return [metadata["name"] for metadata in mine] if len(mine) == count else []

        names: list[str] = await self.eventually(made)
        return names


def _owned_by(pod: Json, uid: str) -> bool:
    references = pod["metadata"].get("ownerReferences") or ()
    return any(reference["uid"] == uid for reference in references)


@asynccontextmanager
async def real_stand(cluster: Cluster) -> AsyncIterator[RealStand]:
    """Open a stand in the namespace of a test."""
    async with open_http(cluster.kubeconfig) as http:
        yield RealStand(http, cluster)
