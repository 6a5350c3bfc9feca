# SPDX-License-Identifier: Apache-2.0
"""One contestant on one scenario, observed from outside.

Both get the same nodes and pods, the same kube-scheduler except for the extender, and the same
measurements, which include all pods before either starts. Observation ends early once the
cluster has stayed level for a while; otherwise when the time is up.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench import descheduler, trimaran
from bench.arena.figures import CEILING, Evictions, Figures, Goal, Moment, Run, level_since, repeats
from bench.arena.view import progress
from bench.stands.cluster import Cluster
from bench.stands.episode import Episode, episode, measured, was_evicted
from bench.stands.real_scenario import Pods, app_of, fewest, node_of, stage, watched
from simulator.scenarios import Scenario, load_scenario

OURS, PEER = "Evenkeel", "descheduler"
PLACED = f"{PEER} + Trimaran"


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the contestants work."""

    cycle: str
    """Of Evenkeel, in words."""
    settings: Mapping[str, Any]
    load: Mapping[str, Any]
    peer_cycle_s: float

    @property
    def quiet_s(self) -> float:
        """Two more cycles of the peer: enough to see whether it disturbs a level cluster."""
        return 2 * self.peer_cycle_s


PACES: Final[Mapping[str, Pace]] = {
    # Pods and nodes are new; everything else is the default.
    "quick": Pace(
        "a cycle every 10 s (the interval of measurements), usage read every 5 s, and no minimum "
        "age of pods",
        {"reschedulingInterval": "10s", "minPodAge": "1s", "minNodeAge": "1s"},
        {"usageInterval": "5s"},
        40.0,
    ),
    "shipped": Pace("nothing else", {}, {}, 120.0),
}


def our_setup(pace: Pace) -> str:
    return (
        f"{OURS}: both programs with the shipped permissions and defaults, except `mode: act` and "
        f"{pace.cycle}; "
        "it acts on three consecutive samples, and validates with newer ones."
    )


def peer_setup(pace: Pace) -> str:
    return (
        f"{PEER} {descheduler.VERSION}: LowNodeUtilization on the same metrics-server's "
        f"measurements, thresholds {descheduler.LOW_PERCENT}, targetThresholds {CEILING:g}, "
        f"nodeFit, no limits, all permissions; a new process every {pace.peer_cycle_s:g} s "
        "(its CronJob: 120 s), because of its own smoothing."
    )


def placed_setup() -> str:
    return (
        f"{PLACED}: the same, and kube-scheduler v1.34 with {trimaran.PLUGIN} of scheduler-plugins "
        f"{trimaran.VERSION} on the same measurements instead of the scores by requests."
    )


_PAUSE_S: Final = 0.5
_PRINT_S: Final = 30.0

Report = Callable[[str], None]
Places = Counter[tuple[str, str]]
"""How many pods of each workload are on which node of the scenario."""


@dataclass(frozen=True, slots=True)
class Round:
    """One comparison: the same for both contestants."""

    scenario: str
    seed: int
    goal: Goal
    seconds: float
    report: Report
    pace: Pace

    def load(self) -> Scenario:
        return load_scenario(self.scenario)


@dataclass(frozen=True, slots=True)
class Start:
    """The initial state of a cluster."""

    nodes: Mapping[str, str]
    pods: Pods
    uids: frozenset[str]
    bound: int

    def places(self) -> Places:
        names = {here: name for name, here in self.nodes.items()}
        return Counter((app_of(pod), names[node_of(pod)]) for pod in self.pods.now.values())

    def moment(self, seconds: float) -> Moment:
        now = self.pods.now.values()
        percent = tuple(self.pods.percent(self.nodes.values()).values())
        return Moment(seconds, percent, sum(not node_of(pod) for pod in now))


async def ours(cluster: Cluster, folder: Path, given: Round) -> tuple[Figures, Places]:
    """Run both programs of Evenkeel with the shipped permissions."""
    wanted = ["ResourceOptimization"] if given.goal.spread is None else None
    strategies = {"enabledStrategies": wanted} if wanted else {}
    settings, load = {"mode": "act", **given.pace.settings, **strategies}, given.pace.load
    async with episode(
        cluster, folder, given.load(), seed=given.seed, settings=settings, load=load
    ) as loop:
        start = _start(loop.nodes, loop.pods)
        places = start.places()
        moments = await _watch(start, given, OURS)
        figures = _figures(start, moments, given, OURS)
        proven = int((await loop.rebalancer.metrics()).total("_episode_lower_bound"))
        bound = max(figures.bound, proven) if given.goal.spread is not None else figures.bound
        evictions = replace(figures.evictions, landed=await _landed(loop))
        return replace(figures, bound=bound, evictions=evictions), places


async def peer(
    cluster: Cluster, binary: Path, given: Round, bound: int, placer: AbstractContextManager[None]
) -> tuple[Figures, Places]:
    """Run descheduler; `placer` runs another scheduler than kube-scheduler without an extender."""
    stock = isinstance(placer, nullcontext)
    nodes = await stage(cluster, given.load(), given.seed)
    if stock:
        await cluster.start("kube-scheduler")
    with placer:
        async with watched(cluster) as pods:
            await measured(cluster, pods, nodes.values())
            start, who = _start(nodes, pods), PEER if stock else PLACED
            places = start.places()
            async with _cycles(binary, cluster.kubeconfig, given.pace.peer_cycle_s):
                moments = await _watch(start, given, who)
            return replace(_figures(start, moments, given, who), bound=bound), places


def _start(nodes: Mapping[str, str], pods: Pods) -> Start:
    return Start(nodes, pods, frozenset(pods.now), fewest(pods.now.values(), CEILING))


async def _watch(start: Start, given: Round, who: str) -> list[Moment]:
    """Observe the cluster until it has stayed level for a while, or the time is up."""
    began, moments, printed, printed_s = time.monotonic(), [start.moment(0.0)], "", 0.0
    while (seconds := time.monotonic() - began) < given.seconds:
        moments.append(start.moment(seconds))
        line = progress(moments[-1], len(start.pods.left))
        if line != printed or seconds - printed_s >= _PRINT_S:
            given.report(f"{seconds:5.0f} s  {who}: {line}")
            printed, printed_s = line, seconds
        since = level_since(moments, given.goal)
        if since is not None and seconds - since >= given.pace.quiet_s:
            break
        await asyncio.sleep(_PAUSE_S)
    return moments


def _figures(start: Start, moments: list[Moment], given: Round, who: str) -> Figures:
    left = start.pods.left
    return Figures(
        run=Run(who, given.scenario, given.seed),
        bound=start.bound,
        evictions=Evictions(len(left), repeats(start.uids, left)),
        level_s=level_since(moments, given.goal),
        before=moments[0],
        after=moments[-1],
    )


async def _landed(loop: Episode) -> int:
    moves = [each for each in await loop.migrations() if was_evicted(each)]
    return sum(each["status"].get("outcome") == "AsPlanned" for each in moves)


@asynccontextmanager
async def _cycles(binary: Path, kubeconfig: Path, cycle_s: float) -> AsyncIterator[None]:
    """Run cycles of the peer while the block lasts."""

    policy = descheduler.low_node_utilization(CEILING, CEILING)

    async def again() -> None:
        while True:
            due = time.monotonic() + cycle_s
            await descheduler.cycle(binary, kubeconfig, policy)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    working = asyncio.create_task(again())
    try:
        yield
        if working.done():
            working.result()
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
