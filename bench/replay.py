# SPDX-License-Identifier: Apache-2.0
"""A day of real CPU curves, judged by different figures, side by side.

    python -m bench.replay [FOLDER...] [--nodes 200] [--per-node 10] [--mean 45] [--choices ...]

A folder holds one file per machine (searched in its subfolders too), one percentage a line, five
minutes apart: the PlanetLab traces of CloudSim are such folders. Curves may be of any length; the
first `--hours` are replayed. A broken line is named and ends the program.

Every curve is a pod. Tracker, strategies, gates, planner and validation are the real ones; only
time is not: a sample a minute, a cycle a minute, a plan that is validated on the next sample and
then carried out at once. Between two points of a curve, usage stays as it is; with `--noise` each
minute differs from that at random.

Curves are scaled so that the cluster uses `--mean` percent of its CPU in the whole day. Where there
are fewer curves than pods, they are used again, each time shifted by some hours.

It prints, for each choice of `load.aggregation`, the minutes that nodes were really above the
ceiling, how far above they were, and the evictions. In a terminal it shows how far the day is.
Without a folder it draws a few curves.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from pydantic import ValidationError

from bench.curves import Curves, drawn_curves, read_curves
from bench.observed import observed, ready_node, running_pod, uid_of
from common.api.contract import PREDICTED_USE
from common.api.migrations import (
    Migration,
    MigrationStatus,
    Outcome,
    Phase,
    ReplacementRef,
    migration_name,
)
from common.api.objects import ObjectMeta, Pod, ReplicaSet
from common.cache.state import ClusterState
from common.cluster.records import NodeName, PodUid
from common.config import RebalancerConfiguration
from common.load import Belief, Load, LoadTracker
from common.usage.source import Sample, Usage
from rebalancer.decision import Decider
from rebalancer.launcher import predicted_use, spec_of
from rebalancer.planner.plan import Chain, Level, Move
from simulator import build

N = TypeVar("N", int, float)

START_S = 1_794_816_000.0
STEP_S = 60.0
POINT_S = 300.0
CPU_MILLI, MEM_BYTES = 16_000.0, 64.0 * 2**30
POD_MEM = 2.0**30
CEILING = 80.0
REPLICAS = 10
CHOICES = (
    "last/last",
    "mean:15m/mean:15m",
    "mean:60m/mean:60m",
    "p95:60m/p95:60m",
    "last/mean:30m",
    "last/p95:30m",
    "mean:5m/mean:15m",
    "mean:30m/mean:30m",
    "mean:30m/p90:30m",
    "mean:15m/p95:60m",
    "p90:30m/p90:30m",
    "p95:15m/p95:15m",
    "p99:60m/p99:60m",
)


class Size(NamedTuple):
    """The cluster on which curves are replayed."""

    nodes: int = 200
    per_node: int = 10
    mean_percent: float = 45.0
    noise: float = 0.0
    seed: int = 1
    drain_s: float = 0.0
    """For how long an evicted pod still runs, and uses what it did."""


class _Draining(NamedTuple):
    """A pod that terminates."""

    key: str
    wire: Pod
    node: int
    used: float
    until_s: float


@dataclass(slots=True)
class Result:
    """What became of the cluster."""

    hot_minutes: int = 0
    """Minutes that nodes were above the ceiling, over all nodes."""
    excess: float = 0.0
    """Points above the ceiling, summed over these minutes."""
    evictions: int = 0
    again: int = 0
    """Evictions of pods that had been moved before."""
    seconds: float = 0.0


class Replay:
    """One cluster on which the curves are replayed, with one configuration."""

    def __init__(
        self,
        use: Curves,
        size: Size,
        config: RebalancerConfiguration,
        places: Sequence[int] | None = None,
    ) -> None:
        """`use` [pod, point] is in milli-cores; `places` are the nodes of the pods.

        By default these are random.
        """
        self._size = size
        self._config = config
        self._use = use
        rng = np.random.default_rng(size.seed + 1)
        self._noise = np.random.default_rng(size.seed + 2)
        count = self._use.shape[0]
        self._at = rng.permutation(np.arange(count) % size.nodes)
        if places is not None:
            self._at = np.array(places)
        self._draining: list[_Draining] = []
        self._used = np.zeros(count)
        self._names = [NodeName(f"node-{number:03}") for number in range(size.nodes)]
        self._keys = [self._base(number) for number in range(count)]
        self._number = {uid_of("Pod", key): number for number, key in enumerate(self._keys)}
        self._since_s = [START_S - 3600.0] * count
        self._generation = np.zeros(count, np.int64)
        self._predecessors: dict[PodUid, Load] = {}
        self.state = ClusterState()
        self._tracker = LoadTracker(config)
        self._decider = Decider(config)
        self.result = Result()
        self._fill()

    @property
    def minutes(self) -> int:
        return int(self._use.shape[1] * POINT_S / STEP_S)

    def pods_on(self, node: int) -> int:
        """Return how many pods a node has; those that terminate do not count."""
        return int(np.count_nonzero(self._at == node))

    def moved(self) -> set[int]:
        """Return the numbers of the pods that were moved."""
        return set(np.flatnonzero(self._generation).tolist())

    def run(
        self,
        *,
        moving: bool = True,
        first_cycle: int = 0,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Result:
        """Replay all curves, and return what became of it; plan from a minute on.

        `progress` is told every minute that begins.
        """
        began = time.process_time()
        planned: tuple[Chain, ...] = ()
        for minute in range(self.minutes):
            progress(minute)
            now_s = START_S + (minute + 1) * STEP_S
            self._measure(minute, now_s)
            if not moving or minute < first_cycle:
                continue
            belief = self._belief(now_s)
            if planned:
                self._carry_out(planned, belief, now_s)
                planned = ()
                continue
            decision = self._decider.decide(belief, now_s)
            chains: dict[int, list[Move]] = {}
            for move in decision.plan.moves:
                if move.this_cycle:
                    chains.setdefault(move.chain, []).append(move)
            planned = tuple(tuple(chain) for chain in chains.values())
        self.result.seconds = time.process_time() - began
        return self.result

    def _belief(self, now_s: float) -> Belief:
        snapshot = self.state.snapshot()
        return Belief(snapshot, self._tracker.view(snapshot, now_s, self._predecessors))

    def _measure(self, minute: int, now_s: float) -> None:
        """Let a minute pass, note which nodes were too hot in it, and take a sample."""
        used = self._use[:, int(minute * STEP_S / POINT_S)]
        if self._size.noise:
            used = used * self._noise.lognormal(0.0, self._size.noise, used.size)
        self._used = used
        self._end_drains(now_s)
        at = np.concatenate((self._at, [each.node for each in self._draining])).astype(np.int64)
        all_used = np.concatenate((used, [each.used for each in self._draining]))
        cpu = np.bincount(at, all_used, self._size.nodes)
        counts = np.bincount(at, minlength=self._size.nodes)
        above = np.maximum(0.0, 100.0 * np.minimum(cpu, CPU_MILLI) / CPU_MILLI - CEILING)
        self.result.hot_minutes += int(np.count_nonzero(above))
        self.result.excess += float(above.sum())
        nodes = zip(self._names, cpu.tolist(), counts.tolist(), strict=True)
        keys = (*self._keys, *(each.key for each in self._draining))
        pods = zip(keys, all_used.tolist(), strict=True)
        sample = Sample(
            nodes={n: Usage(used, count * POD_MEM, now_s, STEP_S) for n, used, count in nodes},
            pods={f"default/{key}": Usage(used, POD_MEM, now_s, STEP_S) for key, used in pods},
        )
        self._tracker.observe(sample, self.state.snapshot(), now_s)

    def _carry_out(self, planned: Sequence[Chain], belief: Belief, now_s: float) -> None:
        """Move the pods of the chains that still hold."""
        found = self._decider.revalidate(planned, belief, now_s)
        moves = [move for chain in found.chains for move in chain]
        for move in moves:
            self._move(move, found.after, belief, now_s)
        self._decider.moved({name for move in moves for name in (move.source, move.target)})

    def _move(
        self, move: Move, after: Mapping[NodeName, Level], belief: Belief, now_s: float
    ) -> None:
        spec = spec_of(move, "replay", belief, self._config, now_s)
        assert spec is not None
        number = self._number.pop(move.uid)
        self.result.evictions += 1
        self.result.again += bool(self._generation[number])
        self._generation[number] += 1
        self._evict(number, move.source, now_s)
        self._at[number] = self._names.index(move.target)
        self._keys[number] = f"{self._base(number)}-{self._generation[number]}"
        uid = PodUid(uid_of("Pod", self._keys[number]))
        self._number[uid] = number
        self.state.pods.upsert(self._pod(number, move.target, now_s))
        self._predecessors[uid] = Load(spec.load.cpu_milli, spec.load.memory_bytes)
        stamp = datetime.fromtimestamp(now_s, UTC)
        predicted = msgspec.json.encode(predicted_use(move, after)).decode()
        annotations = {PREDICTED_USE: predicted}
        name = migration_name(move.uid)
        self.state.migrations.upsert(
            Migration(
                metadata=ObjectMeta(
                    name=name, uid=name, creation_timestamp=stamp, annotations=annotations
                ),
                spec=spec,
                status=MigrationStatus(
                    phase=Phase.COMPLETED,
                    outcome=Outcome.AS_PLANNED,
                    started_at=stamp,
                    evicted_at=stamp,
                    finished_at=stamp,
                    replacement=ReplacementRef(name=self._keys[number], uid=uid, node=move.target),
                ),
            )
        )

    def _evict(self, number: int, node: NodeName, now_s: float) -> None:
        wire = self._pod(number, node, self._since_s[number])
        until_s = now_s + self._size.drain_s
        self._since_s[number] = now_s
        if not self._size.drain_s:
            self.state.pods.delete(wire)
            return
        wire.metadata.deletion_timestamp = datetime.fromtimestamp(until_s, UTC)
        self.state.pods.upsert(wire)
        key, used = self._keys[number], float(self._used[number])
        self._draining.append(_Draining(key, wire, int(self._at[number]), used, until_s))

    def _end_drains(self, now_s: float) -> None:
        """Remove the pods that had terminated before this minute began."""
        for each in self._draining:
            if each.until_s <= now_s - STEP_S:
                self.state.pods.delete(each.wire)
        self._draining = [each for each in self._draining if each.until_s > now_s - STEP_S]

    def _fill(self) -> None:
        for name in self._names:
            made = build.node(name, cpu=f"{CPU_MILLI:.0f}m", memory=f"{MEM_BYTES:.0f}")
            self.state.nodes.upsert(ready_node(made))
        for first in range(0, len(self._keys), REPLICAS):
            self.state.replica_sets.upsert(observed(ReplicaSet, self._owner(first)))
        for number in range(len(self._keys)):
            node = self._names[self._at[number]]
            self.state.pods.upsert(self._pod(number, node, self._since_s[number]))

    @staticmethod
    def _base(number: int) -> str:
        return f"web-{number // REPLICAS:03}-{number % REPLICAS}"

    def _owner(self, number: int) -> build.Manifest:
        count = min(REPLICAS, len(self._keys) - number // REPLICAS * REPLICAS)
        name = self._base(number).rpartition("-")[0]
        made = build.replica_set(name, count, cpu="50m", memory="64Mi")
        status = {"replicas": count, "readyReplicas": count, "availableReplicas": count}
        return {**made, "status": {**status, "observedGeneration": 1}}

    def _pod(self, number: int, node: str, since_s: float) -> Pod:
        owner = self._owner(number)
        template = owner["spec"]["template"]
        made = build.pod(
            self._keys[number],
            node=node,
            labels=template["metadata"]["labels"],
            spec=template["spec"],
        )
        since = datetime.fromtimestamp(since_s, UTC).isoformat()
        return running_pod(made, owner, since=since)


def usage_of(curves: Curves, size: Size) -> Curves:
    """[pod, point] milli-cores of each pod."""
    rng = np.random.default_rng(size.seed)
    count = size.nodes * size.per_node
    order = np.concatenate([rng.permutation(len(curves)) for _ in range(-(-count // len(curves)))])
    shift = np.where(np.arange(count) < len(curves), 0, rng.integers(0, curves.shape[1], count))
    found = np.array(
        [np.roll(curves[c], s) for c, s in zip(order[:count], shift.tolist(), strict=True)]
    )
    wanted = size.mean_percent / 100.0 * CPU_MILLI * size.nodes
    scaled: Curves = found * wanted / found.mean(axis=1).sum()
    return scaled


def configuration(choice: str, strategies: Sequence[str]) -> RebalancerConfiguration:
    """Return the configuration of a choice such as `mean:15m/p95:30m` (ceilings/targets)."""
    ceilings, _, targets = choice.partition("/")
    aggregation = {"ceilings": _aggregation(ceilings), "targets": _aggregation(targets)}
    return RebalancerConfiguration.model_validate(
        {
            "mode": "act",
            # Three samples of 15 s are one of ours.
            "observations": 1,
            "enabledStrategies": list(strategies),
            "load": {"aggregation": aggregation},
        }
    )


def _aggregation(text: str) -> dict[str, str]:
    kind, _, window = text.partition(":")
    return {"type": kind, **({"window": window} if window else {})}


def rows(
    curves: Curves, size: Size, choices: Sequence[str], strategies: Sequence[str]
) -> Iterator[tuple[str, Result]]:
    """Yield what becomes of the same cluster with each choice; first without any move."""
    use = usage_of(curves, size)
    still = Replay(use, size, configuration("last/last", strategies))
    yield "no moves", still.run(moving=False, progress=_shown("no moves"))
    for choice in choices:
        replay = Replay(use, size, configuration(choice, strategies))
        yield choice, replay.run(progress=_shown(choice))


def _shown(choice: str) -> Callable[[int], None]:
    """Return what shows in a terminal how far a replay is; the row of its result replaces it."""

    def show(minute: int) -> None:
        if minute % 10 == 0 and sys.stderr.isatty():
            print(f"{choice:22} {minute // 60:3} h\r", end="", file=sys.stderr, flush=True)

    return show


def main() -> None:
    options = _options()
    for choice in options.choices:
        try:
            configuration(choice, options.strategies)
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(map(str, problem["loc"]))
            raise SystemExit(f"{choice}: {where}: {problem['msg']}") from None
    size = Size(
        options.nodes,
        options.per_node,
        options.mean,
        options.noise,
        options.seed,
        options.drain * 60.0,
    )
    folders = options.folders or [None]
    for folder in folders:
        if folder is None:
            curves, size = drawn_curves(300, 24), size._replace(nodes=min(size.nodes, 20))
        else:
            points = max(1, round(options.hours * 3600.0 / POINT_S))
            curves = read_curves(Path(folder))[:, :points]
            if not curves.any():
                raise SystemExit(f"{folder}: every percentage is 0")
        name = Path(folder).name if folder else "drawn"
        print(f"{name}: {len(curves)} curves, {size.nodes} nodes, "
              f"{size.nodes * size.per_node} pods, mean {size.mean_percent:g} %, "
              f"{', '.join(options.strategies)}")  # fmt: skip
        print(f"{'ceilings / targets':22} {'hot min':>9} {'points':>7} {'evict':>7} {'again':>7}"
              f" {'seconds':>8}")  # fmt: skip
        for choice, found in rows(curves, size, options.choices, options.strategies):
            points = found.excess / max(1, found.hot_minutes)
            print(f"{choice:22} {found.hot_minutes:9} {points:7.1f} {found.evictions:7} "
                  f"{found.again:7} {found.seconds:8.0f}", flush=True)  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--nodes", type=_above_0(int), default=200)
    parser.add_argument("--per-node", type=_above_0(int), default=10)
    parser.add_argument("--mean", type=_above_0(float), default=45.0)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--drain", type=float, default=0.0, help="minutes that evicted pods run on")
    parser.add_argument(
        "--hours", type=_above_0(float), default=24.0, help="how much of the day to replay"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--choices", nargs="*", default=CHOICES)
    parser.add_argument("--strategies", nargs="*", default=["ResourceOptimization"])
    return parser.parse_args()


def _above_0(kind: type[N]) -> Callable[[str], N]:
    def number(text: str) -> N:
        found = kind(text)
        if not found > 0:
            raise argparse.ArgumentTypeError(f"{text} is not above 0")
        return found

    return number


if __name__ == "__main__":
    main()
