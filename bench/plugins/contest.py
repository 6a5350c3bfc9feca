# SPDX-License-Identifier: Apache-2.0
"""One contestant on one case, observed from outside: every pod that leaves counts as evicted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import descheduler
from bench.arena.figures import repeats
from bench.plugins.cases import Case, Nodes
from bench.stands.cluster import Cluster
from bench.stands.episode import episode, nothing_open
from bench.stands.real_scenario import Pods, stage, watched
from bench.stands.rebalancer_process import QUICK

OURS: Final = "Evenkeel"
PEER: Final = "descheduler"
SEED: Final = 1
LOAD: Final[Mapping[str, Any]] = {"usageSource": "requests"}
SETTINGS: Final[Mapping[str, Any]] = {
    **QUICK,
    "workloadCooldown": "0s",
    "maxInFlightPerNode": 5,
    "maxReschedulePods": 100,
}
PATIENCE_S: Final = 120.0
QUIET_CYCLES: Final = 5
"""Cycles without an eviction after which nothing more is expected."""
MOST_CYCLES: Final = 10
"""Of the peer, which need not come to rest."""
_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a contestant did."""

    contestant: str
    evictions: int
    repeated: int
    """Evictions of pods that had replaced an evicted one."""
    left: int
    """How much is still wrong."""


def settings_of(case: Case) -> dict[str, Any]:
    return {**SETTINGS, **case.settings, "enabledStrategies": [case.strategy]}


async def ours(cluster: Cluster, folder: Path, case: Case) -> Outcome:
    """Run both programs until nothing is wrong and nothing moves, or the time is up."""
    async with episode(
        cluster,
        folder,
        case.scenario(),
        seed=SEED,
        settings=settings_of(case),
        load=LOAD,
        prepare=case.prepare,
    ) as loop:
        due, quiet = time.monotonic() + PATIENCE_S, 0
        cycle, left = 0, -1
        while quiet < QUIET_CYCLES and time.monotonic() < due:
            await asyncio.sleep(_PAUSE_S)
            calm = loop.pods.settled and await nothing_open(cluster)
            now = await loop.rebalancer.cycles()
            if not calm or len(loop.pods.left) != left:
                quiet, left = 0, len(loop.pods.left)
            elif now > cycle:
                quiet += 1
            cycle = now
        return _outcome(OURS, case, loop.pods, loop.nodes, loop.before)


async def peer(cluster: Cluster, binary: Path, case: Case) -> Outcome:
    """Run cycles of the plugin until it evicts nothing more, each once all pods run again."""
    nodes = await stage(cluster, case.scenario(), SEED)
    await case.prepare(cluster, nodes)
    await cluster.start("kube-scheduler")
    policy = descheduler.policy_of({case.plugin: case.args}, case.point)
    async with watched(cluster) as pods:
        before, quiet = dict(pods.now), 0
        for _ in range(MOST_CYCLES):
            left = len(pods.left)
            await descheduler.cycle(binary, cluster.kubeconfig, policy)
            await asyncio.sleep(2 * _PAUSE_S)
            await cluster.wait(lambda: _run_or_ended(pods), PATIENCE_S, "all pods run again")
            quiet = quiet + 1 if len(pods.left) == left else 0
            if quiet == 2:
                break
        return _outcome(PEER, case, pods, nodes, before)


def _run_or_ended(pods: Pods) -> bool:
    failed = {uid for uid, pod in pods.now.items() if pod["status"].get("phase") == "Failed"}
    rest = Pods(pods.namespace, [pod for uid, pod in pods.now.items() if uid not in failed])
    return rest.settled


def _outcome(
    contestant: str, case: Case, pods: Pods, nodes: Nodes, before: Mapping[str, object]
) -> Outcome:
    left = pods.left
    return Outcome(contestant, len(left), repeats(before, left), case.wrong(pods, nodes))
