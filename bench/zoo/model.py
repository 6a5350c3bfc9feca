# SPDX-License-Identifier: Apache-2.0
"""What the judge knows of a cluster: read from the manifests alone, with rules of its own.

Nothing here is shared with the planner. The rules are those of the requirements and of
kube-scheduler, as far as the families make use of them; a manifest with anything else is a
mistake of the family and stops the judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench.zoo.cluster import Json, ZooCluster
from bench.zoo.manifests import (
    controllers,
    host_ports,
    name_of,
    offered,
    reaches,
    requested,
    ruled_out,
    selects,
    tolerated,
)

Floats = NDArray[np.float64]

HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
MAINTENANCE: Final = "scheduler.alpha.kubernetes.io/maintenance"
MARGIN: Final = 0.5
"""Points above a ceiling that are no reason to move anything."""


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """A topology spread constraint of a workload."""

    key: str
    max_skew: int
    hard: bool


@dataclass(slots=True)
class Workload:
    """The replicas of one controller, and what they ask of each other."""

    name: str
    kind: str
    pods: list[int] = field(default_factory=list)
    spreads: list[SpreadRule] = field(default_factory=list)
    repels: list[tuple[str, str]] = field(default_factory=list)
    """(app label, topology key) of required anti-affinity terms."""

    @property
    def stateful(self) -> bool:
        return self.kind == "StatefulSet"


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod, by numbers."""

    name: str
    app: str
    workload: str
    home: int
    load: Floats
    requests: Floats
    """[A] of everything that a node has only so much of."""
    ports: frozenset[str]
    """Of its host, which it needs for itself."""
    priority: int
    movable: bool
    fits: NDArray[np.bool_]
    """[N] where it may run, other pods and room aside."""
    must_leave: bool
    """Its node is ruled out for it, and violations are to be repaired."""


class Model:
    """A cluster in numbers."""

    def __init__(self, cluster: ZooCluster) -> None:
        self.settings = cluster.settings
        nodes = self._nodes = sorted(cluster.objects["nodes"], key=name_of)
        self.nodes = [name_of(node) for node in nodes]
        self.row = {name: row for row, name in enumerate(self.nodes)}
        self.labels = [node["metadata"]["labels"] for node in nodes]
        has = [offered(node, cluster) for node in nodes]
        further = sorted(set().union(*has) - {"cpu", "memory", "pods"})
        self.asked_for = ("cpu", "memory", *further)
        self.offered = np.array([[h.get(name, 0.0) for name in self.asked_for] for h in has])
        self.capacity = self.offered[:, :2]
        self.places = np.array([int(h["pods"]) for h in has])
        self.load = self._load(cluster)
        self.emptied = np.array([MAINTENANCE in labels for labels in self.labels])
        self.closed = np.array([bool(node["spec"].get("unschedulable")) for node in nodes])
        self.taints = [node["spec"].get("taints", []) for node in nodes]
        self.rules = [self._rules(labels) for labels in self.labels]
        self.ceiling = np.array([_ceilings(rules) for rules in self.rules])
        """[nodes, 2] in percent."""
        cpu, memory = self.ceiling.T
        self.transient = np.column_stack(((cpu + 100.0) / 2.0, memory))
        """Exchanges may pass the CPU ceiling half-way to 100 %, never that of memory."""
        self.workloads = {w.name: w for w in _workloads(cluster)}
        self.pods = [
            self._pod(pod, cluster) for pod in sorted(cluster.objects["pods"], key=name_of)
        ]
        for number, pod in enumerate(self.pods):
            self.workloads[pod.workload].pods.append(number)

    @property
    def strategies(self) -> list[str]:
        found: list[str] = self.settings["enabledStrategies"]
        return found

    @property
    def hot(self) -> list[int]:
        """Rows that are above a ceiling by more than the margin, and not emptied anyway."""
        wanted = np.array(["ResourceOptimization" in r["enabledStrategies"] for r in self.rules])
        over = (self.percent(self.load) > self.ceiling + MARGIN).any(axis=1)
        return [int(row) for row in np.flatnonzero(wanted & over & ~self.emptied)]

    @property
    def repairs(self) -> bool:
        """Tell whether pods have to leave nodes that are ruled out for them."""
        return "Violations" in self.strategies

    def points(self, pool: str) -> float:
        """How far the nodes of a pool may be apart."""
        return float(self.rules[self.pools[pool][0]].get("imbalanceThreshold", 20.0))

    @property
    def low_first(self) -> bool:
        return bool(self.settings.get("priorityPolicy", "LowFirst") == "LowFirst")

    @cached_property
    def levels(self) -> list[int]:
        """The priorities of pods that may move, from low to high."""
        return sorted({pod.priority for pod in self.pods if pod.movable})

    def level(self, pod: Pod) -> int:
        return self.levels.index(pod.priority)

    def top_level(self, row: int) -> int:
        """Return the highest priority of the pods that may leave a node."""
        mine = (self.level(pod) for pod in self.pods if pod.home == row and pod.movable)
        return max(mine, default=0)

    @cached_property
    def pools(self) -> dict[str, list[int]]:
        """The rows that are compared with each other for a spread, by pool."""
        found: dict[str, list[int]] = {}
        label = self.settings.get("poolLabel", "")
        for row in np.flatnonzero(~(self.closed | self.emptied)):
            rules = self.rules[row]
            if "LoadBalancing" in rules["enabledStrategies"]:
                pool = f"{rules.get('name', '')}/{self.labels[row].get(label, '')}"
                found.setdefault(pool, []).append(int(row))
        return found

    @cached_property
    def pool_of(self) -> dict[int, str]:
        return {row: pool for pool, rows in self.pools.items() for row in rows}

    def opened(self, steps: Sequence[tuple[int, int]]) -> int:
        """Return how many priorities a set of moves opens, as the policy counts them."""
        pools, own, helpers = Counter[str](), Counter[int](), 0
        for pod in (self.pods[number] for number, _ in steps):
            level, home = self.level(pod), pod.home
            if home in self.hot:
                own[home] = max(own[home], level)
            elif home in self.pool_of:
                pools[self.pool_of[home]] = max(pools[self.pool_of[home]], level)
            elif not self.emptied[home]:
                helpers = max(helpers, level)
        alone = [n for row, n in own.items() if n > pools[self.pool_of.get(row, "")]]
        drained = [self.top_level(int(row)) for row in np.flatnonzero(self.emptied)]
        opened = [*pools.values(), *alone]
        return sum(opened) + max(0, helpers - max([0, *opened, *drained]))

    def percent(self, load: Floats) -> Floats:
        return np.asarray(100.0 * load / self.capacity)

    def domain(self, key: str) -> list[str]:
        """Return the domain of every node; empty where it has none."""
        return [labels.get(key, "") for labels in self.labels]

    def eligible(self, pod: Pod, key: str) -> set[str]:
        """Return the domains in which a pod may run at all."""
        return {d for d, fits in zip(self.domain(key), pod.fits, strict=True) if fits and d}

    def caps(self, workload: Workload, key: str) -> dict[str, int]:
        """Return how many replicas a host or zone may hold where the user says nothing."""
        # Replicas may differ in where they can run: by the zones of their volumes.
        domains = set().union(*(self.eligible(self.pods[p], key) for p in workload.pods))
        names = self.domain(key)
        now = Counter(names[self.pods[p].home] for p in workload.pods)
        replicas = len(workload.pods)
        most = max(now.values())
        domains |= set(now)
        share = ceil(replicas / len(domains)) + 1
        if replicas > 1 and len(domains) > 1:
            share = min(share, replicas - 1)
        return {d: most if workload.stateful else max(now[d], share) for d in domains}

    def _rules(self, labels: Mapping[str, str]) -> Mapping[str, Any]:
        """Return what holds for a node: the first pool whose labels it has, and the rest."""
        for pool in self.settings.get("pools", ()):
            if pool["nodeSelector"].items() <= labels.items():
                return {**self.settings, **pool}
        return self.settings

    def _load(self, cluster: ZooCluster) -> Floats:
        if self.settings.get("usageSource") == "requests":
            total = np.zeros((len(self.nodes), 2))
            for pod in cluster.objects["pods"]:
                total[self.row[pod["spec"]["nodeName"]]] += self._asked(pod["spec"], cluster)[:2]
            return total
        used = [cluster.used(name) for name in self.nodes]
        return np.array([[u.cpu_milli, u.mem_bytes] for u in used], dtype=np.float64)

    def _pod(self, pod: Json, cluster: ZooCluster) -> Pod:
        spec, labels = pod["spec"], pod["metadata"]["labels"]
        use, home = cluster.use[name_of(pod)], self.row[spec["nodeName"]]
        asked, movable = self._asked(spec, cluster), self._movable(pod, cluster)
        measured = self.settings.get("usageSource") != "requests"
        return Pod(
            name=name_of(pod),
            app=labels["app"],
            workload=pod["metadata"]["ownerReferences"][0]["name"],
            home=home,
            load=np.array([use.cpu_milli, use.mem_bytes], dtype=np.float64)
            if measured
            else asked[:2],
            requests=asked,
            ports=host_ports(spec),
            priority=int(spec.get("priority", 0)),
            movable=movable,
            fits=np.array([self._fits(spec, row, cluster) for row in range(len(self.nodes))]),
            must_leave=self.repairs and movable and ruled_out(spec, self._nodes[home]),
        )

    def _asked(self, spec: Json, cluster: ZooCluster) -> Floats:
        asked = requested(spec, cluster)
        return np.array([asked[name] for name in self.asked_for], dtype=np.float64)

    def _movable(self, pod: Json, cluster: ZooCluster) -> bool:
        labels = pod["metadata"]["labels"]
        if labels.get("scheduler.alpha.kubernetes.io/rescheduling") == "disabled":
            return False
        owner = pod["metadata"]["ownerReferences"][0]["name"]
        spec = next(w["spec"] for w in controllers(cluster) if name_of(w) == owner)
        # A DaemonSet has no number of replicas, and its pods have their nodes.
        if spec.get("replicas", 0) < max(2, self.settings.get("minReplicas", 1)):
            return False
        budgets = [
            b
            for b in cluster.objects.get("poddisruptionbudgets", [])
            if b["spec"]["selector"]["matchLabels"].items() <= labels.items()
        ]
        return len(budgets) < 2 and all(b["status"]["disruptionsAllowed"] > 0 for b in budgets)

    def _fits(self, spec: Json, row: int, cluster: ZooCluster) -> bool:
        """Tell whether a pod may be brought to a node: kube-scheduler's filters, and ours."""
        if self.closed[row] or self.emptied[row]:
            return False
        # PreferNoSchedule counts too: a load move never enters a node that would rather not.
        if not all(tolerated(taint, spec) for taint in self.taints[row]):
            return False
        labels = self.labels[row]
        volumes = spec.get("volumes", [])
        return selects(spec, labels) and all(reaches(v, labels, cluster) for v in volumes)


def _workloads(cluster: ZooCluster) -> Iterator[Workload]:
    for owner in controllers(cluster):
        spec = owner["spec"]["template"]["spec"]
        found = Workload(name_of(owner), owner["kind"])
        for each in spec.get("topologySpreadConstraints", []):
            hard = each["whenUnsatisfiable"] == "DoNotSchedule"
            found.spreads.append(SpreadRule(each["topologyKey"], each["maxSkew"], hard))
        anti = spec.get("affinity", {}).get("podAntiAffinity", {})
        for term in anti.get("requiredDuringSchedulingIgnoredDuringExecution", []):
            app = term["labelSelector"]["matchLabels"]["app"]
            found.repels.append((app, term["topologyKey"]))
        yield found


def _ceilings(rules: Mapping[str, Any]) -> list[float]:
    return [float(rules.get(key, 80.0)) for key in ("cpuThreshold", "memoryThreshold")]
