# SPDX-License-Identifier: Apache-2.0
"""Three nodes with real kubelets, both programs as shipped, and the kernel's own counters.

What is asserted about load comes from the cgroups of the nodes, which no program of ours
writes: `Counters`. Programs read the shipped configuration, with nothing changed but `mode: act`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from bench.stands.cluster import Cluster
from bench.stands.episode import Episode, nothing_open
from bench.stands.extender_process import DEPLOY, extender_running, use_extender
from bench.stands.real_scenario import app_of, node_of, pods_path, uid_of, watched
from bench.stands.rebalancer_process import rebalancer_running
from common.clock import SYSTEM
from controlplane.cluster import ControlPlane
from controlplane.real_nodes import cgroups, fleet
from controlplane.real_nodes.image import IMAGE
from controlplane.real_nodes.settings import CPU_MILLI

NODES = fleet.names(3)
EXTENDER = DEPLOY / "overlays" / "control-plane" / "config" / "extender.yaml"
REBALANCER = DEPLOY / "base" / "config" / "rebalancer.yaml"
EVERY_S, WINDOW_S, MINUTE_S = 5.0, 30.0, 60.0
STAGED_S = 120.0

Json = dict[str, Any]  # Any: nested API objects
Say = Callable[[str], None]


class Counters:
    """CPU of every node in percent of what pods may use, as the kernel counts it."""

    def __init__(self, plane: ControlPlane) -> None:
        bases = plane.cgroups
        self._cpu = cgroups.find(bases, "cpuacct")
        self._pids = cgroups.find(bases, "pids")
        self._seen: deque[tuple[float, dict[str, int]]] = deque()

    def read(self) -> None:
        """Take one more reading; those older than a minute are forgotten."""
        now_s = SYSTEM.monotonic()
        self._seen.append((now_s, {node: cgroups.cpu_ns(self._cpu / node) for node in NODES}))
        while now_s - self._seen[0][0] > MINUTE_S + EVERY_S:
            self._seen.popleft()

    def percent(self, window_s: float = WINDOW_S) -> dict[str, float]:
        """Return the mean of the last seconds; empty while there are not so many."""
        end_s, last = self._seen[-1]
        older = [seen for seen in self._seen if seen[0] <= end_s - window_s]
        if not older:
            return {}
        begin_s, first = older[-1]
        milli = {n: (last[n] - first[n]) / (end_s - begin_s) / 1e6 for n in NODES}
        return {node: 100 * used / CPU_MILLI for node, used in milli.items()}

    def runs(self, node: str, uid: str) -> bool:
        """Return whether a container of a pod runs on a node, as the kernel knows it."""
        found = (self._pids / node / "kubepods").rglob(f"pod{uid}/*/cgroup.procs")
        # One is the sandbox's, which outlives containers that crash.
        return sum(bool(_content(each)) for each in found) > 1


class Stand:
    """Both programs on real nodes, and what is known of them."""

    def __init__(self, loop: Episode, counters: Counters, say: Say) -> None:
        self.loop = loop
        self.cluster = loop.cluster
        self.counters = counters
        self.began_s = SYSTEM.monotonic()
        self._say = say
        self._told_s = self.began_s

    async def until(
        self, reached: Callable[[], Any], timeout_s: float, what: str, *, closed: bool = True
    ) -> float:
        """Wait, with readings and a line a minute; return how long the programs have run."""

        async def done() -> bool:
            await SYSTEM.sleep(EVERY_S)
            self.counters.read()
            await self.tell()
            if not reached():
                return False
            return not closed or (self.loop.pods.settled and await nothing_open(self.cluster))

        await self.cluster.wait(done, timeout_s, what)
        return SYSTEM.monotonic() - self.began_s

    async def tell(self) -> None:
        """Print once a minute what the counters and what the programs say."""
        now_s = SYSTEM.monotonic()
        if now_s - self._told_s < MINUTE_S:
            return
        self._told_s = now_s
        counted, believed = self.counters.percent(MINUTE_S - 2 * EVERY_S), await self.believed()
        rows = [f"{n} {counted[n]:.0f}/{believed[n]:.0f} %" for n in counted]
        self._say(f"{now_s - self.began_s:4.0f} s, counters/believed: {', '.join(rows)}")

    async def believed(self) -> dict[str, float]:
        """Return the CPU that the extender believes of each node, in percent."""
        assert self.loop.extender is not None
        rows = await self.loop.extender.nodes()
        return {name: row.get("cpuPercent") or 0.0 for name, row in rows.items()}

    async def agrees(self, points: float) -> bool:
        """Return whether the extender's belief is close to the counters on every node."""
        await SYSTEM.sleep(EVERY_S)
        self.counters.read()
        counted, believed = self.counters.percent(), await self.believed()
        return bool(counted) and all(abs(counted[n] - believed[n]) <= points for n in counted)

    def on_kernel(self, app: str) -> int:
        """Return how many pods of a workload run, as the kernel knows it; more while one moves."""
        pods = [pod for pod in self.loop.pods.now.values() if app_of(pod) == app]
        return sum(self.counters.runs(node_of(pod), uid_of(pod)) for pod in pods if node_of(pod))

    def check_places(self) -> None:
        """Check that the kernel has each pod exactly where the API server says."""
        for uid, pod in self.loop.pods.now.items():
            where = [node for node in NODES if self.counters.runs(node, uid)]
            assert where == [node_of(pod)]

    def level(self) -> bool:
        """Return whether no node is above 80 % and none 20 points above another."""
        found = self.counters.percent().values()
        return bool(found) and max(found) <= 80.0 and max(found) - min(found) <= 20.0


@asynccontextmanager
async def shipped(
    cluster: Cluster, folder: Path, say: Say, **settings: Any
) -> AsyncIterator[Stand]:
    """Run both programs on what the test has created, as shipped but for `settings`."""
    async with extender_running(cluster, folder, settings=_read(EXTENDER)) as extender:
        await use_extender(cluster, extender.url)
        async with (
            watched(cluster) as pods,
            rebalancer_running(
                cluster, folder, settings={**_read(REBALANCER), "mode": "act", **settings}
            ) as rebalancer,
        ):
            loop = Episode(
                cluster=cluster,
                nodes={name: name for name in NODES},
                pods=pods,
                before=dict(pods.now),
                extender=extender,
                rebalancer=rebalancer,
            )
            yield Stand(loop, Counters(cluster.control_plane), say)


async def place(cluster: Cluster, node: str, *objects: Json) -> None:
    """Create objects whose pods begin on a node, and wait until they run."""
    count = len(await _pods(cluster)) + sum(each["spec"]["replicas"] for each in objects)
    async with only(cluster, node):
        await cluster.create(objects)
        await cluster.wait(lambda: _all_run(cluster, count), STAGED_S, f"all pods run on {node}")


@contextlib.asynccontextmanager
async def only(cluster: Cluster, node: str) -> AsyncIterator[None]:
    """Let the other nodes take no pods meanwhile."""
    others = [name for name in NODES if name != node]
    await _cordon(cluster, others, on=True)
    yield
    await _cordon(cluster, others, on=False)


async def tag_image(cluster: Cluster, node: str, name: str) -> None:
    """Give the image of a node one more name, as if it had been pulled there."""
    plane = cluster.control_plane
    command = plane.command(fleet.containerd_of(node))
    await asyncio.to_thread(fleet.ctr, command, "images", "tag", "--force", IMAGE, name)


def deployment(name: str, replicas: int, *arguments: str, cpu: str = "40m", **spec: Any) -> Json:
    """Return a Deployment of pods that really use CPU."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name, *arguments, cpu=cpu, **spec),
        },
    }


def stateful_set(name: str, replicas: int, *arguments: str) -> Json:
    """Return a StatefulSet of such pods."""
    made = deployment(name, replicas, *arguments)
    return {**made, "kind": "StatefulSet", "spec": {**made["spec"], "serviceName": name}}


def template(name: str, *arguments: str, cpu: str = "40m", image: str = IMAGE, **spec: Any) -> Json:
    """Return the template of a pod with one container."""
    container = {
        "name": "workload",
        "image": image,
        "args": list(arguments),
        "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}},
    }
    return {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 5, **spec},
    }


async def _all_run(cluster: Cluster, count: int) -> bool:
    # Not Ready: one that crashes never stays so.
    pods = await _pods(cluster)
    return len(pods) == count and all(pod["status"]["phase"] == "Running" for pod in pods)


async def _pods(cluster: Cluster) -> list[Json]:
    path = pods_path(cluster.namespace)
    found: list[Json] = (await asyncio.to_thread(cluster.control_plane.api.get, path))["items"]
    return found


async def _cordon(cluster: Cluster, nodes: Sequence[str], *, on: bool) -> None:
    for node in nodes:
        await cluster.patch_node(node, {"spec": {"unschedulable": on or None}})


def _read(file: Path) -> Json:
    found: Json = yaml.safe_load(file.read_text())
    return found


def _content(file: Path) -> str:
    """Return what a file of a cgroup holds; nothing if the cgroup has just ended."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
