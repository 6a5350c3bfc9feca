# SPDX-License-Identifier: Apache-2.0
"""Nodes that `Consolidation` frees, beside the most that an exact judge can free.

    python -m bench.consolidation [FAMILY ...] [--seeds 10] [--first 1]

Clusters are drawn from seeds. The running program plans for each (`--once --dry-run`); the plan is
applied to the drawn numbers, which are checked again: no node above the target, requests fit, no
immovable pod moved. The judge (HiGHS) reads the same numbers and maximizes what the freed nodes
cost, with one variable for each pod and node. Of *large* clusters it gives an upper bound.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bench.whole import Problem
from bench.zoo.cluster import GIB, Use, ZooCluster
from bench.zoo.program import Runner, planned

TARGET: Final = 65.0
SETTINGS: Final = {"enabledStrategies": ["Consolidation"], "singleReplica": "allow"}
FIRM: Final = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
COST: Final = "price"
MANY_PODS: Final = 100
"""Of more pods the judge may move parts, which takes a second; whole ones would take minutes."""
ZONE: Final = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a drawn cluster."""

    cpu_milli: int
    mem_bytes: int
    cost: float
    zone: str


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a drawn cluster."""

    home: str
    use: Use
    requests: Use
    workload: str
    zone: str
    """The only zone where it may run; empty for any."""
    firm: bool


@dataclass(slots=True)
class Drawn:
    """A cluster in numbers."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)

    def manifests(self) -> ZooCluster:
        """Return it as API objects."""
        priced = {**SETTINGS, "consolidation": {"target": TARGET, "cost": {"label": COST}}}
        cluster = ZooCluster(dict(priced))
        for name, node in self.nodes.items():
            labels = {COST: str(node.cost), ZONE: node.zone}
            cluster.node(name, cpu=node.cpu_milli // 1000, gib=node.mem_bytes // GIB, labels=labels)
        for workload in dict.fromkeys(pod.workload for pod in self.pods.values()):
            pods = [pod for pod in self.pods.values() if pod.workload == workload]
            first, more = pods[0], dict[str, Any]()
            if first.zone:
                more["spec"] = {"nodeSelector": {ZONE: first.zone}}
            cluster.workload(
                workload,
                [pod.home for pod in pods],
                [pod.use for pod in pods],
                requests=first.requests,
                **more,
            )
        for made in cluster.objects["pods"]:
            if self.pods[made["metadata"]["name"]].firm:
                made["metadata"]["annotations"] = FIRM
        return cluster


def draw(
    rng: random.Random,
    sizes: Sequence[tuple[int, float]],
    *,
    level: tuple[float, float],
    firm: float = 0.0,
    zones: int = 1,
    bound: float = 0.5,
    generous: float = 0.6,
    memory: tuple[int, int] = (256, 256),
) -> Drawn:
    """Return nodes of these cores and costs, filled to a level with workloads of 1 to 3 pods."""
    found = Drawn()
    for number, (cores, cost) in enumerate(sizes):
        zone = f"z{number % zones}"
        found.nodes[f"n{number}"] = Node(1000 * cores, 4 * cores * GIB, cost, zone)
    left = {n: rng.uniform(*level) / 100 * node.cpu_milli for n, node in found.nodes.items()}
    number = 0
    while open_ := [name for name, milli in left.items() if milli > 100]:
        homes = rng.sample(open_, min(len(open_), rng.randint(1, 3)))
        use = rng.randint(150, 900)
        asked = Use(int(use * generous), GIB // 8)
        zone = found.nodes[homes[0]].zone if zones > 1 and rng.random() < bound else ""
        homes = [home for home in homes if not zone or found.nodes[home].zone == zone]
        stays = rng.random() < firm
        mib = rng.randint(*memory)
        for index, home in enumerate(homes):
            milli = min(use, max(50, int(left[home])))
            left[home] -= milli
            pod = Pod(home, Use(milli, mib * GIB // 1024), asked, f"app-{number}", zone, stays)
            found.pods[f"app-{number}-{index}"] = pod
        number += 1
    return found


def equal(rng: random.Random) -> Drawn:
    return draw(rng, [(8, 1.0)] * rng.randint(5, 9), level=(10, 45))


def mixed(rng: random.Random) -> Drawn:
    """Sizes and costs differ, and the large ones are not always the dearest for what they are."""
    kinds = [(4, 1.0), (8, 1.9), (16, 3.0), (8, 2.6)]
    return draw(rng, rng.choices(kinds, k=rng.randint(5, 8)), level=(10, 45))


def firm(rng: random.Random) -> Drawn:
    return draw(rng, [(8, 1.0)] * rng.randint(5, 9), level=(10, 40), firm=0.08)


def zoned(rng: random.Random) -> Drawn:
    return draw(rng, [(8, 1.0)] * rng.randint(6, 9), level=(10, 40), zones=2)


def requested(rng: random.Random) -> Drawn:
    """Pods request twice what they use: requests decide."""
    return draw(rng, [(8, 1.0)] * rng.randint(5, 8), level=(10, 35), generous=2.2)


def hungry(rng: random.Random) -> Drawn:
    """Memory is as short as CPU: what fits by one does not fit by the other."""
    sizes = [(8, 1.0)] * rng.randint(5, 9)
    return draw(rng, sizes, level=(10, 40), memory=(200, 4000))


def spanned(rng: random.Random) -> Drawn:
    """Replicas stay apart over three real zones."""
    sizes = [(8, 1.0)] * rng.randint(6, 10)
    return draw(rng, sizes, level=(10, 40), zones=3, bound=0.2)


def large(rng: random.Random) -> Drawn:
    kinds = [(8, 1.0), (16, 1.8), (32, 3.9)]
    return draw(rng, rng.choices(kinds, k=rng.randint(15, 40)), level=(5, 30), firm=0.02)


FAMILIES: Final[Mapping[str, Callable[[random.Random], Drawn]]] = {
    each.__name__: each for each in (equal, mixed, firm, zoned, requested, hungry, spanned, large)
}


class Judge:
    """The linear problem in whole numbers: which nodes are free, and where their pods go."""

    def __init__(self, drawn: Drawn) -> None:
        self._drawn = drawn
        self._problem = Problem()
        self._free = {name: self._problem.column(-node.cost) for name, node in drawn.nodes.items()}
        self._goes = {
            (pod, name): self._problem.column(0.0)
            for pod, found in drawn.pods.items()
            for name, node in drawn.nodes.items()
            if name != found.home and found.zone in ("", node.zone) and not found.firm
        }
        # Rows are written for each pod, node and workload: hundreds of passes over all columns.
        self._from: dict[str, dict[str, int]] = {pod: {} for pod in drawn.pods}
        self._to: dict[str, dict[str, int]] = {name: {} for name in drawn.nodes}
        for (pod, name), column in self._goes.items():
            self._from[pod][name] = self._to[name][pod] = column
        self._workloads: dict[str, list[str]] = {}
        for key, found in drawn.pods.items():
            self._workloads.setdefault(found.workload, []).append(key)
        self._rows()

    def most(self) -> float:
        """Return what the best set of nodes costs; of a large cluster, no less than it costs.

        The best found in time would not do there: it is less than the best, and depends on the
        machine.
        """
        if len(self._drawn.pods) > MANY_PODS:
            self._problem.relax()
        if self._problem.solved() is None:
            raise TimeoutError("not solved in time")
        return -self._problem.objective

    def _rows(self) -> None:
        drawn = self._drawn
        for key, pod in drawn.pods.items():
            goes = [(column, 1.0) for column in self._from[key].values()]
            self._problem.row(0.0, 0.0, [*goes, (self._free[pod.home], -1.0)])
        for (_, name), column in self._goes.items():
            self._problem.at_most(1.0, [(column, 1.0), (self._free[name], 1.0)])
        for name in drawn.nodes:
            for amount, unit, room in _amounts(drawn, name):
                terms = [
                    (column, amount(drawn.pods[p]) / unit) for p, column in self._to[name].items()
                ]
                # A freed node takes nothing, not even in parts: the bound is much closer so.
                limit = max(0.0, room / unit)
                self._problem.at_most(limit, [*terms, (self._free[name], limit)])
            self._apart(name)
        for zone in dict.fromkeys(node.zone for node in drawn.nodes.values()):
            self._apart_in(zone)

    def _apart_in(self, zone: str) -> None:
        """No zone gets all replicas of a workload that could use another."""
        nodes, zones = self._drawn.nodes, {node.zone for node in self._drawn.nodes.values()}
        for pods in self._workloads.values():
            there = sum(nodes[self._drawn.pods[key].home].zone == zone for key in pods)
            terms = [
                (column, 1.0)
                for key in pods
                for name, column in self._from[key].items()
                if nodes[name].zone == zone != nodes[self._drawn.pods[key].home].zone
            ]
            if len(pods) > 1 and len(zones) > 1 and terms:
                self._problem.at_most(max(0.0, float(len(pods) - 1 - there)), terms)

    def _apart(self, name: str) -> None:
        """No host gets all replicas of a workload; what is there already may stay."""
        for pods in self._workloads.values():
            there = sum(self._drawn.pods[p].home == name for p in pods)
            terms = [(self._to[name][p], 1.0) for p in pods if p in self._to[name]]
            if len(pods) > 1 and terms:
                self._problem.at_most(max(0.0, float(len(pods) - 1 - there)), terms)


def _amounts(drawn: Drawn, name: str) -> list[tuple[Callable[[Pod], float], float, float]]:
    """Return what pods take of a node, its unit for the solver, and how much of it is left."""
    node = drawn.nodes[name]
    here = [pod for pod in drawn.pods.values() if pod.home == name]
    amounts: tuple[tuple[Callable[[Pod], float], float, float], ...] = (
        (lambda pod: pod.use.cpu_milli, 1000, TARGET / 100 * node.cpu_milli),
        (lambda pod: pod.use.mem_bytes, GIB, TARGET / 100 * node.mem_bytes),
        (lambda pod: pod.requests.cpu_milli, 1000, node.cpu_milli),
        (lambda pod: pod.requests.mem_bytes, GIB, node.mem_bytes),
    )
    return [(amount, unit, most - sum(map(amount, here))) for amount, unit, most in amounts]


@dataclass(frozen=True, slots=True)
class Result:
    """What the program frees, and what could be freed."""

    freed: float
    most: float
    evictions: int
    broken: tuple[str, ...]


async def compared(family: str, seed: int, run: Runner | None = None) -> Result:
    """Plan and judge one cluster; `run` is another way to start the program."""
    drawn = FAMILIES[family](random.Random(f"{family}-{seed}"))
    plan = await planned(drawn.manifests(), run)
    goes = {move["pod"].partition("/")[2]: move["target"] for move in plan.moves}
    homes = {name: goes.get(name, pod.home) for name, pod in drawn.pods.items()}
    used = set(homes.values())
    freed = sum(node.cost for name, node in drawn.nodes.items() if name not in used)
    most = await asyncio.to_thread(Judge(drawn).most)
    return Result(freed, most, len(goes), tuple(broken(drawn, goes, homes)))


def broken(drawn: Drawn, goes: Mapping[str, str], homes: Mapping[str, str]) -> list[str]:
    """Return the rules that a plan breaks."""
    found = [f"{pod} may not move" for pod in goes if drawn.pods[pod].firm]
    sources, used = {drawn.pods[pod].home for pod in goes}, set(homes.values())
    found += [f"{name} is emptied in part" for name in sorted(sources & used)]
    takes = Counter(goes.values())
    for name, node in drawn.nodes.items():
        pods = [drawn.pods[pod] for pod, home in homes.items() if home == name]
        if takes[name] and sum(p.use.cpu_milli for p in pods) > TARGET / 100 * node.cpu_milli + 1:
            found.append(f"{name} is above the target")
        if sum(p.requests.cpu_milli for p in pods) > node.cpu_milli:
            found.append(f"{name} is requested more than it has")
    return found


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.consolidation")
    parser.add_argument("family", nargs="*", default=list(FAMILIES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1)
    given = parser.parse_args()
    print(
        f"{'family':<12}{'clusters':>9}{'freed':>9}{'most':>9}{'ratio':>8}{'evictions':>11}  broken"
    )
    freed = most = 0.0
    for family in given.family:
        seeds = range(given.first, given.first + given.seeds)
        results = [await compared(family, seed) for seed in seeds]
        mine, best = sum(r.freed for r in results), sum(r.most for r in results)
        freed, most = freed + mine, most + best
        wrong = [f"{s}: {r.broken}" for s, r in zip(seeds, results, strict=True) if r.broken]
        moves = sum(r.evictions for r in results)
        ratio = mine / best if best else 1.0
        print(
            f"{family:<12}{len(results):>9}{mine:>9.1f}{best:>9.1f}{ratio:>8.3f}{moves:>11}"
            f"  {wrong}"
        )
    print(f"{'all':<12}{'':>9}{freed:>9.1f}{most:>9.1f}{freed / most if most else 1.0:>8.3f}")


if __name__ == "__main__":
    asyncio.run(main())
