# SPDX-License-Identifier: Apache-2.0
"""Where pods land with a shortlist, beside where they land if the extender leaves all nodes.

The cluster has 210 nodes in three zones. A tenth of them is hot (90 % used), and the others are
used to 10 to 40 %; half of those have a label that some pods prefer, and a fifth a large image
that some pods need. Both extenders run all the time, and kube-scheduler is restarted with the
one or the other. Each round places, one after the other: workloads of 3, 10 and 100 replicas,
pods with a preference, pods with the image, and a burst of 500 pods; then all are removed.

    python -m bench.scheduler_choices --parts shortlist
"""

from __future__ import annotations

import asyncio
import statistics
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.stands.cluster import MERGE, Cluster
from bench.stands.extender_process import QUICK, USER, ExtenderProcess, extender_with
from bench.stands.landing import Json, Landing
from simulator import build

NODES, ZONES, HOT = 210, 3, 21
WORKLOADS = {3: 20, 10: 6, 100: 1}
"""How many workloads there are of each number of replicas."""
PREFERRING, NEEDING, BURST = 60, 60, 500
PATIENCE_S = 240.0
MARK = "bench.evenkeel.io/preferred"
IMAGE = "registry.invalid/large:1"
IMAGE_BYTES = 4 << 30
ARMS = ("all nodes", "shortlist")

Figures = dict[str, float]


class Trial:
    """One cluster, and the figures of every round."""

    def __init__(self, cluster: Cluster, landing: Landing, folder: Path) -> None:
        self._cluster = cluster
        self._landing = landing
        self._folder = folder
        self._zone: dict[str, str] = {}
        self._hot: set[str] = set()
        self._preferred: set[str] = set()
        self._with_image: set[str] = set()
        self._found: dict[str, list[Figures]] = {arm: [] for arm in ARMS}

    async def prepare(self) -> None:
        """Add the nodes and their load."""
        names = await self._cluster.add_nodes(NODES, zones=ZONES)
        self._zone = {name: f"zone-{i % ZONES}" for i, name in enumerate(names)}
        self._hot = set(names[::10][:HOT])
        cool = [name for name in names if name not in self._hot]
        self._preferred, self._with_image = set(cool[::2]), set(cool[::5])
        await asyncio.gather(*(self._mark(name) for name in cool))
        await self._cluster.create(self._occupant(name, i) for i, name in enumerate(names))

    @asynccontextmanager
    async def extenders(self, ours: ExtenderProcess) -> AsyncIterator[Mapping[str, str]]:
        """Run a second extender, without shortlists; give the URL of each arm."""
        folder = self._folder / "full"
        folder.mkdir()
        kubeconfig = await self._cluster.kubeconfig_of(user=USER)
        settings = {**QUICK, "shortlist": "off"}
        async with extender_with(kubeconfig, folder, settings=settings) as full:
            await self._cluster.wait(full.is_ready, PATIENCE_S, "the second extender is ready")
            yield dict(zip(ARMS, (full.url, ours.url), strict=True))

    async def play(self, arm: str) -> None:
        """Place everything once."""
        found: Figures = {}
        for replicas, workloads in WORKLOADS.items():
            names = [f"r{replicas}-{number}" for number in range(workloads)]
            placed = [Counter(await self._placed(names, replicas, app=n)) for n in names]
            found |= self._spread(replicas, placed)
            await self._remove(names)
        found |= await self._shares()
        found |= await self._burst()
        self._found[arm].append(found)

    def table(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        """Return the title, the head and the rows of the result."""
        first = next(iter(self._found.values()))[0]
        rows = [[name, *(_shown(self._found[arm], name) for arm in ARMS)] for name in first]
        return f"{NODES} nodes, rounds in turn", ["figure", *ARMS], rows

    async def _mark(self, name: str) -> None:
        request = self._cluster.control_plane.api.request
        if name in self._preferred:
            label = {"metadata": {"labels": {MARK: "true"}}}
            await asyncio.to_thread(
                request, "PATCH", f"/api/v1/nodes/{name}", label, content_type=MERGE
            )
        if name in self._with_image:
            images = {"status": {"images": [{"names": [IMAGE], "sizeBytes": IMAGE_BYTES}]}}
            path = f"/api/v1/nodes/{name}/status"
            await asyncio.to_thread(request, "PATCH", path, images, content_type=MERGE)

    def _occupant(self, name: str, number: int) -> Json:
        percent = 90 if name in self._hot else 10 + number * 7 % 31
        return build.pod(
            f"on-{name}",
            namespace=self._cluster.namespace,
            node=name,
            cpu="100m",
            usage_cpu=f"{80 * percent}m",
            usage_memory="1Gi",
        )

    async def _placed(self, begun: list[str], replicas: int, *, app: str) -> list[str]:
        """Begin all of these workloads once, and return the nodes of one."""
        if app == begun[0]:
            await asyncio.gather(*(self._landing.begin(n, replicas, **_template()) for n in begun))
        return await self._nodes(app, replicas)

    async def _nodes(self, app: str, count: int) -> list[str]:
        pods = await self._landing.bound(app, count, timeout_s=PATIENCE_S)
        return [pod["spec"]["nodeName"] for pod in pods]

    async def _remove(self, names: Sequence[str]) -> None:
        await asyncio.gather(*map(self._landing.remove, names))

    def _spread(self, replicas: int, placed: Sequence[Counter[str]]) -> Figures:
        zones = [Counter(self._zone[node] for node in each.elements()) for each in placed]
        skews = [
            max(each.values()) - min(each[f"zone-{i}"] for i in range(ZONES)) for each in zones
        ]
        return {
            f"{replicas} replicas: % on hot nodes": self._percent(placed),
            f"{replicas} replicas: most on one host": float(max(max(p.values()) for p in placed)),
            f"{replicas} replicas: skew of zones, mean": statistics.mean(skews),
        }

    def _percent(self, placed: Sequence[Counter[str]]) -> float:
        hot = sum(each[name] for each in placed for name in self._hot)
        return 100 * hot / sum(each.total() for each in placed)

    async def _shares(self) -> Figures:
        term = {
            "weight": 100,
            "preference": {"matchExpressions": [{"key": MARK, "operator": "Exists"}]},
        }
        terms = {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
        containers = [{**build.container(cpu="10m", memory="16Mi"), "image": IMAGE}]
        kinds = {
            "prefer": (PREFERRING, {"affinity": {"nodeAffinity": terms}}),
            "image": (NEEDING, {"containers": containers}),
        }
        for name, (count, spec) in kinds.items():
            await self._landing.begin(name, count, **_template(spec=spec))
        preferring = await self._nodes("prefer", PREFERRING)
        needing = await self._nodes("image", NEEDING)
        await self._remove(list(kinds))
        return {
            "preference of 100: % that follow": _share(preferring, self._preferred),
            "image on a fifth of the nodes: % there": _share(needing, self._with_image),
        }

    async def _burst(self) -> Figures:
        await self._landing.begin("burst", BURST, **_template())
        placed = Counter(await self._nodes("burst", BURST))
        await self._remove(["burst"])
        return {
            f"burst of {BURST}: % on hot nodes": self._percent([placed]),
            f"burst of {BURST}: most on one host": float(max(placed.values())),
            f"burst of {BURST}: hosts used": float(len(placed)),
        }


def _template(**more: Any) -> dict[str, Any]:
    return {"cpu": "10m", "memory": "16Mi", **more}


def _share(nodes: Sequence[str], wanted: set[str]) -> float:
    return 100 * sum(node in wanted for node in nodes) / len(nodes)


def _shown(rounds: Sequence[Figures], name: str) -> str:
    return ", ".join(f"{figures[name]:.3g}" for figures in rounds)
