# SPDX-License-Identifier: Apache-2.0
"""Duration and quality of plans, compared with the descheduler.

1,000, 5,000 and 10,000 nodes with 30 pods each, one node in ten too hot: time, memory, and
evictions with the proven bound; the same with pods that are tied by affinity and hard spread,
and where no pod fits anywhere; and a cycle with nothing to do. Then descheduler v0.36.0
(LowNodeUtilization, measured load, one cycle) and our plan on the same cluster. Last the gap for
spread, which no solver closes: plan, best proven bound, best known.

    python -m bench.planner [--sizes 1000 5000 10000] [--peer 100 1000] [--full]

The time is CPU time, that of the solver's process included. The first plan of a cluster also
reads all its pods into the index that later ones keep up to date.

`--full` gives the solver twenty instances and a minute for each.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from bench import descheduler
from bench.crowd import (
    CPU_CEILING,
    MEM_CEILING,
    NODE_MIB,
    NODE_MILLI,
    Crowd,
    crowd,
    sample_of,
    state_of,
    too_hot,
)
from bench.exact import exact
from bench.observed import STAMP
from bench.peer import peer
from bench.problems import Shape, demand_of, draw
from bench.process import memory_mb
from common.cache.snapshot import Snapshot
from common.config import RebalancerConfiguration, Strategy
from common.fit import FitIndex, World
from common.kube.timestamps import parse_time
from common.load import Belief, LoadTracker, LoadView
from rebalancer.__main__ import GC_THRESHOLDS
from rebalancer.decision import Decider
from rebalancer.planner import Plan, make_plan
from rebalancer.planner.bounds import lower_bound
from rebalancer.planner.fingerprint import Fingerprints
from rebalancer.solver import solve
from rebalancer.strategies import ClusterView

T = TypeVar("T")

PER_NODE = 30
LIMIT_S, STEADY_S = 10.0, 0.3
CYCLES = 5
_FINGERPRINTS = Fingerprints()

_HEAD = (
    f"{'nodes':>6} {'pods':>7} {'case':18} {'assess':>7} {'plan':>7} {'memory':>8} "
    f"{'goals':>6} {'unmet':>6} {'hot':>5} {'left':>5} {'evict':>6} {'bound':>6} {'ratio':>6}"
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One plan and its cost."""

    plan: Plan
    assess_s: float
    plan_s: float
    memory_mb: float

    @property
    def evictions(self) -> int:
        return len(self.plan.moves)

    @property
    def cpu_s(self) -> float:
        return self.assess_s + self.plan_s

    @property
    def hot_left(self) -> int:
        return sum(
            too_hot(node.after.cpu * NODE_MILLI / 100, node.after.memory * NODE_MIB / 100)
            for node in self.plan.nodes
        )


def main() -> None:
    options = _options()
    _sizes(options.sizes)
    if options.peer and not descheduler.available():
        print("\ndescheduler skipped: Go is not installed")
        options.peer = []
    for nodes in options.peer:
        _compare_with_peer(nodes)
    count, seconds = (20, 60.0) if options.full else (4, 15.0)
    _spread_gap(count, seconds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1000, 5000, 10_000])
    parser.add_argument("--peer", type=int, nargs="*", default=[100, 1000])
    parser.add_argument("--full", action="store_true")
    return parser.parse_args()


def _sizes(sizes: Sequence[int]) -> None:
    print(_HEAD)
    for nodes in sizes:
        plain = crowd(nodes, PER_NODE)
        index, snapshot = FitIndex(), state_of(plain).snapshot()
        found = [
            _report(plain, snapshot, index, "first"),
            _report(plain, snapshot, index, "ceilings"),
            _report(plain, snapshot, index, "and spread", spread=True),
            _report(replace(plain, full=True), snapshot, index, "nothing fits"),
        ]
        steady_s = _steady_s(replace(plain, calm=True), snapshot)
        del index, snapshot
        found += _tied(nodes)
        most = max(it.cpu_s for it in found)
        print(f"       a cycle with nothing to do: {steady_s:.2f} s, limit {STEADY_S:g} s: "
              f"{_verdict(steady_s <= STEADY_S)}; the longest plan: {most:.1f} s, "
              f"limit {LIMIT_S:g} s: {_verdict(most <= LIMIT_S)}", flush=True)  # fmt: skip


def _tied(nodes: int) -> list[Measured]:
    tied = crowd(nodes, PER_NODE, tied=True)
    index, snapshot = FitIndex(), state_of(tied).snapshot()
    return [
        _report(tied, snapshot, index, "tied, first"),
        _report(tied, snapshot, index, "tied, ceilings"),
        _report(tied, snapshot, index, "tied, and spread", spread=True),
    ]


def _verdict(kept: bool) -> str:
    return "met" if kept else "EXCEEDED"


def _report(
    found: Crowd, snapshot: Snapshot, index: FitIndex, case: str, *, spread: bool = False
) -> Measured:
    it = measure(found, snapshot, index, spread=spread)
    bound = it.plan.lower_bound.evictions
    ratio = f"{it.evictions / bound:6.3f}" if bound else "     –"
    print(f"{len(found.nodes):6} {len(found.nodes) * PER_NODE:7} {case:18} {it.assess_s:6.2f}s "
          f"{it.plan_s:6.2f}s {it.memory_mb:6.0f}MB {len(it.plan.goals):6} {len(it.plan.unmet):6} "
          f"{found.hot():5} {it.hot_left:5} {it.evictions:6} {bound:6} {ratio}",
          flush=True)  # fmt: skip
    return it


def measure(found: Crowd, snapshot: Snapshot, index: FitIndex, *, spread: bool = False) -> Measured:
    """Plan for a cluster, with the real strategies, gates and solver."""
    now_s = parse_time(STAMP) + 3600.0
    load = _load(found, snapshot, now_s)
    cluster = ClusterView(snapshot, load, _config(spread), now_s, World(snapshot, index))
    with _collecting_as_the_program():
        _reset_peak()
        assess_s, demand = _cpu(lambda: demand_of(cluster))
        plan_s, plan = _cpu(
            lambda: make_plan(replace(demand, solve=solve, fingerprints=_FINGERPRINTS))
        )
    return Measured(plan, assess_s, plan_s, memory_mb("VmHWM"))


def _steady_s(found: Crowd, snapshot: Snapshot) -> float:
    """Return the CPU time of a cycle with nothing to do, of the decider that the loop uses."""
    now_s = parse_time(STAMP) + 3600.0
    decider = Decider(_config(spread=True))
    belief = Belief(snapshot, _load(found, snapshot, now_s))
    first = decider.decide(belief, now_s)
    if first.assessment.goals:
        raise SystemExit(f"there is something to do: {first.assessment.goals[:3]}")
    with _collecting_as_the_program():
        seconds, _ = _cpu(lambda: [decider.decide(belief, now_s + n) for n in range(CYCLES)])
    return seconds / CYCLES


@contextmanager
def _collecting_as_the_program() -> Iterator[None]:
    """Let the garbage collector work as in the rebalancer, which freezes what it has read."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _load(found: Crowd, snapshot: Snapshot, now_s: float) -> LoadView:
    tracker = LoadTracker()
    tracker.observe(sample_of(found, now_s), snapshot, now_s)
    return tracker.view(snapshot, now_s)


def _config(spread: bool) -> RebalancerConfiguration:
    strategies = [Strategy.RESOURCE_OPTIMIZATION, *([Strategy.LOAD_BALANCING] if spread else [])]
    return RebalancerConfiguration(
        cpu_threshold=CPU_CEILING,
        memory_threshold=MEM_CEILING,
        enabled_strategies=tuple(strategies),
    )


def _cpu(work: Callable[[], T]) -> tuple[float, T]:
    began = time.process_time() + _solver_s()
    found = work()
    return time.process_time() + _solver_s() - began, found


def _solver_s() -> float:
    """Return the CPU time of the solver's process so far."""
    if solve.pid is None:
        return 0.0
    fields = Path(f"/proc/{solve.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _reset_peak() -> None:
    """Let the kernel forget the highest memory so far."""
    Path("/proc/self/clear_refs").write_text("5")


def _compare_with_peer(nodes: int) -> None:
    found = crowd(nodes, PER_NODE)
    ours, theirs = measure(found, state_of(found).snapshot(), FitIndex()), peer(found)
    bound = max(1, ours.plan.lower_bound.evictions)
    print(f"\ncompared with descheduler {descheduler.VERSION}, one cycle each: {nodes} nodes, "
          f"{nodes * PER_NODE} pods, {found.hot()} hot, at least {bound} evictions")  # fmt: skip
    rows = (
        ("descheduler", theirs.cycle_s, theirs.evictions, theirs.hot_left),
        ("ours", ours.cpu_s, ours.evictions, ours.hot_left),
    )
    for who, seconds, evictions, hot in rows:
        ratio = evictions / bound
        print(f"  {who:12} decides in {seconds:7.2f} s   evictions {evictions:5} "
              f"({ratio:.2f} × bound)   hot nodes left {hot:4}", flush=True)  # fmt: skip
    print(f"  {'ratio':12} {theirs.cycle_s / rows[1][1]:18.1f} ×"
          f"{theirs.evictions / max(1, ours.evictions):19.2f} ×", flush=True)  # fmt: skip


def _spread_gap(count: int, seconds: float) -> None:
    """Print plans for spread with the bound and the best plan of a solver."""
    print(f"\nspread of 20 points, 20 nodes and 200 pods, {seconds:g} s of solver each")
    print("  seed  plan  certificate  proven  best found  gap to the proven")
    gaps = []
    for seed in range(count):
        problem = draw(seed, Shape(hot=2 + seed % 3, cold_percent=50.0))
        demand = problem.demand((Strategy.LOAD_BALANCING,))
        instance, goals = problem.instance(), demand.assessment.goals
        plan = make_plan(demand)
        found = exact(instance, goals, seconds=seconds)
        gaps.append(len(plan.moves) / max(1, found.bound))
        unmet = f"   ({len(plan.unmet)} of {len(goals)} goals unmet)" if plan.unmet else ""
        print(f"  {seed:4}  {len(plan.moves):4}  {lower_bound(instance, goals).evictions:11}  "
              f"{found.bound:6}  {found.evictions or '–':>10}  {gaps[-1]:6.2f} ×{unmet}",
              flush=True)  # fmt: skip
    print(f"  on average {sum(gaps) / len(gaps):.2f} × the best proven bound")


if __name__ == "__main__":
    main()
