# SPDX-License-Identifier: Apache-2.0
"""Families in which nodes may not all use the same."""

from __future__ import annotations

import random
from typing import Any, Final

from bench.zoo.cluster import ZooCluster
from bench.zoo.drawing import CEILINGS, DEFAULT, Drawn, draw_both, fill, group

POOLS: Final = {"calm": 40.0, "mixed": 60.0, "batch": 90.0}
"""What nodes of a pool may use of their CPU."""


def own_ceilings(rng: random.Random) -> ZooCluster:
    """Three pools with ceilings of their own; hot nodes of one use less than free ones of another.

    Any pod may run anywhere.
    """
    pools = [
        {"name": pool, "nodeSelector": {"pool": pool}, "cpuThreshold": most}
        for pool, most in POOLS.items()
    ]
    settings: dict[str, Any] = {**CEILINGS, "pools": pools}
    cluster, drawn = ZooCluster(settings), list[Drawn]()
    for pool, most in POOLS.items():
        count = rng.randint(2, 4)
        hot = rng.randint(0, 1) if pool != "calm" else rng.randint(1, 2)
        for number in range(count):
            size = rng.choice((8, 16))
            name = cluster.node(f"{pool}-{number}", cpu=size, labels={"pool": pool})
            percent = most + (rng.uniform(4, 9) if number < hot else -rng.uniform(5, 18))
            drawn += fill(rng, name, 1000 * size, percent, (200, 60 * size))
    group(cluster, rng, drawn, replicas=(2, 5))
    return cluster


def own_spreads(rng: random.Random) -> ZooCluster:
    """Three pools, two of which are to be level, one closer than the other.

    Pods of a pool may go to another one, which must not become less level than it may be.
    """
    pools: list[dict[str, Any]] = [
        {"name": "close", "nodeSelector": {"pool": "close"}, "imbalanceThreshold": 10.0},
        {"name": "wide", "nodeSelector": {"pool": "wide"}, "imbalanceThreshold": 30.0},
        {
            "name": "left",
            "nodeSelector": {"pool": "left"},
            "enabledStrategies": ["ResourceOptimization"],
        },
    ]
    cluster, drawn = ZooCluster({**DEFAULT, "pools": pools}), list[Drawn]()
    for pool, levels in (("close", (22, 76)), ("wide", (5, 76)), ("left", (10, 92))):
        for number in range(rng.randint(2, 4)):
            name = cluster.node(f"{pool}-{number}", labels={"pool": pool})
            drawn += draw_both(rng, name, rng.uniform(*levels), rng.uniform(30, 40))
    group(cluster, rng, drawn, replicas=(2, 5))
    return cluster


RULE_FAMILIES: Final = (own_ceilings, own_spreads)
