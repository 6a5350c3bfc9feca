# SPDX-License-Identifier: Apache-2.0
"""The choices in scheduler-config.yaml, each measured with its alternatives.

One real control plane, kwok nodes, the real extender. `weight`: how many pods land on hot nodes
although the scores of the scheduler prefer them, and how many follow a preference of the user
where load does not matter. `timeout`: the cost of a hung extender, how long ours takes, and what
happens if the timeout is shorter than the longest wait of the extender. `sampling`: how many
moved pods reach their planned node among 300 (`--nodes`), and pods per second, in turn.
`shortlist`: where pods land with and without shortlists, in turn (`bench/shortlist_choices.py`).

Every configuration is the shipped one with the value in question replaced, and with
`clientConnection` qps and burst 5000: at the default 50 all rates look alike.

    python -m bench.scheduler_choices [--parts weight,timeout,sampling,shortlist] [--nodes N]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bench import shortlist_choices
from bench.stands.cluster import AT_ONCE, MERGE, Cluster
from bench.stands.extender_process import (
    ExtenderProcess,
    Metrics,
    extender_running,
    seen_migrations,
)
from bench.stands.faulty_extender import Fault, faulty_extender
from bench.stands.landing import Json, Landing, another, hits, waiting_reason
from controlplane.cluster import ClusterOptions, up
from controlplane.errors import Refused
from controlplane.guardian import Guardian
from controlplane.scheduler_config import SHIPPED
from simulator import build

WEIGHTS = (1, 2, 3, 5, 6, 8, 12)
TIMEOUTS = ("100ms", "200ms", "500ms", "1s")
POOL_NODES, MARKED, PODS = 20, 2, 100
MAINTAINED, WAITING_PODS = 3, 10
HUNG_PODS, HUNG_ROUNDS = 6, 2
LARGE, WORKLOADS, REPLICAS = 300, 25, 4
RATE_PODS, RATE_PAIRS = 300, 4
ROUNDS = 2
PATIENCE_S = 180.0
POOL, MARK = "bench.evenkeel.io/pool", "bench.evenkeel.io/marked"
IMAGE_BYTES = 100 << 30  # kube-scheduler divides it by the share of nodes that have it

Change = Callable[[Json], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Twenty nodes, some of them marked: their usage, and what makes the scheduler prefer them."""

    label: str
    use: tuple[str, str] = ("2400m", "7200m")
    """CPU usage of the other nodes and of the marked ones."""
    asked: tuple[str, str] = ("100m", "128Mi")
    marked: int = MARKED
    pods: int = PODS
    preferred: bool = False
    image: bool = False


FULL = ("4800m", "19Gi")
POOLS = {
    "plain": Pool(label="nothing"),
    "requests": Pool(label="emptier by requests", asked=FULL),
    "image": Pool(label="have the image", image=True),
    "affinity": Pool(label="preferred, 100", preferred=True),
    "all": Pool(label="all of these", asked=FULL, image=True, preferred=True),
}
PREFERENCE = {
    "warm-20": Pool(label="20", use=("800m", "2400m"), marked=10, pods=30, preferred=True),
    "warm-40": Pool(label="40", use=("800m", "4000m"), marked=10, pods=30, preferred=True),
}


@dataclass(slots=True)
class Bench:
    """The control plane, and the kube-scheduler of the round."""

    cluster: Cluster
    landing: Landing
    folder: Path
    extender: ExtenderProcess
    large: int = LARGE
    rounds: int = ROUNDS
    marked: dict[str, list[str]] = field(default_factory=dict)

    async def configure(self, change: Change, url: str = "") -> None:
        """Restart kube-scheduler with the shipped configuration and one change."""
        await self.cluster.configure_scheduler(
            self._written(change), extender_url=url or self.extender.url
        )

    async def without_extender(self) -> None:
        """Restart kube-scheduler without extenders."""
        await self.cluster.configure_scheduler(
            self._written(lambda config: config.pop("extenders")), extender_url=None
        )

    def write(self, change: Change) -> None:
        """Write the configuration for the next start."""
        plane = self.cluster.control_plane
        plane.write_scheduler_config(self._written(change), self.extender.url)

    async def measured(self) -> None:
        """Wait until the extender knows the load of every node."""

        async def known() -> bool:
            rows = await self.extender.nodes()
            return all(row["unknown"] is None for row in rows.values())

        await self.cluster.wait(known, PATIENCE_S, "the extender knows the load of all nodes")

    def _written(self, change: Change) -> Path:
        config = yaml.safe_load(SHIPPED.read_text())
        config["clientConnection"] |= {"qps": 5000, "burst": 5000}
        change(config)
        path = self.folder / "scheduler-config.yaml"
        path.write_text(yaml.safe_dump(config))
        return path


async def weigh(bench: Bench) -> None:
    """Print where pods land with each weight."""
    pools = POOLS | PREFERENCE
    for name, pool in pools.items():
        await _fill(bench, name, pool)
    await bench.measured()
    await bench.without_extender()
    rows = {"none": await _landed(bench)}
    for weight in WEIGHTS:
        await bench.configure(_with(weight=weight))
        rows[str(weight)] = await _landed(bench)
    _print_weights(rows)


async def _fill(bench: Bench, name: str, pool: Pool) -> None:
    add, labels = bench.cluster.add_nodes, {POOL: name}
    bench.marked[name] = await add(pool.marked, labels={**labels, MARK: "true"})
    others = await add(POOL_NODES - pool.marked, labels=labels)
    if pool.image:
        await asyncio.to_thread(_give_image, bench.cluster, bench.marked[name])
    cpu, memory = pool.asked
    occupants = [_occupant(bench, n, "100m", "128Mi", pool.use[1]) for n in bench.marked[name]]
    occupants += [_occupant(bench, n, cpu, memory, pool.use[0]) for n in others]
    await bench.cluster.create(occupants)


def _occupant(bench: Bench, node: str, cpu: str, memory: str, use: str) -> Json:
    return build.pod(
        f"on-{node}",
        namespace=bench.cluster.namespace,
        node=node,
        cpu=cpu,
        memory=memory,
        usage_cpu=use,
        usage_memory="1Gi",
    )


def _give_image(cluster: Cluster, nodes: Sequence[str]) -> None:
    images = [{"names": [build.IMAGE], "sizeBytes": IMAGE_BYTES}]
    for node in nodes:
        cluster.control_plane.api.request(
            "PATCH",
            f"/api/v1/nodes/{node}/status",
            {"status": {"images": images}},
            content_type=MERGE,
        )


async def _landed(bench: Bench) -> dict[str, float]:
    """Place the pods of all pools at once; return the percentage on marked nodes of each."""
    pools = POOLS | PREFERENCE
    await asyncio.gather(
        *(bench.landing.begin(name, p.pods, **_template(name, p)) for name, p in pools.items())
    )
    found = {}
    for name, pool in pools.items():
        pods = await bench.landing.bound(name, pool.pods, timeout_s=PATIENCE_S)
        marked = sum(pod["spec"]["nodeName"] in bench.marked[name] for pod in pods)
        found[name] = marked / pool.pods * 100
    await asyncio.gather(*(bench.landing.remove(name) for name in pools))
    return found


def _template(name: str, pool: Pool) -> dict[str, Any]:
    spec: Json = {"nodeSelector": {POOL: name}}
    if pool.preferred:
        wanted = {"key": MARK, "operator": "Exists"}
        term = {"weight": 100, "preference": {"matchExpressions": [wanted]}}
        terms = {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
        spec["affinity"] = {"nodeAffinity": terms}
    return {"usage_cpu": "20m", "spec": spec}


def _print_weights(rows: dict[str, dict[str, float]]) -> None:
    _print_table(
        f"{MARKED} of {POOL_NODES} nodes are used to 90 %, the others to 30 %: "
        f"percent of {PODS} pods on the hot ones, by what pulls pods there",
        ["weight", *(pool.label for pool in POOLS.values())],
        [[weight, *(f"{row[name]:.0f}" for name in POOLS)] for weight, row in rows.items()],
    )
    _print_table(
        "Half of the nodes are preferred (100) and not hot: percent of pods that follow, "
        "by how many points more those are used",
        ["weight", *(pool.label for pool in PREFERENCE.values())],
        [[weight, *(f"{row[name]:.0f}" for name in PREFERENCE)] for weight, row in rows.items()],
    )


async def time_out(bench: Bench) -> None:
    """Print the cost of each timeout with a hung extender, and its effect with ours."""
    pool = await bench.cluster.add_nodes(MAINTAINED, labels={POOL: "maintained"})
    for node in pool:
        await bench.cluster.maintain(node, on=True)
    await bench.measured()
    wrong = {timeout: await _under_maintenance(bench, timeout) for timeout in TIMEOUTS}
    rates: dict[str, list[float]] = {timeout: [] for timeout in TIMEOUTS}
    async with faulty_extender(Fault.SILENT) as url:
        for number in range(HUNG_ROUNDS):
            for timeout in TIMEOUTS:
                await bench.configure(_with(httpTimeout=timeout), url)
                rates[timeout].append(await _hung_rate(bench, f"hung-{timeout}-{number}"))
    _print_table(
        f"httpTimeout; {WAITING_PODS} pods where all nodes are under maintenance",
        ["httpTimeout", "pods/s, hung", "pods placed under maintenance"],
        [[t, f"{statistics.median(rates[t]):.2f}", str(wrong[t])] for t in TIMEOUTS],
    )


async def _under_maintenance(bench: Bench, timeout: str) -> int:
    """Return how many pods were placed although all of their nodes are under maintenance."""
    await bench.configure(_with(httpTimeout=timeout))
    name = f"late-{timeout}"
    await bench.landing.begin(name, WAITING_PODS, spec={"nodeSelector": {POOL: "maintained"}})

    async def judged() -> list[Json]:
        pods = await bench.landing.pods(name)
        done = [p for p in pods if p["spec"].get("nodeName") or waiting_reason(p)]
        return done if len(done) == WAITING_PODS else []

    pods = await bench.cluster.wait(judged, PATIENCE_S, "all pods were judged")
    await bench.landing.remove(name)
    return sum("nodeName" in pod["spec"] for pod in pods)


def _with(**values: str | int) -> Change:
    return lambda config: config["extenders"][0].update(values)


async def _hung_rate(bench: Bench, name: str) -> float:
    async with _bindings(bench, HUNG_PODS) as times:
        await bench.landing.begin(name, HUNG_PODS)
    await bench.landing.remove(name)
    return (HUNG_PODS - 1) / (times[-1] - times[0])


async def sample(bench: Bench) -> None:
    """Print the gain and the cost of scoring every node for every pod."""
    have = len(await bench.extender.nodes())
    await bench.cluster.add_nodes(bench.large - have)
    arms: dict[str, Change] = {"default": _sampling, "100": lambda _: None}
    hits = {arm: await _hits(bench, f"w{arm}", change) for arm, change in arms.items()}
    rates: dict[str, list[float]] = {arm: [] for arm in arms}
    for number in range(RATE_PAIRS):
        for arm in list(arms)[:: 1 if number % 2 else -1]:
            rates[arm].append(await _rate(bench, arms[arm]))
    total = WORKLOADS * REPLICAS
    _print_table(
        f"percentageOfNodesToScore at {bench.large} nodes",
        ["value", f"of {total} moved pods as planned", "pods/s", "in turn"],
        [[a, str(hits[a]), f"{statistics.median(rates[a]):.0f}", _each(rates[a])] for a in arms],
    )
    ratios = [a / b for a, b in zip(rates["100"], rates["default"], strict=True)]
    print(f"pods/s with 100 ÷ default: {statistics.median(ratios):.2f} ({_each(ratios, '.2f')})")


def _sampling(config: Json) -> None:
    for profile in config["profiles"]:
        del profile["percentageOfNodesToScore"]


async def _hits(bench: Bench, prefix: str, change: Change) -> int:
    """Plan, evict, and return how many replacements landed as planned."""
    await bench.configure(change)
    names = [f"{prefix}-{number}" for number in range(WORKLOADS)]
    for name in names:
        await bench.landing.begin(name, REPLICAS)
    before = await _all_bound(bench, names, frozenset())
    nodes = sorted(await bench.extender.nodes())
    moves = [(pod, another(nodes, pod, turn)) for turn, pod in enumerate(before)]
    version = await bench.landing.plan(moves)

    async def seen() -> bool:
        return await seen_migrations(bench.cluster) >= version

    await bench.cluster.wait(seen, PATIENCE_S, "the extender has all intents")
    await bench.landing.evict(before)
    after = await _all_bound(bench, names, frozenset(pod["metadata"]["uid"] for pod in before))
    return hits(after, moves)


async def _all_bound(bench: Bench, names: Sequence[str], gone: frozenset[str]) -> list[Json]:
    async def bound() -> list[Json]:
        pods = [p for p in await bench.landing.pods(*names) if p["spec"].get("nodeName")]
        new = [pod for pod in pods if pod["metadata"]["uid"] not in gone]
        return new if len(new) == WORKLOADS * REPLICAS else []

    found: list[Json] = await bench.cluster.wait(bound, PATIENCE_S, "all pods have nodes")
    return found


async def _rate(bench: Bench, change: Change) -> float:
    """Return the bindings per second of the middle 80 % of waiting pods."""
    await bench.cluster.stop("kube-scheduler")
    namespace, asked = bench.cluster.namespace, await _filter_calls(bench.extender)
    labels = {"app": "rate"}
    await bench.cluster.create(
        build.pod(f"rate-{number}", namespace=namespace, labels=labels)
        for number in range(RATE_PODS)
    )
    bench.write(change)
    async with _bindings(bench, RATE_PODS) as times:
        await bench.cluster.start("kube-scheduler")
    if await _filter_calls(bench.extender) - asked < RATE_PODS:
        raise SystemExit("void: the extender was not asked about every pod")
    await _clear_away(bench)
    first, last = RATE_PODS // 10, RATE_PODS - RATE_PODS // 10 - 1
    return (last - first) / (times[last] - times[first])


async def _clear_away(bench: Bench) -> None:
    path = f"/api/v1/namespaces/{bench.cluster.namespace}/pods"
    api = bench.cluster.control_plane.api

    async def gone() -> bool:
        # A busy server may take longer for hundreds of deletions than the timeout.
        with contextlib.suppress(Refused):
            await asyncio.to_thread(api.delete, f"{path}?labelSelector=app%3Drate", AT_ONCE)
            return not (await asyncio.to_thread(api.get, path, labelSelector="app=rate"))["items"]
        return False

    await bench.cluster.wait(gone, PATIENCE_S, "the pods of the round are gone")


async def _filter_calls(extender: ExtenderProcess) -> float:
    return (await extender.metrics()).total("extender_requests_total", verb="filter", code="200")


@asynccontextmanager
async def _bindings(bench: Bench, count: int) -> AsyncIterator[list[float]]:
    """Record when each pod gets its node; the list is complete afterwards."""
    path = f"/api/v1/namespaces/{bench.cluster.namespace}/pods"
    listed = await asyncio.to_thread(bench.cluster.control_plane.api.get, path, limit="1")
    version = listed["metadata"]["resourceVersion"]
    params = {"watch": "true", "fieldSelector": "spec.nodeName!=", "resourceVersion": version}
    times: list[float] = []

    async def watch() -> None:
        async with (
            bench.cluster.client() as client,
            client.stream(path, params=params, connect_s=10, silence_s=PATIENCE_S) as lines,
        ):
            async for line in lines:
                if line.startswith(b'{"type":"ADDED"'):
                    times.append(time.perf_counter())
                if len(times) == count:
                    return

    watching = asyncio.create_task(watch())
    yield times
    await asyncio.wait_for(watching, PATIENCE_S)


def _print_latency(metrics: Metrics) -> None:
    """Print the histogram bucket of the response times of the extender."""
    rows = []
    for verb in ("filter", "prioritize"):
        pattern = rf'request_duration_seconds_bucket{{le="(\S+?)",verb="{verb}"}} (\S+)'
        buckets = [(float(le), float(n)) for le, n in re.findall(pattern, metrics.text)]
        total = buckets[-1][1]
        within = [next(le for le, n in buckets if n >= total * q) for q in (0.5, 0.99, 0.999)]
        rows.append([verb, f"{total:.0f}", *(f"≤ {le * 1e3:g} ms" for le in within)])
    _print_table("The extender's own time", ["verb", "answers", "p50", "p99", "p99.9"], rows)


def _print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    print(f"\n{title}")
    for row in (head, *rows):
        cells = zip(row, widths, strict=True)
        print("  " + "  ".join(f"{cell:>{width}}" for cell, width in cells), flush=True)


def _each(values: Sequence[float], style: str = ".0f") -> str:
    return ", ".join(f"{value:{style}}" for value in values)


async def shorten(bench: Bench) -> None:
    """Print where pods land with a shortlist and with all nodes."""
    trial = shortlist_choices.Trial(bench.cluster, bench.landing, bench.folder)
    await trial.prepare()
    await bench.measured()
    async with trial.extenders(bench.extender) as urls:
        for number in range(bench.rounds):
            for arm in list(urls)[:: 1 if number % 2 else -1]:
                await bench.configure(lambda _: None, urls[arm])
                await trial.play(arm)
            _print_table(*trial.table())  # each round takes minutes


PARTS = {"weight": weigh, "timeout": time_out, "sampling": sample, "shortlist": shorten}


async def run(parts: Sequence[str], folder: Path, *, large: int, rounds: int) -> None:
    """Measure on a control plane that stops with this process."""
    root = folder / "cp"
    guardian = Guardian(root)
    try:
        plane = await asyncio.to_thread(up, ClusterOptions(root), lambda line: None)
        cluster = Cluster(plane, folder)
        await cluster.open()
        async with extender_running(cluster, folder) as extender:
            bench = Bench(cluster, Landing(cluster), folder, extender, large, rounds)
            for part in parts:
                await PARTS[part](bench)
                if part == "weight":
                    _print_latency(await extender.metrics())
    finally:
        guardian.dismiss()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--parts", default=",".join(PARTS), help="which choices (default: all)")
    parser.add_argument("--nodes", type=int, default=LARGE, help="of the part sampling")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of the part shortlist")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if unknown := sorted(set(parts) - set(PARTS)):
        parser.error(f"unknown part {unknown[0]}: choose from {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory(prefix="evenkeel-bench-") as folder:
        started = time.monotonic()
        asyncio.run(run(parts, Path(folder), large=options.nodes, rounds=options.rounds))
        print(f"\n{time.monotonic() - started:.0f} s in all")


if __name__ == "__main__":
    main()
