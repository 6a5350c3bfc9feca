# SPDX-License-Identifier: Apache-2.0
"""Clusters of which the fewest evictions are known, one or more for each strategy.

Pods are bound where a case wants them, then nodes or pods change, and only then does a contestant
begin. What is wrong is counted from the pods and what the case did to the nodes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bench.stands.cluster import MERGE, Cluster
from bench.stands.real_scenario import Pods, app_of, ending, node_of, place
from simulator import build
from simulator.scenarios import Scenario

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects
Nodes = Mapping[str, str]
"""Names of nodes on the cluster, by those of the case."""

POOL: Final = "pool"
HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
_STATUS: Final = "/api/v1/namespaces/{}/pods/{}/status"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A Deployment, and on which nodes its pods are at the beginning, by their numbers."""

    on: Sequence[int]
    cpu: str = "100m"
    spec: Json = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A cluster in which something is wrong."""

    name: str
    strategy: str
    plugin: str
    point: str
    """The extension point of the plugin."""
    args: Json = field(default_factory=dict)
    settings: Json = field(default_factory=dict)
    fewest: int
    """Evictions of which every plan needs at least so many."""
    nodes: int
    zones: int = 0
    workloads: Mapping[str, Workload]
    change: Callable[[Cluster, Nodes], Awaitable[None]]
    wrong: Callable[[Pods, Nodes], int]

    def scenario(self) -> Scenario:
        zones = [f"zone-{number}" for number in range(1, self.zones + 1)]
        return Scenario.model_validate({"pools": [{"count": self.nodes, "zones": zones}]})

    async def prepare(self, cluster: Cluster, nodes: Nodes) -> None:
        """Create the workloads, then let nodes or pods change."""
        for name in nodes.values():
            await cluster.patch_node(name, {"metadata": {"labels": {POOL: "a"}}})
        made = {}
        for name, each in self.workloads.items():
            deployment = build.deployment(
                name, len(each.on), namespace=cluster.namespace, cpu=each.cpu, spec=each.spec
            )
            made[name] = deployment, [at(nodes, number) for number in each.on]
        await place(cluster, made)
        await self.change(cluster, nodes)


def at(nodes: Nodes, number: int) -> str:
    return nodes[f"node-{number}"]


def here(pods: Pods) -> list[Json]:
    """Return the pods that are on nodes and stay there."""
    return [pod for pod in pods.now.values() if node_of(pod) and not ending(pod)]


def held(pods: Pods, app: str) -> Counter[str]:
    """Return how many pods of a workload each node holds."""
    return Counter(node_of(pod) for pod in here(pods) if app_of(pod) == app)


def _labeled(*numbers: int) -> Callable[[Cluster, Nodes], Awaitable[None]]:
    """Put nodes into another pool."""

    async def change(cluster: Cluster, nodes: Nodes) -> None:
        for number in numbers:
            await cluster.patch_node(at(nodes, number), {"metadata": {"labels": {POOL: "b"}}})

    return change


def _tainted(*numbers: int) -> Callable[[Cluster, Nodes], Awaitable[None]]:
    taint = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}

    async def change(cluster: Cluster, nodes: Nodes) -> None:
        for number in numbers:
            await cluster.patch_node(at(nodes, number), {"spec": {"taints": [taint]}})

    return change


async def _nothing(_: Cluster, __: Nodes) -> None:
    pass


def _on(*numbers: int) -> Callable[[Pods, Nodes], int]:
    """Count the pods on some nodes."""

    def wrong(pods: Pods, nodes: Nodes) -> int:
        names = {at(nodes, number) for number in numbers}
        return sum(node_of(pod) in names for pod in here(pods))

    return wrong


def _above(share: int, *apps: str) -> Callable[[Pods, Nodes], int]:
    """Count the replicas above a share of their host."""

    def wrong(pods: Pods, _: Nodes) -> int:
        return sum(max(0, count - share) for app in apps for count in held(pods, app).values())

    return wrong


def _uneven(pods: Pods, nodes: Nodes) -> int:
    """Count the pods by which zones and hosts differ by more than one."""
    hosts = held(pods, "web")
    per_host = [hosts[name] for name in nodes.values()]
    zones: Counter[int] = Counter()
    for number in range(1, len(nodes) + 1):
        zones[number % 4] += hosts[at(nodes, number)]
    return sum(max(0, max(each) - min(each) - 1) for each in (per_host, list(zones.values())))


def _restarted(*numbers: int) -> Callable[[Cluster, Nodes], Awaitable[None]]:
    """Let the pods of some nodes look as if their container had been restarted often."""
    return _reported(numbers, lambda pod: {"containerStatuses": _restarts(pod)})


def _failed(*numbers: int) -> Callable[[Cluster, Nodes], Awaitable[None]]:
    return _reported(numbers, lambda _: {"phase": "Failed", "reason": "NodeAffinity"})


def _restarts(pod: Json) -> list[Json]:
    return [{**each, "restartCount": 150} for each in pod["status"]["containerStatuses"]]


def _reported(
    numbers: Iterable[int], status: Callable[[Json], Json]
) -> Callable[[Cluster, Nodes], Awaitable[None]]:
    async def change(cluster: Cluster, nodes: Nodes) -> None:
        api, names = cluster.control_plane.api, {at(nodes, number) for number in numbers}
        path = f"/api/v1/namespaces/{cluster.namespace}/pods"
        found = (await asyncio.to_thread(api.get, path))["items"]
        for pod in (each for each in found if node_of(each) in names):
            where = _STATUS.format(cluster.namespace, pod["metadata"]["name"])
            body = {"status": status(pod)}
            await asyncio.to_thread(api.request, "PATCH", where, body, content_type=MERGE)

    return change


def _often_restarted(pods: Pods, _: Nodes) -> int:
    return sum(
        each["restartCount"] >= 100
        for pod in here(pods)
        for each in pod["status"].get("containerStatuses", ())
    )


def _have_failed(pods: Pods, _: Nodes) -> int:
    return sum(pod["status"].get("phase") == "Failed" for pod in here(pods))


def _not_free(wanted: int) -> Callable[[Pods, Nodes], int]:
    """Count the nodes that could be free and are not."""

    def wrong(pods: Pods, nodes: Nodes) -> int:
        used = {node_of(pod) for pod in here(pods)}
        return wanted - sum(name not in used for name in nodes.values())

    return wrong


def _affinity(*, required: bool) -> Json:
    term = {"matchExpressions": [{"key": POOL, "operator": "In", "values": ["a"]}]}
    rule: Json = {"preferredDuringSchedulingIgnoredDuringExecution": []}
    if required:
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    else:
        weighted = {"weight": 100, "preference": term}
        rule = {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}
    return {"affinity": {"nodeAffinity": rule}}


def _apart(app: str) -> Json:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAntiAffinity": rule}}


def _spread(app: str) -> Json:
    common = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    selector = {"labelSelector": {"matchLabels": {"app": app}}}
    keys = ({"topologyKey": key} for key in (ZONE, HOST))
    return {"topologySpreadConstraints": [{**common, **key, **selector} for key in keys]}


def _times(counts: Mapping[int, int]) -> list[int]:
    return [node for node, count in counts.items() for _ in range(count)]


_TWICE: Final = [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
# Zones are assigned in turn: 1, 5, 9, 13 are in the first one, and the third is empty.
_RACKS: Final = {1: 6, 5: 6, 9: 5, 13: 4, 2: 6, 6: 5, 10: 5, 14: 5, 4: 6, 8: 6, 12: 5, 16: 5}

CASES: Final = (
    Case(
        name="a rack comes back",
        strategy="TopologySpread",
        plugin="RemovePodsViolatingTopologySpreadConstraint",
        point="balance",
        args={"constraints": ["DoNotSchedule"]},
        fewest=16,
        nodes=16,
        zones=4,
        workloads={"web": Workload(on=_times(_RACKS), spec=_spread("web"))},
        change=_nothing,
        wrong=_uneven,
    ),
    Case(
        name="labels have changed",
        strategy="Violations",
        plugin="RemovePodsViolatingNodeAffinity",
        point="deschedule",
        args={"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]},
        fewest=4,
        nodes=6,
        workloads={"web": Workload(on=_TWICE, spec=_affinity(required=True))},
        change=_labeled(5, 6),
        wrong=_on(5, 6),
    ),
    Case(
        name="taints have come",
        strategy="Violations",
        plugin="RemovePodsViolatingNodeTaints",
        point="deschedule",
        fewest=4,
        nodes=6,
        workloads={"web": Workload(on=_TWICE)},
        change=_tainted(5, 6),
        wrong=_on(5, 6),
    ),
    Case(
        name="pods that repel",
        strategy="Violations",
        plugin="RemovePodsViolatingInterPodAntiAffinity",
        point="deschedule",
        fewest=3,
        nodes=6,
        workloads={"web": Workload(on=[1, 1, 1, 2, 2, 3], spec=_apart("web"))},
        change=_nothing,
        wrong=_above(1, "web"),
    ),
    Case(
        name="replicas on one host",
        strategy="Duplicates",
        plugin="RemoveDuplicates",
        point="balance",
        fewest=8,
        nodes=6,
        workloads={
            "web": Workload(on=[1, 1, 1, 2, 2, 2]),
            "api": Workload(on=[2, 2, 2, 3, 3, 3]),
        },
        change=_nothing,
        wrong=_above(1, "web", "api"),
    ),
    Case(
        name="preferred nodes",
        strategy="PreferredNodes",
        plugin="RemovePodsViolatingNodeAffinity",
        point="deschedule",
        args={"nodeAffinityType": ["preferredDuringSchedulingIgnoredDuringExecution"]},
        fewest=4,
        nodes=6,
        workloads={"web": Workload(on=_TWICE, spec=_affinity(required=False))},
        change=_labeled(5, 6),
        wrong=_on(5, 6),
    ),
    Case(
        name="many restarts",
        strategy="Hygiene",
        plugin="RemovePodsHavingTooManyRestarts",
        point="deschedule",
        args={"podRestartThreshold": 100, "includingInitContainers": True},
        settings={
            "hygiene": {"tooManyRestarts": [{"restarts": 100, "includingInitContainers": True}]}
        },
        fewest=4,
        nodes=6,
        workloads={"web": Workload(on=_TWICE)},
        change=_restarted(5, 6),
        wrong=_often_restarted,
    ),
    Case(
        name="failed pods",
        strategy="Hygiene",
        plugin="RemoveFailedPods",
        point="deschedule",
        args={"reasons": ["NodeAffinity"], "minPodLifetimeSeconds": 0},
        settings={"hygiene": {"failedPods": [{"reasons": ["NodeAffinity"]}]}},
        fewest=4,
        nodes=6,
        workloads={"web": Workload(on=_TWICE)},
        change=_failed(5, 6),
        wrong=_have_failed,
    ),
    Case(
        name="half-empty nodes",
        strategy="Consolidation",
        plugin="HighNodeUtilization",
        point="balance",
        args={"thresholds": {"cpu": 25}},
        settings={"consolidation": {"minNodeAge": "1s"}},
        fewest=12,
        nodes=6,
        workloads={
            f"app-{number}": Workload(on=on, cpu="400m")
            for number, on in enumerate(
                [(1, 2, 3, 4), (5, 6, 5, 6), (1, 2, 3, 4), (5, 6, 5, 6)] * 2
            )
        },
        change=_nothing,
        wrong=_not_free(3),
    ),
)
