# SPDX-License-Identifier: Apache-2.0
"""Clusters for `Violations`, `Duplicates` and `PreferredNodes`, drawn from seeds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from bench.relocations.model import (
    CEILING,
    DUPLICATES,
    HOST,
    PREFERRED,
    VIOLATIONS,
    ZONE,
    Drawn,
    Node,
    Workload,
)


def _nodes(rng: random.Random, strategy: str, number: tuple[int, int], cores: int = 8) -> Drawn:
    found = Drawn(strategy)
    zones = rng.randint(1, 3)
    for index in range(rng.randint(*number)):
        found.nodes[f"n{index}"] = Node(f"z{index % zones}", cores, rng.choice("aabc"))
    return found


def _homes(rng: random.Random, found: Drawn, own: Workload, pods: int, stray: float) -> list[str]:
    """Return nodes with room for pods, some of which rules forbid by now."""
    homes: list[str] = []
    asked = Counter[str]()
    used = Counter[str]()
    for pod in found.pods.values():
        asked[pod.home] += round(1000 * found.workloads[pod.workload].cores)
        used[pod.home] += round(1000 * found.workloads[pod.workload].use)
    weights = {name: rng.choice((0.2, 1.0, 3.0)) for name in found.nodes}
    for _ in range(pods):
        anywhere = rng.random() < stray
        open_ = [
            name
            for name, node in found.nodes.items()
            if asked[name] + 1000 * own.cores <= 1000 * node.cores
            and used[name] + 1000 * own.use <= 1000 * CEILING * node.cores
            and (anywhere or own.runs_on(node))
        ]
        if open_:
            home = rng.choices(open_, [weights[name] for name in open_])[0]
            asked[home] += round(1000 * own.cores)
            used[home] += round(1000 * own.use)
            homes.append(home)
    return homes


def labels(rng: random.Random) -> Drawn:
    """Labels and taints of nodes have changed since pods were placed."""
    found = _nodes(rng, VIOLATIONS, (4, 9))
    for name, node in list(found.nodes.items()):
        found.nodes[name] = replace(node, hard=rng.random() < 0.25)
    for number in range(rng.randint(2, 5)):
        kinds = rng.choice(("", "a", "ab", "bc", "c"))
        own = Workload(kinds=kinds, tolerates=rng.random() < 0.3)
        found.add(f"w{number}", own, _homes(rng, found, own, rng.randint(1, 6), 0.4))
    return found


def repelled(rng: random.Random) -> Drawn:
    """Pods share domains with others from which they have to be apart."""
    found = _nodes(rng, VIOLATIONS, (4, 8))
    groups = ["red", "blue", "green"]
    for number in range(rng.randint(2, 5)):
        key, other = rng.choice((HOST, HOST, ZONE)), rng.choice(groups)
        apart = ((key, other),) if rng.random() < 0.7 else ()
        own = Workload(group=rng.choice(groups), apart=apart)
        homes = _homes(rng, found, own, rng.randint(1, 3), 0.0)
        found.add(f"w{number}", own, homes, rng.choice((0.0, 0.0, 0.5)))
    return found


def full(rng: random.Random) -> Drawn:
    """Room has to be made for pods that have to leave."""
    found = _nodes(rng, VIOLATIONS, (3, 6), cores=4)
    for number in range(rng.randint(3, 7)):
        kinds = rng.choice(("", "", "a", "ab"))
        own = Workload(rng.choice((0.5, 1.0, 1.5)), kinds=kinds)
        homes = _homes(rng, found, own, rng.randint(1, 4), 0.3)
        found.add(f"w{number}", own, homes, rng.choice((0.0, 0.0, 0.3)))
    return found


def loaded(rng: random.Random) -> Drawn:
    """Ceilings limit where pods may go."""
    found = _nodes(rng, VIOLATIONS, (3, 7), cores=4)
    for number in range(rng.randint(3, 7)):
        kinds = rng.choice(("", "", "a", "ab", "c"))
        own = Workload(0.1, rng.choice((0.3, 0.6, 0.9)), kinds=kinds)
        found.add(f"w{number}", own, _homes(rng, found, own, rng.randint(1, 4), 0.3))
    return found


def gathered(rng: random.Random) -> Drawn:
    """Replicas have gathered on a few hosts."""
    found = _nodes(rng, DUPLICATES, (3, 8))
    for number in range(rng.randint(1, 3)):
        own = Workload(kinds=rng.choice(("", "", "ab")))
        homes = _homes(rng, found, own, rng.randint(2, 9), 0.0)
        found.add(f"w{number}", own, homes, rng.choice((0.0, 0.0, 0.3)))
    return found


def crowded(rng: random.Random) -> Drawn:
    """Workloads with duplicates need the same little room."""
    found = _nodes(rng, DUPLICATES, (3, 6), cores=4)
    for number in range(rng.randint(2, 5)):
        own = Workload(rng.choice((0.5, 1.0)), kinds=rng.choice(("", "", "a", "ab")))
        found.add(f"w{number}", own, _homes(rng, found, own, rng.randint(2, 5), 0.0))
    return found


def choosy(rng: random.Random) -> Drawn:
    """Preferences and soft taints say which hosts are no place for a duplicate."""
    found = _nodes(rng, DUPLICATES, (3, 7))
    for name, node in list(found.nodes.items()):
        found.nodes[name] = replace(node, soft=rng.random() < 0.3)
    for number in range(rng.randint(1, 3)):
        prefers = ((rng.choice("ab"), rng.randint(1, 100)),) if rng.random() < 0.6 else ()
        own = Workload(prefers=prefers, minds=rng.random() < 0.7)
        found.add(f"w{number}", own, _homes(rng, found, own, rng.randint(2, 7), 0.0))
    return found


def spot(rng: random.Random) -> Drawn:
    """Pods have come to other nodes while those that they prefer were full."""
    found = _nodes(rng, PREFERRED, (4, 8))
    for number in range(rng.randint(1, 4)):
        prefers = tuple((kind, rng.choice((1, 10, 100))) for kind in rng.sample("abc", 2))
        own = Workload(prefers=prefers)
        found.add(f"w{number}", own, _homes(rng, found, own, rng.randint(1, 6), 0.0))
    return found


def scarce(rng: random.Random) -> Drawn:
    """Preferred nodes have room for some of the pods only."""
    found = _nodes(rng, PREFERRED, (4, 7), cores=4)
    for number in range(rng.randint(2, 5)):
        prefers = ((rng.choice("abc"), rng.choice((1, 10, 100))),)
        own = Workload(rng.choice((0.5, 1.0)), prefers=prefers)
        found.add(f"w{number}", own, _homes(rng, found, own, rng.randint(1, 5), 0.0))
    return found


def avoided(rng: random.Random) -> Drawn:
    """Soft taints came after the pods."""
    found = _nodes(rng, PREFERRED, (4, 8))
    for name, node in list(found.nodes.items()):
        found.nodes[name] = replace(node, soft=rng.random() < 0.4)
    for number in range(rng.randint(1, 4)):
        prefers = ((rng.choice("abc"), 10),) if rng.random() < 0.5 else ()
        own = Workload(prefers=prefers, minds=rng.random() < 0.7, kinds=rng.choice(("", "", "ab")))
        found.add(f"w{number}", own, _homes(rng, found, own, rng.randint(1, 6), 0.0))
    return found


FAMILIES: Final[Mapping[str, Callable[[random.Random], Drawn]]] = {
    each.__name__: each
    for each in (
        labels,
        repelled,
        full,
        loaded,
        gathered,
        crowded,
        choosy,
        spot,
        scarce,
        avoided,
    )
}


def drawn_for(family: str, seed: int) -> Drawn:
    """Return the cluster of a family for a seed."""
    return FAMILIES[family](random.Random(f"{family}-{seed}"))
