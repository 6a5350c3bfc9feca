# SPDX-License-Identifier: Apache-2.0
"""Evictions of `TopologySpread`, beside the fewest that an exact judge finds.

    python -m bench.topology [FAMILY ...] [--seeds 10] [--first 1]

Clusters are drawn from seeds. The running program plans for each (`--once --dry-run`), and its
moves are made one after the other on the drawn numbers: requests have to fit, immovable pods stay,
and no hard constraint may become worse at any step. The judge (HiGHS) reads the same numbers and
minimizes the moves after which every constraint holds; it counts domains and pods by itself, as
kube-scheduler's PodTopologySpread plugin does. Clusters where that is impossible do not count, nor
where kube-scheduler would place the pods in no order of the moves.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bench.whole import Problem
from bench.zoo.cluster import GIB, Json, Use, ZooCluster
from bench.zoo.program import planned

SETTINGS: Final = {
    "enabledStrategies": ["TopologySpread"],
    "singleReplica": "allow",
    "maxReschedulePods": 1000,
}
FIRM: Final = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
TAINT: Final = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
MANY: Final = 10_000.0
RETRIES: Final = 12
"""Solutions without an order that are cut off before the cluster counts as impossible."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a drawn cluster."""

    zone: str
    cores: int = 8
    kind: str = "a"
    tainted: bool = False

    def labels(self, name: str) -> dict[str, str]:
        return {ZONE: self.zone, HOST: name, "kind": self.kind}


@dataclass(frozen=True, slots=True)
class Constraint:
    """A topology spread constraint; its selector is the workload's `set` label."""

    key: str
    skew: int = 1
    hard: bool = True
    min_domains: int = 1
    affinity: bool = True
    taints: bool = False

    def manifest(self, shared: str) -> Json:
        found: Json = {
            "maxSkew": self.skew,
            "topologyKey": self.key,
            "whenUnsatisfiable": "DoNotSchedule" if self.hard else "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"set": shared}},
            "nodeAffinityPolicy": "Honor" if self.affinity else "Ignore",
            "nodeTaintsPolicy": "Honor" if self.taints else "Ignore",
        }
        return found | ({"minDomains": self.min_domains} if self.min_domains > 1 else {})


DEFAULTS: Final = (Constraint(HOST, 3, hard=False), Constraint(ZONE, 5, hard=False))


@dataclass(frozen=True, slots=True)
class Workload:
    """A ReplicaSet; those of one set are counted together."""

    constraints: tuple[Constraint, ...]
    shared: str
    cores: float = 0.05
    kind: str = ""
    """The only nodes where it may run; empty for any."""
    tolerates: bool = False

    @property
    def binding(self) -> tuple[Constraint, ...]:
        return self.constraints or DEFAULTS

    def runs_on(self, node: Node) -> bool:
        return self.kind in ("", node.kind) and (self.tolerates or not node.tainted)

    def spec(self) -> Json:
        found: Json = {}
        if self.constraints:
            made = [each.manifest(self.shared) for each in self.constraints]
            found["topologySpreadConstraints"] = made
        if self.kind:
            found["nodeSelector"] = {"kind": self.kind}
        if self.tolerates:
            found["tolerations"] = [{"key": TAINT["key"], "operator": "Exists"}]
        return found


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a drawn cluster."""

    workload: str
    home: str
    firm: bool = False


@dataclass(slots=True)
class Drawn:
    """A cluster in numbers."""

    nodes: dict[str, Node] = field(default_factory=dict)
    workloads: dict[str, Workload] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)

    def add(self, name: str, workload: Workload, homes: Sequence[str], firm: float = 0.0) -> None:
        """Add a workload with a pod on each of these nodes, the first share of them immovable."""
        self.workloads[name] = workload
        for number, home in enumerate(homes):
            self.pods[f"{name}-{number}"] = Pod(name, home, number < firm * len(homes))

    def manifests(self) -> ZooCluster:
        """Return it as API objects."""
        cluster = ZooCluster(dict(SETTINGS))
        for name, node in self.nodes.items():
            more: Json = {"taints": [TAINT]} if node.tainted else {}
            cluster.node(name, cpu=node.cores, gib=64, labels=node.labels(name), **more)
        for name, workload in self.workloads.items():
            homes = [pod.home for pod in self.pods.values() if pod.workload == name]
            cluster.workload(
                name,
                homes,
                [Use(10, GIB // 64)] * len(homes),
                requests=Use(round(1000 * workload.cores), GIB // 64),
                labels={"set": workload.shared},
                spec=workload.spec(),
            )
        for made in cluster.objects.get("pods", ()):
            if self.pods[made["metadata"]["name"]].firm:
                made["metadata"]["annotations"] = FIRM
        return cluster

    def counted(self) -> Iterator[tuple[Workload, Constraint, dict[str, str]]]:
        """Yield every constraint once, with the domain of each node where pods count."""
        seen = set()
        for workload in self.workloads.values():
            for each in workload.binding:
                key = (workload.shared, each, workload.kind, workload.tolerates)
                if key not in seen:
                    seen.add(key)
                    yield workload, each, self._domains(workload, each)

    def _domains(self, workload: Workload, each: Constraint) -> dict[str, str]:
        found, usable = {}, set()
        for name, node in self.nodes.items():
            selected = workload.kind in ("", node.kind)
            tolerated = workload.tolerates or not node.tainted
            if (selected or not each.affinity) and (tolerated or not each.taints):
                found[name] = node.labels(name)[each.key]
                if each.hard or (selected and tolerated):
                    usable.add(found[name])
        return {name: value for name, value in found.items() if value in usable}

    def width(self, workload: Workload, each: Constraint, homes: Mapping[str, str]) -> int:
        """Return by how much the fullest domain of a constraint is above the emptiest."""
        held, least = self._held(workload, each, homes)
        return max(held.values(), default=0) - least

    def above(
        self, workload: Workload, each: Constraint, homes: Mapping[str, str], node: str
    ) -> int:
        """Return by how much the domain of a node is above the emptiest."""
        held, least = self._held(workload, each, homes)
        return held[self.nodes[node].labels(node)[each.key]] - least

    def _held(
        self, workload: Workload, each: Constraint, homes: Mapping[str, str]
    ) -> tuple[Counter[str], int]:
        """Return the pods by domain, and what the emptiest counts as."""
        domains = self._domains(workload, each)
        held = Counter(dict.fromkeys(domains.values(), 0))
        for name, pod in self.pods.items():
            if self.workloads[pod.workload].shared == workload.shared and homes[name] in domains:
                held[domains[homes[name]]] += 1
        short = each.hard and len(held) < each.min_domains
        return held, 0 if short else min(held.values(), default=0)


class Judge:
    """The linear problem in whole numbers: where each pod is in the end."""

    def __init__(self, drawn: Drawn) -> None:
        self._drawn = drawn
        self._problem = Problem()
        self._goes = {
            (pod, name): self._problem.column(1.0)
            for pod, found in drawn.pods.items()
            for name, node in drawn.nodes.items()
            if name != found.home
            and not found.firm
            and drawn.workloads[found.workload].runs_on(node)
        }
        self._rows()

    def fewest(self) -> int | None:
        """Return the fewest moves; None if none do that can be made one after the other."""
        if not self._goes:
            return None if self._drawn.pods else 0
        for _ in range(RETRIES):
            values = self._problem.solved()
            if values is None:
                return None
            chosen = [move for move, column in self._goes.items() if values[column] > 0.5]
            if in_order(self._drawn, chosen):
                return len(chosen)
            terms = [(self._goes[move], 1.0) for move in chosen]
            self._problem.at_most(len(chosen) - 1.0, terms)
        return None

    def _rows(self) -> None:
        drawn = self._drawn
        for key in drawn.pods:
            self._problem.row(0.0, 1.0, [(c, 1.0) for (p, _), c in self._goes.items() if p == key])
        for name, node in drawn.nodes.items():
            here = [p.workload for p in drawn.pods.values() if p.home == name]
            free = node.cores - sum(drawn.workloads[w].cores for w in here)
            terms = [
                (c, sign * drawn.workloads[drawn.pods[p].workload].cores)
                for (p, n), c in self._goes.items()
                for sign, at in ((1.0, n), (-1.0, drawn.pods[p].home))
                if at == name
            ]
            self._problem.at_most(max(0.0, free), terms)
        for workload, each, domains in drawn.counted():
            self._spread(workload, each, domains)

    def _spread(self, workload: Workload, each: Constraint, domains: Mapping[str, str]) -> None:
        drawn, values = self._drawn, sorted(set(domains.values()))
        short = each.hard and len(values) < each.min_domains
        lowest = self._problem.column(0.0, 0.0 if short else MANY)
        pods = [p for p, found in drawn.pods.items() if self._shared(found) == workload.shared]
        for value in values:
            held = sum(domains.get(drawn.pods[p].home) == value for p in pods)
            terms = [(lowest, -1.0)]
            for p in pods:
                home = domains.get(drawn.pods[p].home)
                for name in drawn.nodes:
                    change = (domains.get(name) == value) - (home == value)
                    if change and (p, name) in self._goes:
                        terms.append((self._goes[p, name], float(change)))
            self._problem.row(-float(held), each.skew - float(held), terms)

    def _shared(self, pod: Pod) -> str:
        return self._drawn.workloads[pod.workload].shared


def in_order(drawn: Drawn, moves: Sequence[tuple[str, str]]) -> bool:
    """Tell whether the scheduler would place the pods one after the other, in some order."""
    homes, waiting = {name: pod.home for name, pod in drawn.pods.items()}, list(moves)
    while waiting:
        ready = next((move for move in waiting if _placed(drawn, homes, *move)), None)
        if ready is None:
            return False
        homes[ready[0]] = ready[1]
        waiting.remove(ready)
    return True


def _placed(drawn: Drawn, homes: Mapping[str, str], pod: str, target: str) -> bool:
    """Tell whether a node has room, and no hard constraint forbids the pod there."""
    workload, after = drawn.workloads[drawn.pods[pod].workload], {**homes, pod: target}
    used = sum(
        drawn.workloads[drawn.pods[p].workload].cores for p, home in after.items() if home == target
    )
    if used > drawn.nodes[target].cores + 1e-6:
        return False
    hard = (each for each in workload.constraints if each.hard)
    return all(drawn.above(workload, each, after, target) <= each.skew for each in hard)


@dataclass(frozen=True, slots=True)
class Result:
    """What a plan takes, and what would be enough."""

    evictions: int
    fewest: int | None
    left: int
    """Constraints that the plan leaves broken."""
    broken: tuple[str, ...]


def replayed(drawn: Drawn, moves: Sequence[tuple[str, str]]) -> tuple[list[str], int]:
    """Return the rules that moves break in their order, and the constraints broken in the end."""
    homes, found = {name: pod.home for name, pod in drawn.pods.items()}, []
    constraints = [(workload, each) for workload, each, _ in drawn.counted()]
    widths = [drawn.width(*each, homes) for each in constraints]
    for pod, target in moves:
        workload = drawn.workloads[drawn.pods[pod].workload]
        if drawn.pods[pod].firm or not workload.runs_on(drawn.nodes[target]):
            found.append(f"{pod} may not go to {target}")
        homes[pod] = target
        after = [drawn.width(*each, homes) for each in constraints]
        found += [
            f"{pod} to {target} breaks {each}"
            for (_, each), then, now in zip(constraints, widths, after, strict=True)
            if each.hard and now > max(then, each.skew)
        ]
        widths = after
    for name, node in drawn.nodes.items():
        here = [drawn.pods[p].workload for p, home in homes.items() if home == name]
        if sum(drawn.workloads[w].cores for w in here) > node.cores + 1e-6:
            found.append(f"{name} is requested more than it has")
    left = sum(w > each.skew for w, (_, each) in zip(widths, constraints, strict=True))
    return found, left


def _nodes(rng: random.Random, zones: int, least: int = 1, most: int = 4, **more: Any) -> Drawn:
    found = Drawn()
    for zone in range(zones):
        for number in range(rng.randint(least, most)):
            found.nodes[f"n{zone}{number}"] = Node(f"z{zone}", **more)
    return found


def _homes(rng: random.Random, nodes: Sequence[str], pods: int) -> list[str]:
    """Return nodes for pods, some of them much more often than others."""
    weights = [rng.choice((0.0, 1.0, 1.0, 3.0)) + 0.01 for _ in nodes]
    return rng.choices(nodes, weights, k=pods)


def zones(rng: random.Random) -> Drawn:
    """One hard constraint for zones."""
    found = _nodes(rng, rng.randint(2, 5))
    each = Constraint(ZONE, rng.randint(1, 3))
    found.add("web", Workload((each,), "web"), _homes(rng, [*found.nodes], rng.randint(4, 24)))
    return found


def hosts(rng: random.Random) -> Drawn:
    """One soft constraint for hosts."""
    found = _nodes(rng, rng.randint(1, 4))
    each = Constraint(HOST, rng.randint(1, 3), hard=False)
    found.add("web", Workload((each,), "web"), _homes(rng, [*found.nodes], rng.randint(4, 24)))
    return found


def returned(rng: random.Random) -> Drawn:
    """Zones and hosts within one, and a zone has come back empty."""
    found = _nodes(rng, rng.randint(3, 4), 2, 4)
    back = rng.choice(sorted({node.zone for node in found.nodes.values()}))
    filled = [name for name, node in found.nodes.items() if node.zone != back]
    each = Constraint(ZONE, hard=rng.random() < 0.5), Constraint(HOST, hard=rng.random() < 0.5)
    homes = [filled[n % len(filled)] for n in range(rng.randint(len(filled), 4 * len(filled)))]
    found.add("web", Workload(each, "web"), homes)
    return found


def both(rng: random.Random) -> Drawn:
    """Constraints for zones and hosts with skews of their own, on an uneven cluster."""
    found = _nodes(rng, rng.randint(2, 4))
    keys = (
        Constraint(ZONE, rng.randint(1, 2), hard=rng.random() < 0.5),
        Constraint(HOST, rng.randint(1, 3), hard=rng.random() < 0.3),
    )
    found.add("web", Workload(keys, "web"), _homes(rng, [*found.nodes], rng.randint(5, 20)))
    return found


def defaults(rng: random.Random) -> Drawn:
    """Workloads that state nothing."""
    found = _nodes(rng, rng.randint(2, 4), 1, 3)
    for name in ("web", "api"):
        homes = _homes(rng, [*found.nodes], rng.randint(4, 24))
        found.add(name, Workload((), name), homes)
    return found


def tight(rng: random.Random) -> Drawn:
    """Little room, pods of two sizes, and some that may not be moved."""
    found = _nodes(rng, rng.randint(2, 4), 1, 3, cores=4)
    each = Constraint(ZONE, rng.randint(1, 2), hard=rng.random() < 0.7)
    room = dict.fromkeys(found.nodes, 4.0)
    for name, cores in (("web", 0.5), ("big", 1.0)):
        homes = []
        for home in _homes(rng, [*found.nodes], rng.randint(4, 10)):
            if room[home] >= cores:
                room[home] -= cores
                homes.append(home)
        own = Workload((each,), name, cores)
        found.add(name, own, homes, rng.choice((0.0, 0.2)))
    return found


def policies(rng: random.Random) -> Drawn:
    """Node selectors, taints, their policies, and minDomains."""
    found = Drawn()
    for number in range(rng.randint(4, 9)):
        tainted = rng.random() < 0.25
        node = Node(f"z{number % rng.randint(2, 4)}", 8, rng.choice("ab"), tainted)
        found.nodes[f"n{number}"] = node
    each = Constraint(
        rng.choice((ZONE, HOST)),
        rng.randint(1, 2),
        min_domains=rng.choice((1, 1, 2, 5)),
        affinity=rng.random() < 0.7,
        taints=rng.random() < 0.5,
    )
    own = Workload((each,), "web", kind=rng.choice(("", "a")), tolerates=rng.random() < 0.3)
    fitting = [name for name, node in found.nodes.items() if own.runs_on(node)]
    if fitting:
        found.add("web", own, _homes(rng, fitting, rng.randint(3, 14)))
    return found


def shared(rng: random.Random) -> Drawn:
    """Two workloads whose constraints count the pods of both."""
    found = _nodes(rng, rng.randint(2, 4), 1, 3)
    each = Constraint(ZONE, rng.randint(1, 2)), Constraint(HOST, rng.randint(1, 2), hard=False)
    for name, constraints in (("web", each[:1]), ("api", each[: rng.randint(1, 2)])):
        homes = _homes(rng, [*found.nodes], rng.randint(2, 10))
        found.add(name, Workload(constraints, "front"), homes)
    return found


FAMILIES: Final[Mapping[str, Callable[[random.Random], Drawn]]] = {
    each.__name__: each
    for each in (zones, hosts, returned, both, defaults, tight, policies, shared)
}


def drawn_for(family: str, seed: int) -> Drawn:
    """Return the cluster of a family for a seed."""
    return FAMILIES[family](random.Random(f"{family}-{seed}"))


async def compared(family: str, seed: int) -> Result:
    """Plan and judge one cluster."""
    drawn = drawn_for(family, seed)
    plan = await planned(drawn.manifests())
    moves = [(move["pod"].partition("/")[2], move["target"]) for move in plan.moves]
    fewest = await asyncio.to_thread(Judge(drawn).fewest)
    broken, left = replayed(drawn, moves)
    return Result(len(moves), fewest, left, tuple(broken))


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.topology")
    parser.add_argument("family", nargs="*", default=list(FAMILIES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1)
    given = parser.parse_args()
    print(
        f"{'family':<10}{'solvable':>9}{'met':>5}{'evictions':>11}{'fewest':>8}{'ratio':>8}  broken"
    )
    total = Counter[str]()
    for family in given.family:
        seeds = range(given.first, given.first + given.seeds)
        results = [(seed, await compared(family, seed)) for seed in seeds]
        counted = [r for _, r in results if r.fewest is not None]
        found = Counter(
            solvable=len(counted),
            met=sum(not r.left for r in counted),
            evictions=sum(r.evictions for r in counted if not r.left),
            fewest=sum(r.fewest or 0 for r in counted if not r.left),
        )
        total += found
        print(_line(family, found), [(s, r.broken) for s, r in results if r.broken])
    print(_line("all", total))


def _line(name: str, found: Counter[str]) -> str:
    ratio = found["evictions"] / found["fewest"] if found["fewest"] else 1.0
    return (
        f"{name:<10}{found['solvable']:>9}{found['met']:>5}{found['evictions']:>11}"
        f"{found['fewest']:>8}{ratio:>8.3f} "
    )


if __name__ == "__main__":
    asyncio.run(main())
