# SPDX-License-Identifier: Apache-2.0
"""Pods of a test: create, count, move and delete them.

Everything goes through the real API server; the scheduler under test decides where pods run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from bench.stands.cluster import AT_ONCE, Cluster
from common.api.contract import API_VERSION
from common.clock import SYSTEM
from common.kube.timestamps import micro_time
from controlplane.errors import Refused
from simulator import build

PATIENCE_S = 90.0
LIFETIME_S = 300.0

Json = dict[str, Any]  # Any: nested API objects


def another(nodes: Sequence[str], pod: Json, turn: int) -> str:
    """Return a node to move a pod to, another one each turn."""
    others = [node for node in nodes if node != pod["spec"]["nodeName"]]
    return others[turn * 7 % len(others)]


def hits(landed: Iterable[Json], moves: Iterable[tuple[Json, str]]) -> int:
    """Return how many pods of each application landed where moves wanted one."""
    found = Counter((_app(pod), pod["spec"]["nodeName"]) for pod in landed)
    return (found & Counter((_app(pod), target) for pod, target in moves)).total()


def _app(pod: Json) -> str:
    return str(pod["metadata"]["labels"]["app"])


class Landing:
    """The pods of one test."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._api = cluster.control_plane.api
        self._path = f"/api/v1/namespaces/{cluster.namespace}/pods"

    async def occupy(self, node: str, name: str, **template: Any) -> None:
        """Run a pod on a node without the scheduler."""
        made = build.pod(name, namespace=self._cluster.namespace, node=node, **template)
        await self._cluster.create([made])

    async def place(self, name: str, count: int, **template: Any) -> Counter[str]:
        """Create a ReplicaSet, wait until its pods are bound, and count them by node."""
        await self.begin(name, count, **template)
        return Counter(pod["spec"]["nodeName"] for pod in await self.bound(name, count))

    async def begin(self, name: str, count: int, **template: Any) -> None:
        """Create a ReplicaSet; its pods appear one after the other."""
        made = build.replica_set(name, count, namespace=self._cluster.namespace, **template)
        await self._cluster.create([made])

    async def bound(self, name: str, count: int, *, timeout_s: float = PATIENCE_S) -> list[Json]:
        """Return the pods of an application once that many have a node."""

        async def all_bound() -> list[Json]:
            placed = [pod for pod in await self.pods(name) if pod["spec"].get("nodeName")]
            return placed if len(placed) == count else []

        what = f"{count} pods of {name} have nodes"
        found: list[Json] = await self._cluster.wait(all_bound, timeout_s, what)
        return found

    async def pods(self, *names: str) -> list[Json]:
        """Return the pods of these applications, or all, that are not terminating."""
        selector = {"labelSelector": f"app in ({','.join(names)})"} if names else {}
        items = (await asyncio.to_thread(self._api.get, self._path, **selector))["items"]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    async def pod(self, name: str) -> Json:
        return await asyncio.to_thread(self._api.get, f"{self._path}/{name}")

    async def remove(self, name: str) -> None:
        """Delete a ReplicaSet and its pods and wait until they are gone."""
        owners = f"/apis/apps/v1/namespaces/{self._cluster.namespace}/replicasets/{name}"
        await asyncio.to_thread(self._api.delete, owners)

        async def gone() -> bool:
            pods, mine = (
                f"{self._path}?labelSelector=app%3D{name}",
                {"labelSelector": f"app={name}"},
            )
            # A busy server may take longer for hundreds of deletions than the timeout.
            with contextlib.suppress(Refused):
                await asyncio.to_thread(self._api.delete, pods, AT_ONCE)
                return not (await asyncio.to_thread(self._api.get, self._path, **mine))["items"]
            return False

        await self._cluster.wait(gone, PATIENCE_S, f"the pods of {name} are gone")

    async def forget(self, name: str) -> None:
        """Delete a bare pod and wait until it is gone."""
        await asyncio.to_thread(self._api.delete, f"{self._path}/{name}", AT_ONCE)

    async def plan(self, moves: Iterable[tuple[Json, str]]) -> int:
        """Create a Migration for each move; return the version that all of them are in."""
        made = await self._cluster.create(migration(pod, target) for pod, target in moves)
        return max(int(each["metadata"]["resourceVersion"]) for each in made)

    async def evict(self, pods: Sequence[Json]) -> None:
        """Evict exactly these pods through the Eviction API."""
        await asyncio.gather(*(asyncio.to_thread(self._evict, pod) for pod in pods))

    def _evict(self, pod: Json) -> None:
        metadata = pod["metadata"]
        body: Json = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": metadata["name"]},
            "deleteOptions": {"preconditions": {"uid": metadata["uid"]}},
        }
        self._api.request("POST", f"{self._path}/{metadata['name']}/eviction", body)


def migration(pod: Json, target: str) -> Json:
    """Return the Migration of a controlled pod, as the rebalancer would write it."""
    metadata = pod["metadata"]
    [owner] = metadata["ownerReferences"]
    return {
        "apiVersion": API_VERSION,
        "kind": "Migration",
        "metadata": {"name": metadata["uid"]},
        "spec": {
            "pod": {key: metadata[key] for key in ("namespace", "name", "uid")},
            "controller": {key: owner[key] for key in ("apiVersion", "kind", "name", "uid")},
            "source": pod["spec"]["nodeName"],
            "target": target,
            "strategy": "LoadBalancing",
            "reason": "NodeOverloaded",
            "deadline": micro_time(SYSTEM.now() + LIFETIME_S),
            "load": {"cpuMilli": 100, "memoryBytes": 2**27},
            "requests": {"cpuMilli": 100, "memoryBytes": 2**27},
        },
    }


def waiting_reason(pod: Json) -> str:
    """Return the message of the scheduler about a pending pod."""
    conditions = pod.get("status", {}).get("conditions", ())
    return next((str(c.get("message", "")) for c in conditions if c["type"] == "PodScheduled"), "")
