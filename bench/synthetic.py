# SPDX-License-Identifier: Apache-2.0
"""A large cluster served over HTTP: lists in pages, watches, and events on demand.

The objects are as large as real ones (status, container states and managed fields
included), so that reading them costs as much as in production. They are made from one template by
replacing bytes, because the server must not be what is measured. All of them have current usage;
Leases are accepted and not stored; there are no other objects.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from simulator import build

REPLICAS = 30
_STAMP = "2026-11-16T08:00:00Z"
_USAGE = "metrics.k8s.io"
_BOOKMARKS_S = 20.0
"""A watch that says nothing for long is begun again with a list."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the cluster."""

    nodes: int
    pods: int


class Cluster:
    """Bytes of any node or pod of the cluster, by number."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self._pod = _Template(_pod())
        self._node = _Template(_node())
        self._usage: dict[str, bytes] = {}

    def pod(self, number: int, version: int) -> bytes:
        workload = number // REPLICAS
        return self._pod.fill(
            version,
            NUMBER=f"{number:07d}",
            WORKLOAD=f"{workload:05d}",
            NODE=f"{number % self.size.nodes:05d}",
            TEAM=f"{workload % 40:03d}",
            READY=f"{version // 60 % 60:02d}:{version % 60:02d}",
        )

    def node(self, number: int, version: int) -> bytes:
        return self._node.fill(version, NODE=f"{number:05d}", TEAM=f"{number % 3:03d}")

    def items(self, plural: str) -> tuple[int, Any]:
        """Return how many there are of a kind, and what makes one of them."""
        kinds = {"pods": (self.size.pods, self.pod), "nodes": (self.size.nodes, self.node)}
        return kinds.get(plural, (0, None))

    def usage(self, plural: str) -> bytes:
        """Return current measurements of all nodes or pods."""
        if plural not in self._usage:
            make = _node_usage if plural == "nodes" else _pod_usage
            items = ",".join(make(n) for n in range(self.items(plural)[0]))
            self._usage[plural] = f'{{"metadata":{{}},"items":[{items}]}}'.encode()
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return self._usage[plural].replace(b"@NOW@", now.encode())


class _Template:
    def __init__(self, manifest: build.Manifest) -> None:
        self._text = json.dumps(manifest, separators=(",", ":"))

    def fill(self, version: int, **values: str) -> bytes:
        text = self._text.replace("@VERSION@", str(version))
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        return text.encode()


class Server:
    """The API of one synthetic cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._version = 1_000
        self._watches: list[web.StreamResponse] = []
        self._random = random.Random(1)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/events/{count}", self._emit)
        app.router.add_get("/{path:api.*}", self._read)
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            app.router.add_route(method, "/{path:api.*/leases.*}", self._take)
        return app

    async def _take(self, request: web.Request) -> web.Response:
        lease = json.loads(await request.read() or b"{}")
        self._version += 1
        lease.setdefault("metadata", {})["resourceVersion"] = str(self._version)
        return web.json_response(lease)

    async def _read(self, request: web.Request) -> web.StreamResponse:
        plural = request.path.rpartition("/")[2]
        if "/leases/" in request.path:
            raise web.HTTPNotFound
        if _USAGE in request.path:
            body = await asyncio.to_thread(self._cluster.usage, plural)
            return web.Response(body=body, content_type="application/json")
        return await (self._watch if "watch" in request.query else self._list)(request, plural)

    async def _list(self, request: web.Request, plural: str) -> web.StreamResponse:
        count, make = self._cluster.items(plural)
        start = int(request.query.get("continue") or 0)
        end = min(count, start + int(request.query.get("limit") or count or 1))
        items = b",".join(make(number, 1) for number in range(start, end))
        token = str(end) if end < count else ""
        head = f'{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"{self._version}"'
        if token:
            head += f',"continue":"{token}"'
        body = head.encode() + b'},"items":[' + items + b"]}"
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if plural == "pods":
            self._watches.append(response)
        with suppress(ConnectionResetError):
            while True:
                await asyncio.sleep(_BOOKMARKS_S)
                await response.write(b'{"type":"BOOKMARK","object":%b}\n' % self._bookmark())
        return response

    def _bookmark(self) -> bytes:
        return b'{"metadata":{"resourceVersion":"%d"}}' % self._version

    async def _emit(self, request: web.Request) -> web.Response:
        for chunk in self._events(int(request.match_info["count"])):
            for watch in list(self._watches):
                try:
                    await watch.write(chunk)
                except ConnectionResetError:  # the client has begun another one
                    self._watches.remove(watch)
        return web.json_response({"version": self._version})

    def _events(self, count: int) -> Iterator[bytes]:
        for _ in range(count):
            self._version += 1
            pod = self._cluster.pod(self._random.randrange(self._cluster.size.pods), self._version)
            yield b'{"type":"MODIFIED","object":' + pod + b"}\n"


async def serve(size: Size, announce: Any) -> None:
    """Serve until canceled; call `announce` with the port."""
    runner = web.AppRunner(Server(Cluster(size)).app(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    announce(runner.addresses[0][1])
    await asyncio.Event().wait()


def kubeconfig(folder: Path, port: int | str) -> str:
    """Write how to reach the cluster that is served on this port; return the file."""
    path = folder / "kubeconfig"
    entry = {"cluster": "bench", "user": "bench"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "bench", "user": {}}],
        "contexts": [{"name": "bench", "context": entry}],
    }
    path.write_text(json.dumps(config))
    return str(path)


def _pod() -> build.Manifest:
    made = build.pod(
        "web-@WORKLOAD@-7d9f8c6b5-@NUMBER@",
        namespace="team-@TEAM@",
        node="node-@NODE@.example.internal",
        labels={
            "app.kubernetes.io/name": "web-@WORKLOAD@",
            "app.kubernetes.io/part-of": "shop",
            "pod-template-hash": "7d9f8c6b5",
        },
        cpu="250m",
        memory="512Mi",
        annotations={"prometheus.io/scrape": "true", "checksum/config": "f" * 64},
        spec={
            "schedulerName": "default-scheduler",
            "priority": 0,
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            ],
            "volumes": [
                {"name": "kube-api-access-@NUMBER@", "projected": {"sources": [{}] * 3}},
                {"name": "config", "configMap": {"name": "web-@WORKLOAD@"}},
            ],
        },
    )
    _stamp(made, "00000000-0000-4000-8000-00000@NUMBER@", namespace="team-@TEAM@")
    made["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "web-@WORKLOAD@-7d9f8c6b5",
            "uid": "00000000-0000-4000-9000-0000000@WORKLOAD@",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    made["spec"]["containers"][0]["env"] = [
        {"name": f"SETTING_{i}", "value": "v" * 20} for i in range(12)
    ]
    made["status"] = {
        "phase": "Running",
        "startTime": _STAMP,
        "podIP": "10.0.0.1",
        "qosClass": "Burstable",
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": _STAMP, "lastProbeTime": None}
            for kind in ("PodReadyToStartContainers", "Initialized", "PodScheduled")
        ]
        + [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-16T08:@READY@Z"}],
        "containerStatuses": [
            {
                "name": "app",
                "ready": True,
                "restartCount": 0,
                "image": build.IMAGE,
                "imageID": f"{build.IMAGE}@sha256:" + "0" * 64,
                "containerID": "containerd://" + "0" * 64,
                "state": {"running": {"startedAt": _STAMP}},
            }
        ],
    }
    return made


def _node() -> build.Manifest:
    name = "node-@NODE@.example.internal"
    made = build.node(name, zone="zone-@TEAM@", labels={"kubernetes.io/os": "linux"})
    _stamp(made, "00000000-0000-4000-a000-0000000@NODE@")
    made["status"] |= {
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": _STAMP}],
        "addresses": [{"type": "Hostname", "address": name}],
        "images": [
            {"names": [f"registry.invalid/team/image-{i}:1"], "sizeBytes": 10**8 + i}
            for i in range(50)
        ],
    }
    return made


def _pod_usage(number: int) -> str:
    workload = number // REPLICAS
    cpu_nano = (50 + number * 37 % 400) * 1_000_000 + number
    mem_kibi = (100 + number * 53 % 400) * 1024 + number % 1000
    usage = f'{{"cpu":"{cpu_nano}n","memory":"{mem_kibi}Ki"}}'
    name = f"web-{workload:05d}-7d9f8c6b5-{number:07d}"
    return (
        f'{{"metadata":{{"name":"{name}","namespace":"team-{workload % 40:03d}"}},'
        f'"timestamp":"@NOW@","window":"15s","containers":[{{"name":"app","usage":{usage}}}]}}'
    )


def _node_usage(number: int) -> str:
    usage = f'{{"cpu":"{4000 + number * 7 % 3500}000001n","memory":"12582913Ki"}}'
    return (
        f'{{"metadata":{{"name":"node-{number:05d}.example.internal"}},"timestamp":"@NOW@",'
        f'"window":"15s","usage":{usage}}}'
    )


def _stamp(manifest: build.Manifest, uid: str, **metadata: str) -> None:
    fields: dict[str, dict[str, str]] = {f"f:field-{i}": {} for i in range(60)}
    manifest["metadata"] |= {
        "uid": uid,
        "resourceVersion": "@VERSION@",
        "creationTimestamp": _STAMP,
        "managedFields": [
            {"manager": who, "operation": "Update", "time": _STAMP, "fieldsV1": {"f:spec": fields}}
            for who in ("kube-controller-manager", "kubelet")
        ],
        **metadata,
    }
