# SPDX-License-Identifier: Apache-2.0
"""What families draw from: pods that fill nodes to a percentage, grouped into workloads."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from bench.zoo.cluster import GIB, SMALL, Use, ZooCluster

CEILINGS: Final = {"enabledStrategies": ["ResourceOptimization"]}
SPREAD: Final = {"enabledStrategies": ["LoadBalancing"]}
DRAIN: Final = {"enabledStrategies": ["NodeMaintenance"]}
DEFAULT: Final = {"enabledStrategies": ["LoadBalancing", "ResourceOptimization"]}
MEM: Final = GIB // 4

Drawn = tuple[str, Use]
"""A node and what a pod on it uses."""


def fill(
    rng: random.Random, node: str, capacity: int, percent: float, sizes: tuple[int, int]
) -> list[Drawn]:
    """Return pods that use so many percent of a node's CPU."""
    left = int(capacity * percent / 100)
    found: list[Drawn] = []
    while left > 0:
        cpu = min(left, rng.randint(*sizes))
        found.append((node, Use(cpu, int(MEM * rng.uniform(0.5, 1.5)))))
        left -= cpu
    return found


def draw_both(rng: random.Random, node: str, cpu: float, memory: float) -> list[Drawn]:
    """Return pods that use so many percent of a node's CPU and memory."""
    left, room = cpu / 100 * 8000, memory / 100 * 32 * GIB
    found: list[Drawn] = []
    while left > 1 or room > GIB / 64:
        one = min(left, rng.uniform(100, 900))
        two = min(room, rng.uniform(0.3, 3.5) * GIB)
        found.append((node, Use(int(one), int(two))))
        left, room = left - one, room - two
    return found


def spread_over(
    rng: random.Random,
    settings: dict[str, Any],
    *,
    nodes: int,
    cpu: tuple[float, float],
    memory: tuple[float, float],
) -> ZooCluster:
    cluster = ZooCluster(settings)
    drawn: list[Drawn] = []
    for i in range(nodes):
        name = cluster.node(f"n{i}")
        drawn += draw_both(rng, name, rng.uniform(*cpu), rng.uniform(*memory))
    group(cluster, rng, drawn, replicas=(2, 5))
    return cluster


def group(
    cluster: ZooCluster,
    rng: random.Random,
    drawn: Sequence[Drawn],
    *,
    replicas: tuple[int, int],
    prefix: str = "app-",
    requests: Use = SMALL,
    **template: Any,
) -> dict[str, str]:
    """Make workloads of pods, on different nodes where possible; return pods and their nodes."""
    left = list(drawn)
    rng.shuffle(left)
    found: dict[str, str] = {}
    number = 0
    while left:
        wanted = rng.randint(*replicas)
        chosen: list[Drawn] = []
        for each in list(left):
            if len(chosen) < wanted and each[0] not in {name for name, _ in chosen}:
                chosen.append(each)
                left.remove(each)
        while len(chosen) < min(2, wanted) and left:
            chosen.append(left.pop())
        if len(chosen) < 2:
            # A last pod without siblings gets an idle one, so that it may move.
            chosen.append((chosen[0][0], Use(1, 1 << 20)))
        pods = cluster.workload(
            f"{prefix}{number:03}",
            [name for name, _ in chosen],
            [use for _, use in chosen],
            requests=requests,
            **template,
        )
        found |= dict(zip(pods, (name for name, _ in chosen), strict=True))
        number += 1
    return found
