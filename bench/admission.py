# SPDX-License-Identifier: Apache-2.0
"""Replacements steered by a MutatingAdmissionPolicy, beside the extender and beside nothing.

One real control plane with kwok nodes. The same moves are carried out in each arm, at most one
of a workload at a time: a Migration, the eviction, and the replacement's node. `nothing`,
`preferred`, `required` and `alternatives` (`bench/admission_policy.py`) run kube-scheduler as
managed clusters have it: without extenders and with its default sampling of nodes; `extender`
runs our extender and the shipped configuration.

`arena`: from hot nodes to cool ones, in both scenarios of `bench.arena`. `landing`: to any node
of N (`--nodes`), which requests fill unevenly. `growth`: the same while each workload gets
three more replicas. `stale`: how long the API server takes to learn of a Migration and of its
end, and what an eviction without waiting comes to. `cost`: CPU per pod that is created and
bound, and latency of creating it, by the number of open Migrations.

    python -m bench.admission [--parts arena,landing,growth,stale,cost] [--seeds 1,2,3]
                              [--nodes 20,200] [--arms ARM,…]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import random
import shutil
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.admission_policy import Variant, policy
from bench.stands.cluster import MERGE, Cluster
from bench.stands.episode import stock_scheduler
from bench.stands.extender_process import (
    ExtenderProcess,
    extender_running,
    install,
    seen_migrations,
    use_extender,
)
from bench.stands.landing import Landing, migration
from bench.stands.real_scenario import (
    NODE_MILLI,
    Pods,
    node_of,
    stage,
    use_of,
    watched,
)
from common.api.contract import API_VERSION, GUIDE_LABEL, GUIDED_BY
from common.clock import SYSTEM
from common.cluster import quantities as quantity
from common.config import Guide
from common.kube.timestamps import micro_time
from controlplane.cluster import ClusterOptions, ControlPlane, up
from controlplane.errors import Refused
from controlplane.guardian import Guardian
from simulator import build
from simulator.scenarios import load_scenario

NOTHING, EXTENDER = "nothing", "extender"
ARMS: Final = (NOTHING, EXTENDER, *(variant.value for variant in Variant))
SCENARIOS: Final = ("hot-spots", "requests-mislead")
CEILING: Final = 0.8
OTHERS: Final = 3
"""Alternatives of each move."""
LAG_S: Final = 0.5
"""How long an eviction waits for the API server to learn of a Migration; `stale` measures it."""
PENDING_S: Final = 30.0
AT_ONCE: Final = 8
WORKLOADS, REPLICAS, MORE = 20, 3, 3
PROBES: Final = 20
COST_PODS, COST_ROUNDS = 150, 3
OPEN: Final = (0, 10, 100, 500)
MIGRATIONS: Final = f"/apis/{API_VERSION}/migrations"

Json = dict[str, Any]  # Any: nested API objects


@dataclass(frozen=True, slots=True)
class Move:
    """One pod and where its replacement should go."""

    pod: Json
    target: str
    alternatives: tuple[str, ...]


@dataclass(slots=True)
class Result:
    """What came of the moves of one arm."""

    places: Counter[str] = field(default_factory=Counter)
    guided: int = 0
    besides: Counter[str] = field(default_factory=Counter)
    """Where pods went that replaced none."""

    def add(self, other: Result) -> None:
        self.places += other.places
        self.guided += other.guided
        self.besides += other.besides

    def cells(self) -> list[str]:
        total = self.places.total()
        share = f"{self.places['target'] / total:.0%}" if total else "-"
        where = ("target", "alternative", "elsewhere", "source", "pending")
        return [str(total), *(str(self.places[name]) for name in where), share, str(self.guided)]


HEAD: Final = ("moves", "target", "alternative", "elsewhere", "source", "pending", "share",
               "guided")  # fmt: skip


class Stand:
    """One cluster, with what steers replacements in one arm after the other."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.api = cluster.control_plane.api
        self.landing = Landing(cluster)
        self.extender: ExtenderProcess | None = None
        self.lag_s = LAG_S
        self._folder = folder
        self._arm = NOTHING

    @contextlib.asynccontextmanager
    async def arm(self, name: str) -> AsyncIterator[None]:
        """Steer replacements in one way while the block lasts."""
        self._arm = name
        if name == EXTENDER:
            async with extender_running(self.cluster, self._folder) as self.extender:
                await use_extender(self.cluster, self.extender.url)
                yield
            self.extender = None
            return
        await install(self.cluster)
        await self.cluster.configure_scheduler(stock_scheduler(self._folder))
        objects = policy(Variant(name)) if name != NOTHING else []
        await self.cluster.apply(objects)
        if objects:
            await self.effective()
        try:
            yield
        finally:
            for made in objects:
                path = f"{self.api.path_of(made)}/{made['metadata']['name']}"
                await asyncio.to_thread(self.api.delete, path)

    async def effective(self) -> None:
        """Wait until the API server applies a new policy."""
        probe = Probe(self)
        async with probe.open():
            await self.cluster.wait(probe.guided, what="the policy is effective")

    async def carry_out(self, moves: Iterable[Move], pods: Pods, *, more: int = 0) -> Result:
        """Carry out moves, one of a workload at a time."""
        groups: dict[str, list[Move]] = defaultdict(list)
        for move in moves:
            groups[owner_of(move.pod)["uid"]].append(move)
        turns, found = asyncio.Semaphore(AT_ONCE), Result()

        async def one_by_one(group: Sequence[Move]) -> None:
            for move in group:
                async with turns:
                    found.add(await self._carry_out(move, pods, more))

        await asyncio.gather(*map(one_by_one, groups.values()))
        return found

    async def _carry_out(self, move: Move, pods: Pods, more: int) -> Result:
        owner = owner_of(move.pod)["uid"]
        before = {uid for uid, pod in pods.now.items() if owner_of(pod).get("uid") == owner}
        made = await self.open(move)
        await self.acknowledged(made)
        if more:
            await self._scale(move.pod, len(before) + more)
        await self._evict(move.pod)
        deadline = SYSTEM.monotonic() + PENDING_S
        while True:
            new = [p for u, p in pods.now.items() if u not in before and _is_of(p, owner)]
            if len(new) > more and all(map(node_of, new)):
                break
            if SYSTEM.monotonic() > deadline:
                break
            await asyncio.sleep(0.05)
        await self.close(made)
        return judged(move, new)

    async def open(self, move: Move, *, seconds: float = 300.0) -> Json:
        """Create a Migration that guides."""
        body = migration(move.pod, move.target)
        body["metadata"]["labels"] = {GUIDE_LABEL: Guide.ADMISSION}
        body["spec"]["alternatives"] = list(move.alternatives)
        body["spec"]["deadline"] = micro_time(SYSTEM.now() + seconds)
        return await asyncio.to_thread(self.api.request, "POST", MIGRATIONS, body)

    async def close(self, made: Json) -> None:
        """End a Migration: for extenders by its phase, for the policy by its label."""
        path = f"{MIGRATIONS}/{made['metadata']['name']}"
        ended = {"status": {"phase": "Completed"}}
        unlabeled = {"metadata": {"labels": {GUIDE_LABEL: None}}}
        for each, body in ((f"{path}/status", ended), (path, unlabeled)):
            await asyncio.to_thread(
                self.api.request, "PATCH", each, body, content_type=MERGE
            )  # fmt: skip

    async def acknowledged(self, made: Json) -> None:
        if self._arm == EXTENDER:
            version = int(made["metadata"]["resourceVersion"])

            async def seen() -> bool:
                return await seen_migrations(self.cluster) >= version

            await self.cluster.wait(seen, what="the extender knows the Migration")
        elif self._arm != NOTHING:
            await asyncio.sleep(self.lag_s)

    async def _scale(self, pod: Json, replicas: int) -> None:
        name = owner_of(pod)["name"]
        path = f"/apis/apps/v1/namespaces/{self.cluster.namespace}/replicasets/{name}/scale"
        body = {"spec": {"replicas": replicas}}
        await asyncio.to_thread(self.api.request, "PATCH", path, body, content_type=MERGE)

    async def _evict(self, pod: Json) -> None:
        async def accepted() -> bool:
            with contextlib.suppress(Refused):
                await self.landing.evict([pod])
                return True
            return False

        await self.cluster.wait(accepted, what="the eviction is accepted")


def judged(move: Move, new: Sequence[Json]) -> Result:
    """Return where the replacement went; of several new pods it is the one that fits best."""
    places = [_place(move, pod) for pod in new] or ["missing"]
    order = ("target", "alternative", "elsewhere", "source", "pending", "missing")
    best, *rest = sorted(places, key=order.index)
    guided = sum(GUIDED_BY in pod["metadata"].get("annotations", {}) for pod in new)
    return Result(Counter([best]), guided, Counter(rest))


def _place(move: Move, pod: Json) -> str:
    node = node_of(pod)
    if not node:
        return "pending"
    if node == move.pod["spec"]["nodeName"]:
        return "source"
    if node == move.target:
        return "target"
    return "alternative" if node in move.alternatives else "elsewhere"


class Probe:
    """A pod that is never created: dry runs tell whether the policy would guide it."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        self.namespace = stand.cluster.namespace
        uid = f"{random.getrandbits(64):016x}"
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "probe", "uid": uid}
        self._pod = build.pod("probe", namespace=self.namespace)
        self._pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        moved = {**self._pod["metadata"], "uid": f"moved-{uid}"}
        self.move = Move(
            {"metadata": moved, "spec": {"nodeName": "probe-source"}}, "probe-target", ()
        )

    @contextlib.asynccontextmanager
    async def open(self, *, seconds: float = 300.0) -> AsyncIterator[Json]:
        """Keep a Migration open that guides the pod."""
        made = await self._stand.open(self.move, seconds=seconds)
        try:
            yield made
        finally:
            path = f"{MIGRATIONS}/{made['metadata']['name']}"
            await asyncio.to_thread(self._stand.api.delete, path)

    async def guided(self) -> bool:
        """Tell whether the pod would be guided now."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        request = self._stand.api.request
        made = await asyncio.to_thread(
            request, "POST", path, self._pod, params={"dryRun": "All"}
        )  # fmt: skip
        return GUIDED_BY in made["metadata"].get("annotations", {})


def owner_of(pod: Json) -> Json:
    """Return the controller of a pod; empty if it has none."""
    owners: list[Json] = pod["metadata"].get("ownerReferences", [])
    return next((each for each in owners if each.get("controller")), {})


def _is_of(pod: Json, owner: str) -> bool:
    return owner_of(pod).get("uid") == owner and "deletionTimestamp" not in pod["metadata"]


def cooling(pods: Iterable[Json], nodes: Sequence[str]) -> list[Move]:
    """Return moves of the largest pods of hot nodes to the coolest nodes with room for them."""
    found = list(pods)
    used, asked = Counter[str](), Counter[str]()
    for pod in found:
        used[node_of(pod)] += use_of(pod)
        asked[node_of(pod)] += _asked(pod)
    moves, ceiling = list[Move](), CEILING * NODE_MILLI
    for node in sorted(nodes, key=lambda name: -used[name]):
        here = sorted((p for p in found if node_of(p) == node), key=use_of, reverse=True)
        for pod in here:
            if used[node] <= ceiling:
                break
            fits = [n for n in nodes if asked[n] + _asked(pod) <= NODE_MILLI
                    and used[n] + use_of(pod) <= ceiling and n != node]  # fmt: skip
            if not fits:
                break
            target, *others = sorted(fits, key=lambda name: (used[name], name))
            moves.append(Move(pod, target, tuple(others[:OTHERS])))
            used[node] -= use_of(pod)
            asked[node] -= _asked(pod)
            used[target] += use_of(pod)
            asked[target] += _asked(pod)
    return moves


def _asked(pod: Json) -> int:
    containers = pod["spec"]["containers"]
    return sum(quantity.milli(c["resources"]["requests"]["cpu"]) for c in containers)


async def arena(plane: ControlPlane, folder: Path, options: argparse.Namespace) -> None:
    """Print where replacements go in the scenarios of the arena."""
    totals: dict[tuple[str, str], Result] = defaultdict(Result)
    for seed, scenario, arm in itertools.product(options.seeds, SCENARIOS, options.arms):
        async with fresh(plane, folder) as stand:
            nodes = await stage(stand.cluster, load_scenario(scenario), seed)
            await stand.cluster.start("kube-scheduler")
            async with stand.arm(arm), watched(stand.cluster) as pods:
                moves = cooling(pods.now.values(), list(nodes.values()))
                found = await stand.carry_out(moves, pods)
        _say(f"{scenario}, seed {seed}, {arm}: {dict(found.places)}")
        totals[scenario, arm].add(found)
    rows = [[*key, *result.cells()] for key, result in totals.items()]
    _table(f"arena, seeds {options.seeds}", ["scenario", "arm", *HEAD], rows)


async def land(plane: ControlPlane, folder: Path, options: argparse.Namespace) -> None:
    """Print where replacements go among N nodes."""
    rows = []
    for count in options.nodes:
        async with fresh(plane, folder) as stand:
            nodes = await _uneven(stand, count)
            for arm in options.arms:
                found = await _land(stand, arm, nodes, seed=options.seeds[0], more=0)
                _say(f"{count} nodes, {arm}: {dict(found.places)}")
                rows.append([str(count), arm, *found.cells()])
    _table("any node to any other", ["nodes", "arm", *HEAD], rows)


async def grow(plane: ControlPlane, folder: Path, options: argparse.Namespace) -> None:
    """Print where replacements and additional replicas go."""
    rows = []
    async with fresh(plane, folder) as stand:
        nodes = await _uneven(stand, options.nodes[0])
        for arm in options.arms:
            found = await _land(stand, arm, nodes, seed=options.seeds[0], more=MORE)
            rest = found.besides
            _say(f"{arm}: {dict(found.places)} and {dict(rest)}")
            on = [str(rest[name]) for name in ("target", "source", "pending")]
            rows.append([arm, *found.cells(), str(rest.total()), *on])
    head = ["arm", *HEAD, "more pods", "on target", "on source", "pending"]
    _table(f"{MORE} more replicas with each eviction, {options.nodes[0]} nodes", head, rows)


async def _uneven(stand: Stand, count: int) -> list[str]:
    """Add nodes that are filled by requests to between 0 and 60 %."""
    nodes = await stand.cluster.add_nodes(count)
    draw = random.Random(count)
    for node in nodes:
        cpu, memory = f"{draw.randrange(1, 4800)}m", f"{draw.randrange(1, 19_000)}Mi"
        await stand.landing.occupy(node, f"on-{node}", cpu=cpu, memory=memory)
    return nodes


async def _land(stand: Stand, arm: str, nodes: list[str], *, seed: int, more: int) -> Result:
    draw, names = random.Random(seed), [f"{arm}-{number}" for number in range(WORKLOADS)]
    async with stand.arm(arm), watched(stand.cluster) as pods:
        for name in names:
            await stand.landing.begin(name, REPLICAS)
        for name in names:
            await stand.landing.bound(name, REPLICAS)
        found = [pod for pod in pods.now.values() if owner_of(pod)]
        chosen = {owner_of(p)["uid"]: p for p in found}.values() if more else found
        result = await stand.carry_out((_anywhere(p, nodes, draw) for p in chosen), pods, more=more)
    await asyncio.gather(*(stand.landing.remove(name) for name in names))
    return result


def _anywhere(pod: Json, nodes: Sequence[str], draw: random.Random) -> Move:
    others = [node for node in nodes if node != node_of(pod)]
    target, *rest = draw.sample(others, 1 + OTHERS)
    return Move(pod, target, tuple(rest))


async def go_stale(plane: ControlPlane, folder: Path, options: argparse.Namespace) -> None:
    """Print how long the API server takes to learn of Migrations, and what follows."""
    opened, closed = list[float](), list[float]()
    async with fresh(plane, folder) as stand, stand.arm(Variant.REQUIRED):
        for _ in range(PROBES):
            probe = Probe(stand)
            async with probe.open() as made:
                opened.append(await _seconds_until(probe, guided=True))
                await stand.close(made)
                closed.append(await _seconds_until(probe, guided=False))
        overdue = Probe(stand)
        async with overdue.open(seconds=-1):
            await asyncio.sleep(2 * LAG_S)
            expired = await overdue.guided()
        nodes = await _uneven(stand, options.nodes[0])
        async with watched(stand.cluster) as pods:
            hasty = await _hasty(stand, nodes, pods)
    rows = [
        [name, f"{statistics.median(s) * 1e3:.0f} ms", f"{max(s) * 1e3:.0f} ms"]
        for name, s in (("a new Migration guides", opened), ("a closed one does not", closed))
    ]
    _table("until the API server knows", ["what", "median", "longest"], rows)
    print(f"guided after the deadline, with the label: {expired}")
    _table("eviction right after the Migration, without waiting", HEAD, [hasty.cells()])


async def _seconds_until(probe: Probe, *, guided: bool) -> float:
    began = time.perf_counter()
    while await probe.guided() is not guided:
        if time.perf_counter() - began > PENDING_S:
            raise SystemExit("void: the policy has no effect")
    return time.perf_counter() - began


async def _hasty(stand: Stand, nodes: list[str], pods: Pods) -> Result:
    stand.lag_s, draw = 0.0, random.Random(1)
    names = [f"hasty-{number}" for number in range(WORKLOADS)]
    for name in names:
        await stand.landing.begin(name, 1)
    for name in names:
        await stand.landing.bound(name, 1)
    found = [pod for pod in pods.now.values() if owner_of(pod)]
    return await stand.carry_out((_anywhere(p, nodes, draw) for p in found), pods)


async def spend(plane: ControlPlane, folder: Path, options: argparse.Namespace) -> None:
    """Print CPU and latency per pod, with nothing, the extender, and the policy."""
    cases = [(NOTHING, 0), (EXTENDER, 0), (EXTENDER, OPEN[-1])]
    cases += [(variant.value, count) for variant in (Variant.REQUIRED,) for count in OPEN]
    spent: dict[tuple[str, int], list[Spent]] = defaultdict(list)
    async with fresh(plane, folder) as stand:
        nodes = await stand.cluster.add_nodes(options.nodes[0])
        for number, (arm, count) in itertools.product(range(COST_ROUNDS), cases):
            async with stand.arm(arm):
                await _open_many(stand, nodes, count)
                spent[arm, count].append(await _spent(stand, f"r{number}-{arm}-{count}"))
                await stand.cluster.forget_migrations()
            _say(f"{arm}, {count} open: {spent[arm, count][-1]}")
    rows = [[arm, str(count), *_median(found)] for (arm, count), found in spent.items()]
    head = ["arm", "open", "API server ms", "scheduler ms", "extender ms", "sum", "p50 ms",
            "p99 ms"]  # fmt: skip
    _table(f"per pod, median of {COST_ROUNDS} rounds of {COST_PODS} pods", head, rows)


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU milliseconds per pod by process, and latencies of creating one."""

    cpu: Mapping[str, float]
    p50: float
    p99: float


def _median(found: Sequence[Spent]) -> list[str]:
    names = ("kube-apiserver", "kube-scheduler", EXTENDER)
    cpu = [statistics.median(each.cpu.get(name, 0.0) for each in found) for name in names]
    late = [statistics.median(each.p50 for each in found),
            statistics.median(each.p99 for each in found)]  # fmt: skip
    return [f"{value:.2f}" for value in (*cpu, sum(cpu), *late)]


async def _open_many(stand: Stand, nodes: Sequence[str], count: int) -> None:
    """Open Migrations of other workloads in the same namespace."""
    draw, moves = random.Random(count), []
    for number in range(count):
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"other-{number}",
                 "uid": f"other-{number}", "controller": True}  # fmt: skip
        moved = {"namespace": stand.cluster.namespace, "name": f"other-{number}",
                 "uid": f"moved-{number}", "ownerReferences": [owner]}  # fmt: skip
        pod = {"metadata": moved, "spec": {"nodeName": nodes[0]}}
        moves.append(_anywhere(pod, nodes, draw))
    made = [await stand.open(move) for move in moves]
    if made:
        await stand.acknowledged(made[-1])


async def _spent(stand: Stand, name: str) -> Spent:
    """Create pods, wait until they are bound, and return what that has cost."""
    pids = {each.name: each.pid for each in stand.cluster.control_plane.status()}
    if stand.extender is not None:
        pids[EXTENDER] = stand.extender.pid
    namespace, took = stand.cluster.namespace, list[float]()
    path = f"/api/v1/namespaces/{namespace}/pods"
    before = {name: _cpu_ms(pid) for name, pid in pids.items()}
    for number in range(COST_PODS):
        pod = build.pod(f"{name}-{number}", namespace=namespace, labels={"app": name}, cpu="1m",
                        memory="1Mi")  # fmt: skip
        began = time.perf_counter()
        await asyncio.to_thread(stand.api.request, "POST", path, pod)
        took.append(time.perf_counter() - began)
    await stand.landing.bound(name, COST_PODS)
    cpu = {each: (_cpu_ms(pid) - before[each]) / COST_PODS for each, pid in pids.items()}
    selected = f"{path}?labelSelector=app%3D{name}"
    await asyncio.to_thread(stand.api.delete, selected, {"gracePeriodSeconds": 0})
    took.sort()
    return Spent(cpu, took[len(took) // 2] * 1e3, took[int(len(took) * 0.99)] * 1e3)


def _cpu_ms(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") * 1e3


@contextlib.asynccontextmanager
async def fresh(plane: ControlPlane, folder: Path) -> AsyncIterator[Stand]:
    """Provide an empty cluster, and empty it afterwards."""
    cluster = Cluster(plane, folder)
    await cluster.open()
    try:
        yield Stand(cluster, folder)
    finally:
        await cluster.clear()


PARTS: Final = {"arena": arena, "landing": land, "growth": grow, "stale": go_stale, "cost": spend}


async def run(plane: ControlPlane, folder: Path, options: argparse.Namespace) -> None:
    for name in options.parts:
        _say(name)
        await PARTS[name](plane, folder, options)


def main() -> None:
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="evenkeel-admission-"))
    guardian = Guardian(folder / "cp")
    try:
        without = frozenset({"metrics-server"})
        plane = up(ClusterOptions(folder / "cp", without=without), lambda line: None)
        asyncio.run(run(plane, folder, options))
    finally:
        guardian.dismiss()
        shutil.rmtree(folder, ignore_errors=True)


def _say(line: str) -> None:
    print(f"· {line}", flush=True)


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n{title}\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.admission", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--parts", metavar="P,…", type=_of(PARTS), default=list(PARTS), help="default: all")
    add("--arms", metavar="ARM,…", type=_of(ARMS), default=list(ARMS), help="default: all")
    add("--seeds", metavar="S,…", type=_numbers, default=[1, 2, 3], help="default: 1,2,3")
    add("--nodes", metavar="N,…", type=_numbers, default=[20, 200], help="default: 20,200")
    return parser.parse_args()


def _of(known: Iterable[str]) -> Any:
    def chosen(text: str) -> list[str]:
        names = text.split(",")
        if unknown := set(names) - set(known):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
        return names

    return chosen


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    main()
