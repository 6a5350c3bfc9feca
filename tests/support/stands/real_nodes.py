# SPDX-License-Identifier: Apache-2.0
"""Three nodes with real kubelets, both programs as shipped, and the kernel's own counters.

What is asserted about load comes from the cgroups of the nodes, which no program of ours
writes: `Counters`. Programs get no setting but `mode: act`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.stands.cluster import Cluster
from bench.stands.episode import Episode, nothing_open
from bench.stands.extender_process import extender_running, use_extender
from bench.stands.real_scenario import is_ready, pods_path, watched
from bench.stands.rebalancer_process import rebalancer_running
from common.clock import SYSTEM
from controlplane.cluster import ControlPlane
from controlplane.real_nodes import cgroups, fleet
from controlplane.real_nodes.image import IMAGE
from controlplane.real_nodes.settings import CPU_MILLI

NODES = fleet.names(3)
SHIPPED: dict[str, Any] = {}
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
        """Return whether processes of a pod run on a node, as the kernel knows it."""
        folders = (self._pids / node / "kubepods").rglob(f"pod{uid}/*/cgroup.procs")
        return any(folder.read_text().strip() for folder in folders)


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

    def level(self) -> bool:
        """Return whether no node is above 80 % and none 20 points above another."""
        found = self.counters.percent().values()
        return bool(found) and max(found) <= 80.0 and max(found) - min(found) <= 20.0


@asynccontextmanager
async def shipped(
    cluster: Cluster, folder: Path, say: Say, **settings: Any
) -> AsyncIterator[Stand]:
    """Run both programs on what the test has created, as shipped but for `settings`."""
    async with extender_running(cluster, folder, settings=SHIPPED) as extender:
        await use_extender(cluster, extender.url)
        async with (
            watched(cluster) as pods,
            rebalancer_running(cluster, folder, settings={"mode": "act", **settings}) as rebalancer,
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
    """Create objects whose pods begin on a node: the others take nothing meanwhile."""
    others = [name for name in NODES if name != node]
    await _cordon(cluster, others, on=True)
    count = len(await _pods(cluster)) + sum(each["spec"]["replicas"] for each in objects)
    await cluster.create(objects)
    await cluster.wait(lambda: _all_run(cluster, count), STAGED_S, f"all pods run on {node}")
    await _cordon(cluster, others, on=False)


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
    pods = await _pods(cluster)
    return len(pods) == count and all(is_ready(pod) for pod in pods)


async def _pods(cluster: Cluster) -> list[Json]:
    path = pods_path(cluster.namespace)
    found: list[Json] = (await asyncio.to_thread(cluster.control_plane.api.get, path))["items"]
    return found


async def _cordon(cluster: Cluster, nodes: Sequence[str], *, on: bool) -> None:
    for node in nodes:
        await cluster.patch_node(node, {"spec": {"unschedulable": on or None}})
