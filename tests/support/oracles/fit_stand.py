# SPDX-License-Identifier: Apache-2.0
"""Real clusters that only kube-scheduler and no one else changes.

A control plane of etcd, API server and scheduler: what controllers and kubelets would do
is written by hand, so that a cluster is exactly what its case says. Every cluster is
taken down again before the next.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from common.clock import SYSTEM
from common.kube.api import PatchKind
from common.kube.client import KubeClient
from common.kube.errors import AlreadyExists, NotFound
from controlplane.api import Json
from controlplane.cluster import ClusterOptions, ControlPlane, up
from controlplane.guardian import Guardian
from tests.support.worlds.fit_dice import (
    NAMESPACES,
    OVERHEAD,
    PRIORITIES,
    RUNTIME,
    STATE,
    TERMINATING,
    ClusterCase,
    name_of,
)

T = TypeVar("T")

PAUSE_S = 0.05
SETTLE_S = 0.3
PATIENCE_S = 60.0
DAY_S = 86400
WORKERS = 16
WITHOUT = frozenset({"kube-controller-manager", "kwok", "metrics-server"})

STORAGE = "storage.k8s.io/v1"
PATHS = {
    "nodes": ("Node", "v1", "/api/v1/nodes"),
    "pods": ("Pod", "v1", "/api/v1/pods"),
    "namespaces": ("Namespace", "v1", "/api/v1/namespaces"),
    "pvs": ("PersistentVolume", "v1", "/api/v1/persistentvolumes"),
    "pvcs": ("PersistentVolumeClaim", "v1", "/api/v1/persistentvolumeclaims"),
    "storageclasses": ("StorageClass", STORAGE, f"/apis/{STORAGE}/storageclasses"),
    "csinodes": ("CSINode", STORAGE, f"/apis/{STORAGE}/csinodes"),
    "replicasets": ("ReplicaSet", "apps/v1", "/apis/apps/v1/replicasets"),
}
BY_KIND = {
    **{kind: path for kind, _, path in PATHS.values()},
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
}


@contextlib.contextmanager
def bare_control_plane(folder: Path, scheduler_config: Path) -> Iterator[ControlPlane]:
    """Run a control plane of which only the scheduler thinks."""
    root = folder / "plane"
    guardian = Guardian(root)
    try:
        plane = up(ClusterOptions(root, scheduler_config=scheduler_config, without=WITHOUT), _quiet)
        try:
            yield plane
        finally:
            plane.down()
    finally:
        guardian.dismiss()


class FitStand:
    """Builds the clusters of cases, one at a time."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._prepared = False

    @contextlib.asynccontextmanager
    async def cluster(self, case: ClusterCase) -> AsyncIterator[Json]:
        """Build a cluster; give what the API server shows of it: kind → objects."""
        await self._prepare()
        try:
            await self._build(case)
            yield await self.look(case)
        finally:
            await self._clear(case)

    async def look(self, case: ClusterCase) -> Json:
        """Return all objects of a case, and the namespaces."""
        start = f"{case.prefix}-"
        seen = {kind: await self._list(kind) for kind in PATHS}
        ours = {
            kind: [o for o in objects if name_of(o).startswith(start)]
            for kind, objects in seen.items()
        }
        return {**ours, "namespaces": seen["namespaces"]}

    async def create(self, objects: Iterable[Json]) -> list[Json]:
        """Create objects; return them as the API server made them."""
        return await each(self._create, objects)

    async def judged(self, uids: set[str]) -> dict[str, Json]:
        """Wait until the scheduler has said of these pods that they have no place."""
        deadline = SYSTEM.monotonic() + PATIENCE_S
        while True:
            found = {pod["metadata"]["uid"]: pod for pod in await self._list("pods")}
            known = {uid: found[uid] for uid in uids if _is_unschedulable(found[uid])}
            if len(known) == len(uids):
                return known
            silent = [name_of(found[uid]) for uid in uids - set(known)]
            assert SYSTEM.monotonic() < deadline, f"kube-scheduler says nothing about {silent}"
            await SYSTEM.sleep(PAUSE_S)

    async def remove(self, obj: Json) -> None:
        """Delete an object at once, whatever holds it."""
        with contextlib.suppress(NotFound):
            if obj["metadata"].get("finalizers"):
                # No one is here who would take them off.
                await self._patch(obj, {"metadata": {"finalizers": None}})
            await self._delete(obj, grace_s=0)

    async def _prepare(self) -> None:
        if self._prepared:
            return
        classes = [_priority_class(name, value) for name, value in PRIORITIES.items()]
        spaces = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in NAMESPACES
        ]
        for obj in (*classes, *spaces, _runtime_class()):
            with contextlib.suppress(AlreadyExists):
                await self._create(obj)
        self._prepared = True

    async def _build(self, case: ClusterCase) -> None:
        for namespace in case.namespaces:
            labels = {"team": None, "shared": None, **namespace["metadata"]["labels"]}
            await self._patch(namespace, {"metadata": {"labels": labels}})
        await self.create([*case.storageclasses, *case.pvs, *case.pvcs, *case.replicasets])
        await self.create([*case.nodes, *case.csinodes])
        await each(self._set_taints, case.nodes)
        await self.create(case.pods)
        with_status = [m for m in (*case.pvs, *case.pvcs, *case.pods) if m.get("status")]
        await each(self._set_status, with_status)
        ending = [m for m in (*case.pvcs, *case.pods) if _ends(m)]
        await each(lambda m: self._delete(m, grace_s=DAY_S), ending)
        # The scheduler watches every kind on its own: let all of them arrive.
        await SYSTEM.sleep(SETTLE_S)

    async def _set_taints(self, node: Json) -> None:
        # The API server marks every new node as not ready, and no one is here to unmark it.
        await self._patch(node, {"spec": {"taints": node["spec"].get("taints", [])}})

    async def _set_status(self, manifest: Json) -> None:
        await self._patch(manifest, {"status": manifest["status"]}, "/status")

    async def _clear(self, case: ClusterCase) -> None:
        seen = await self.look(case)
        await each(self.remove, seen["pods"])
        kinds = ("pvcs", "pvs", "nodes", "csinodes", "storageclasses", "replicasets")
        await each(self.remove, [obj for kind in kinds for obj in seen[kind]])

    async def _list(self, kind: str) -> list[Json]:
        name, version, path = PATHS[kind]
        items: list[Json] = msgspec.json.decode(await self._client.get(path))["items"]
        for item in items:
            item["metadata"].pop("managedFields", None)
        # Lists leave out of their items what they say of themselves.
        return [{"apiVersion": version, "kind": name, **item} for item in items]

    async def _create(self, obj: Json) -> Json:
        answer = await self._client.request("POST", _collection(obj), body=obj)
        made: Json = msgspec.json.decode(answer)
        return made

    async def _patch(self, obj: Json, body: Json, subresource: str = "") -> None:
        path = f"{_collection(obj)}/{name_of(obj)}{subresource}"
        await self._client.request("PATCH", path, body=body, content_type=PatchKind.MERGE)

    async def _delete(self, obj: Json, *, grace_s: int) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace_s}
        path = f"{_collection(obj)}/{name_of(obj)}"
        await self._client.request("DELETE", path, body=options)


async def each(call: Callable[[Json], Awaitable[T]], objects: Iterable[Json]) -> list[T]:
    """Do something to many objects, a few at a time."""
    turns = asyncio.Semaphore(WORKERS)

    async def one(obj: Json) -> T:
        async with turns:
            return await call(obj)

    return await asyncio.gather(*map(one, objects))


def _collection(obj: Json) -> str:
    """Return the path of an object's collection."""
    path = BY_KIND[obj["kind"]]
    namespace = obj["metadata"].get("namespace")
    if namespace is None:
        return path
    base, _, plural = path.rpartition("/")
    return f"{base}/namespaces/{namespace}/{plural}"


def _priority_class(name: str, value: int) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def _runtime_class() -> Json:
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": RUNTIME},
        "handler": "heavy",
        "overhead": {"podFixed": OVERHEAD},
    }


def _ends(manifest: Json) -> bool:
    return bool(manifest["metadata"].get("annotations", {}).get(STATE) == TERMINATING)


def _is_unschedulable(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)


def _quiet(_: str) -> None:
    """No one needs to hear of every component."""
