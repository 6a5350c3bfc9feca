"""One contestant at work on one scenario, watched from outside.

Both get the same nodes and pods at the same places, the same kube-scheduler but for the
extender, and the same measurements, which know all pods before either begins. Watching ends
early once the cluster has stayed level for a while; otherwise when the time is over.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench import descheduler
from bench.arena.figures import CEILING, Figures, Goal, Moment, level_since, repeats
from bench.arena.view import progress
from simulator.scenarios import Scenario, load_scenario
from tests.support.cluster import Cluster
from tests.support.episode import Episode, episode, measured, was_evicted
from tests.support.real_scenario import Pods, app_of, fewest, node_of, stage, watched

OURS, PEER = "Evenkeel", "descheduler"
OUR_CYCLE_S: Final = 10.0
PEER_CYCLE_S: Final = 40.0
QUIET_S: Final = 2 * PEER_CYCLE_S
"""Whoever wants to spoil a level cluster gets two more looks at it."""
# Pods and nodes were made just now; everything else is as shipped.
SETTINGS: Final[Mapping[str, Any]] = {
    "reschedulingInterval": f"{OUR_CYCLE_S:g}s",
    "minPodAge": "1s",
    "minNodeAge": "1s",
}
LOAD: Final[Mapping[str, Any]] = {"usageInterval": "5s"}
OUR_WORDS: Final = (
    f"{OURS}: both programs with the shipped rights and defaults, but a look every "
    f"{OUR_CYCLE_S:g} s (measurements are no newer), usage read every "
    f"{LOAD['usageInterval']}, and pods may move however young; it acts on what it saw in three "
    "looks in a row and once more in newer samples."
)
PEER_WORDS: Final = (
    f"{PEER} {descheduler.VERSION}: LowNodeUtilization on the same metrics-server's measurements, "
    f"thresholds {descheduler.LOW_PERCENT}, targetThresholds {CEILING:g}, nodeFit, no limits, all "
    f"rights; a fresh process every {PEER_CYCLE_S:g} s, as its CronJob does every 120 s: so often "
    "because it acts at first sight, so seldom that each look has measurements from after the "
    "last evictions, and fresh so that it need not wait for its own smoothing."
)
_PAUSE_S: Final = 0.5
_SPOKEN_S: Final = 30.0

Say = Callable[[str], None]
Places = Counter[tuple[str, str]]
"""How many pods of each workload are on which node of the scenario."""


@dataclass(frozen=True, slots=True)
class Round:
    """What both contestants are given."""

    scenario: str
    seed: int
    goal: Goal
    seconds: float
    say: Say

    def load(self) -> Scenario:
        return load_scenario(self.scenario)


@dataclass(frozen=True, slots=True)
class Start:
    """A cluster before anybody touched it."""

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
    """Let both programs of Evenkeel work with the rights that are shipped."""
    wanted = ["ResourceOptimization"] if given.goal.spread is None else None
    strategies = {"enabledStrategies": wanted} if wanted else {}
    async with episode(
        cluster, folder, given.load(), seed=given.seed, settings={**SETTINGS, **strategies},
        load=LOAD,
    ) as loop:  # fmt: skip
        start = _start(loop.nodes, loop.pods)
        places = start.places()
        moments = await _watch(start, given, OURS)
        figures = _figures(start, moments, given, OURS)
        proven = int((await loop.rebalancer.metrics()).total("_episode_lower_bound"))
        bound = max(figures.bound, proven) if given.goal.spread is not None else figures.bound
        return replace(figures, bound=bound, landed=await _landed(loop)), places


async def peer(cluster: Cluster, binary: Path, given: Round, bound: int) -> tuple[Figures, Places]:
    """Let descheduler work beside a kube-scheduler without extender; the bound is known."""
    nodes = await stage(cluster, given.load(), given.seed)
    await cluster.start("kube-scheduler")
    async with watched(cluster) as pods:
        await measured(cluster, pods, nodes.values())
        start = _start(nodes, pods)
        places = start.places()
        async with _cycles(binary, cluster.kubeconfig):
            moments = await _watch(start, given, PEER)
        return replace(_figures(start, moments, given, PEER), bound=bound), places


def _start(nodes: Mapping[str, str], pods: Pods) -> Start:
    return Start(nodes, pods, frozenset(pods.now), fewest(pods.now.values(), CEILING))


async def _watch(start: Start, given: Round, who: str) -> list[Moment]:
    """Look at the cluster until it has stayed level for a while, or the time is over."""
    began, moments, said, said_s = time.monotonic(), [start.moment(0.0)], "", 0.0
    while (seconds := time.monotonic() - began) < given.seconds:
        moments.append(start.moment(seconds))
        words = progress(moments[-1], len(start.pods.left))
        if words != said or seconds - said_s >= _SPOKEN_S:
            given.say(f"{seconds:5.0f} s  {who}: {words}")
            said, said_s = words, seconds
        since = level_since(moments, given.goal)
        if since is not None and seconds - since >= QUIET_S:
            break
        await asyncio.sleep(_PAUSE_S)
    return moments


def _figures(start: Start, moments: list[Moment], given: Round, who: str) -> Figures:
    left = start.pods.left
    return Figures(
        contestant=who,
        scenario=given.scenario,
        seed=given.seed,
        bound=start.bound,
        evictions=len(left),
        repeats=repeats(start.uids, left),
        landed=None,
        level_s=level_since(moments, given.goal),
        watched_s=moments[-1].seconds,
        before=moments[0],
        after=moments[-1],
    )


async def _landed(loop: Episode) -> int:
    moves = [each for each in await loop.migrations() if was_evicted(each)]
    return sum(each["status"].get("outcome") == "AsPlanned" for each in moves)


@asynccontextmanager
async def _cycles(binary: Path, kubeconfig: Path) -> AsyncIterator[None]:
    """Have the peer look at the cluster again and again while the block lasts."""

    async def again() -> None:
        while True:
            due = time.monotonic() + PEER_CYCLE_S
            await descheduler.cycle(binary, kubeconfig, cpu_percent=CEILING, mem_percent=CEILING)
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
