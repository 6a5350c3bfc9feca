"""How long plans take and how good they are, and the descheduler beside ours.

100, 1,000 and 5,000 nodes with 30 pods each, one node in ten too hot: time, memory, evictions
against the proven bound; the same where nothing fits anywhere. Then descheduler v0.36.0
(LowNodeUtilization, measured load, one cycle) and our plan on the same cluster. Last the gap
for spread, which no solver closes: plan, best proven bound, best known.

    python -m bench.planner [--sizes 100 1000 5000] [--peer 100 1000] [--full]

`--full` gives the solver twenty instances and a minute for each.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench import descheduler
from bench.crowd import (
    CPU_CEILING,
    MEM_CEILING,
    NODE_MIB,
    NODE_MILLI,
    STAMP,
    Crowd,
    crowd,
    sample_of,
    state_of,
    too_hot,
)
from bench.peer import peer
from bench.process import memory_mb
from common.config import RebalancerConfiguration, Strategy
from common.fit import FitIndex, World
from common.kube.timestamps import parse_time
from common.load import LoadBook
from rebalancer.evictability import Budgets, Context, Purpose, judge
from rebalancer.planner import Demand, Plan, PlannerSettings, make_plan
from rebalancer.planner.bounds import lower_bound
from rebalancer.planner.exact import exact
from rebalancer.strategies import Assessor, Look
from tests.support.planner_instances import Shape, draw

T = TypeVar("T")

PER_NODE = 30
LIMIT_S = 5.0

_HEAD = (
    f"{'nodes':>6} {'pods':>7} {'case':14} {'look':>7} {'plan':>8} {'its CPU':>8} {'memory':>8} "
    f"{'hot':>5} {'left':>5} {'evict':>6} {'bound':>6} {'ratio':>6}"
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One plan, and what it cost."""

    plan: Plan
    look_s: float
    plan_s: float
    plan_cpu_s: float
    memory_mb: float

    @property
    def evictions(self) -> int:
        return len(self.plan.moves)

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
        print("\nthe descheduler is left out: Go is missing")
        options.peer = []
    for nodes in options.peer:
        _beside_the_peer(nodes)
    count, seconds = (20, 60.0) if options.full else (4, 15.0)
    _spread_gap(count, seconds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[100, 1000, 5000])
    parser.add_argument("--peer", type=int, nargs="*", default=[100, 1000])
    parser.add_argument("--full", action="store_true")
    return parser.parse_args()


def _sizes(sizes: Sequence[int]) -> None:
    print(_HEAD)
    for nodes in sizes:
        fits = _report(crowd(nodes, PER_NODE), "ceilings")
        level = _report(crowd(nodes, PER_NODE), "and spread", spread=True)
        nothing = _report(crowd(nodes, PER_NODE, full=True), "nothing fits")
        times = nothing.plan_cpu_s / fits.plan_cpu_s
        kept = all(found.plan_cpu_s <= LIMIT_S for found in (fits, level, nothing))
        print(f"       where nothing fits it takes {times:.2f} × the time; "
              f"limit {LIMIT_S:g} s of CPU: {'kept' if kept else 'BROKEN'}")  # fmt: skip


def _report(found: Crowd, case: str, *, spread: bool = False) -> Measured:
    it = measure(found, spread=spread)
    bound = it.plan.lower_bound.evictions
    ratio = f"{it.evictions / bound:6.3f}" if bound else "     –"
    print(f"{len(found.nodes):6} {len(found.nodes) * PER_NODE:7} {case:14} {it.look_s:6.2f}s "
          f"{it.plan_s:7.2f}s {it.plan_cpu_s:7.2f}s {it.memory_mb:6.0f}MB {found.hot():5} "
          f"{it.hot_left:5} {it.evictions:6} {bound:6} {ratio}", flush=True)  # fmt: skip
    return it


def measure(found: Crowd, *, spread: bool = False) -> Measured:
    """Plan for a cluster, with the real strategies and gates."""
    now_s = parse_time(STAMP) + 3600.0
    snapshot = state_of(found).snapshot()
    book = LoadBook()
    book.observe(sample_of(found, now_s), snapshot, now_s)
    look = Look(
        snapshot, book.view(snapshot, now_s), _config(spread), now_s, World(snapshot, FitIndex())
    )
    gc.collect()
    before_mb = _reset_peak()
    look_s, demand = _timed(lambda: demand_of(look))
    busy_s = time.process_time()
    plan_s, plan = _timed(lambda: make_plan(demand))
    busy_s = time.process_time() - busy_s
    return Measured(plan, look_s, plan_s, busy_s, memory_mb("VmHWM") - before_mb)


def demand_of(look: Look) -> Demand:
    """Return what the strategies want of a look, judged by the gates."""
    context = Context.of(look.snapshot, look.config, now_s=look.now_s)
    contexts = {purpose: context.meant_for(purpose) for purpose in Purpose}
    assessor = Assessor(look.config)
    assessment = assessor.assess(
        look, lambda pod: not judge(pod, contexts[Purpose.LOAD]), at_once=True
    )
    return Demand(
        look=look,
        assessment=assessment,
        judge=lambda pod, purpose: judge(pod, contexts[purpose]),
        budgets=Budgets(look.snapshot.budgets.values()),
        settings=PlannerSettings.of(look.config),
    )


def _config(spread: bool) -> RebalancerConfiguration:
    strategies = [Strategy.RESOURCE_OPTIMIZATION, *([Strategy.LOAD_BALANCING] if spread else [])]
    return RebalancerConfiguration(
        cpu_threshold=CPU_CEILING,
        memory_threshold=MEM_CEILING,
        enabled_strategies=tuple(strategies),
    )


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def _reset_peak() -> float:
    """Let the kernel forget the peak; return what is in memory now."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory_mb("VmRSS")


def _beside_the_peer(nodes: int) -> None:
    found = crowd(nodes, PER_NODE)
    ours, theirs = measure(found), peer(found)
    bound = max(1, ours.plan.lower_bound.evictions)
    print(f"\nbeside descheduler {descheduler.VERSION}, one cycle each: {nodes} nodes, "
          f"{nodes * PER_NODE} pods, {found.hot()} hot, at least {bound} evictions")  # fmt: skip
    rows = (
        ("descheduler", theirs.cycle_s, theirs.evictions, theirs.hot_left),
        ("ours", ours.look_s + ours.plan_s, ours.evictions, ours.hot_left),
    )
    for who, seconds, evictions, hot in rows:
        ratio = evictions / bound
        print(f"  {who:12} decides in {seconds:7.2f} s   evictions {evictions:5} "
              f"({ratio:.2f} × bound)   hot nodes left {hot:4}", flush=True)  # fmt: skip
    print(f"  {'ratio':12} {theirs.cycle_s / rows[1][1]:18.1f} ×"
          f"{theirs.evictions / max(1, ours.evictions):19.2f} ×", flush=True)  # fmt: skip


def _spread_gap(count: int, seconds: float) -> None:
    """Print plans for spread beside what a solver can prove and find in the time."""
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
