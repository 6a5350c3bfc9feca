# SPDX-License-Identifier: Apache-2.0
"""Families of odd proportions, each drawn from a seed.

Nodes of very different sizes, pods that request nothing, nodes that run out of places for pods
before anything else, taints that only prefer, exchanges among three nodes, and workloads that
repel each other in a chain.
"""

from __future__ import annotations

import random
from typing import Any, Final

from bench.zoo.cluster import GIB, Use, ZooCluster
from bench.zoo.drawing import CEILINGS, DRAIN, MEM, Drawn, fill, group
from bench.zoo.model import HOST, MAINTENANCE


def giant_node(rng: random.Random) -> ZooCluster:
    """One giant node beside small ones: what is little for it is much for them."""
    cluster = ZooCluster(dict(CEILINGS))
    giant = cluster.node("giant", cpu=rng.choice((64, 96, 192)), gib=256)
    small = [cluster.node(f"n{i}", cpu=rng.choice((4, 8))) for i in range(rng.randint(5, 9))]
    hot = set(rng.sample([giant, *small], 2))
    drawn: list[Drawn] = []
    for made in cluster.objects["nodes"]:
        name, cpu = made["metadata"]["name"], int(made["status"]["allocatable"]["cpu"])
        target = rng.uniform(82, 92) if name in hot else rng.uniform(40, 70)
        if name == giant and giant in hot:
            target = rng.uniform(81, 84)
        drawn += fill(rng, name, cpu * 1000, target, (150, max(900, cpu * 40)))
    group(cluster, rng, drawn, replicas=(2, 4))
    return cluster


def no_requests(rng: random.Random) -> ZooCluster:
    """Pods that request nothing at all."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(rng.randint(6, 10))]
    hot = set(rng.sample(names, rng.randint(1, 3)))
    drawn: list[Drawn] = []
    for name in names:
        target = rng.uniform(83, 96) if name in hot else rng.uniform(45, 74)
        drawn += fill(rng, name, 8000, target, (100, 1200))
    group(cluster, rng, drawn, replicas=(2, 5), requests=Use(0, 0))
    return cluster


def preferred_taints(rng: random.Random) -> ZooCluster:
    """Taints that forbid and taints that only prefer; some pods tolerate one or the other."""
    cluster = ZooCluster(dict(rng.choice((CEILINGS, DRAIN))))
    drain = "NodeMaintenance" in cluster.settings["enabledStrategies"]
    effects = ("", "", "", "NoSchedule", "PreferNoSchedule", "PreferNoSchedule")
    names: list[str] = []
    for i in range(8):
        effect = effects[i % len(effects)] if i else ""
        taints = [{"key": "team", "value": "x", "effect": effect}] if effect else ()
        labels = {MAINTENANCE: "true"} if drain and not i else {}
        names.append(cluster.node(f"n{i}", taints=taints, labels=labels))
    for number, tolerates in enumerate((False, False, True)):
        mine = names if tolerates else [n for i, n in enumerate(names) if effects[i % 6] == ""]
        drawn: list[Drawn] = []
        for name in mine:
            hot = name == names[0] and not drain
            share = rng.uniform(84, 94) if hot else rng.uniform(48, 66)
            share /= 3 if name in mine and effects[names.index(name) % 6] == "" else 1
            drawn += fill(rng, name, 8000, share, (200, 1100))
        spec = {"tolerations": [{"key": "team", "operator": "Exists"}]} if tolerates else {}
        group(cluster, rng, drawn, replicas=(2, 4), prefix=f"t{number}-", spec=spec)
    return cluster


def few_places(rng: random.Random) -> ZooCluster:
    """Nodes run out of places for pods before they run out of anything else."""
    cluster = ZooCluster(dict(CEILINGS))
    count = rng.randint(6, 9)
    hot = set(rng.sample(range(count), 2))
    drawn: list[Drawn] = []
    for i in range(count):
        target = rng.uniform(84, 94) if i in hot else rng.uniform(50, 68)
        mine = fill(rng, f"n{i}", 8000, target, (200, 1200))
        cluster.node(f"n{i}", pods=len(mine) + rng.choice((0, 0, 1, 2)))
        drawn += mine
    group(cluster, rng, drawn, replicas=(2, 4))
    return cluster


def memory_in_tiny_pods(rng: random.Random) -> ZooCluster:
    """Short of memory, which many tiny pods use; CPU hardly matters."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}", pods=250) for i in range(6)]
    hot = set(rng.sample(names, rng.randint(1, 2)))
    drawn: list[Drawn] = []
    for name in names:
        left = (rng.uniform(82, 88) if name in hot else rng.uniform(50, 70)) / 100 * 32 * GIB
        while left > 0:
            size = min(left, rng.uniform(0.1, 0.5) * GIB)
            drawn.append((name, Use(rng.randint(5, 60), int(size))))
            left -= size
    group(cluster, rng, drawn, replicas=(3, 8), requests=Use(5, GIB // 64))
    return cluster


def wide_sizes(rng: random.Random) -> ZooCluster:
    """Nodes of 4, 16 and 192 cores, in a mixture that changes with the seed."""
    cluster = ZooCluster(dict(CEILINGS))
    sizes = [4, 4, 4, 16, 16, 192]
    sizes += [rng.choice((4, 16)) for _ in range(rng.randint(0, 4))]
    hot = set(rng.sample(range(len(sizes)), 3))
    drawn: list[Drawn] = []
    for i, cpu in enumerate(sizes):
        name = cluster.node(f"n{i}", cpu=cpu, gib=cpu * 4)
        top = rng.uniform(81, 83) if cpu == 192 else rng.uniform(83, 97)
        target = top if i in hot else rng.uniform(45, 72)
        drawn += fill(rng, name, cpu * 1000, target, (150, max(600, cpu * 30)))
    group(cluster, rng, drawn, replicas=(2, 4))
    return cluster


def three_way_exchange(rng: random.Random) -> ZooCluster:
    """Three full nodes, one of them above its ceiling: pods go around in a circle."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}", cpu=10) for i in range(4)]
    # Each node passes its first pod on to the next one; no pair of nodes can do without a third.
    hot, *others = rng.randint(-60, 60), rng.randint(-60, 0), rng.randint(-60, 0)
    sizes = (
        (1300, 3500, 3500 + hot),
        (1100, 3300, 3300 + others[0]),
        (900, 3450, 3450 + others[1]),
    )
    for node, cpus in zip(names, sizes, strict=False):
        for number, cpu in enumerate(cpus):
            uses = [Use(cpu, MEM), Use(1, MEM)]
            cluster.workload(f"{node}-{number}", [node, names[3]], uses)
    cluster.workload("rest", [names[3], names[3]], [Use(3880, MEM), Use(3880, MEM)])
    return cluster


def repelling_chain(rng: random.Random) -> ZooCluster:
    """Workloads that repel the next one in a chain, so that one pod has to go for another."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(rng.randint(5, 7))]
    room = {name: (7400 if i < 2 else rng.randint(4300, 5600)) for i, name in enumerate(names)}
    count = rng.randint(12, 18)
    held: dict[str, set[int]] = {name: set() for name in names}
    for w in range(count):
        cpu = rng.randint(350, 1100)
        # Symmetric: neither the one that repels nor the one that is repelled may be there.
        clash = {w, w - 1, w + 1}
        free = [n for n in rng.sample(names, len(names)) if room[n] >= cpu and not held[n] & clash]
        on = free[: rng.randint(2, 3)]
        if len(on) < 2:
            continue
        for name in on:
            room[name] -= cpu
            held[name].add(w)
        spec = _repelling(f"app-{w:02}", f"app-{(w + 1):02}")
        cluster.workload(f"app-{w:02}", on, [Use(cpu, MEM)] * len(on), spec=spec)
    for name in names[:2]:
        short = 6900 - cluster.used(name).cpu_milli
        if short > 0:
            cluster.overhead[name] = Use(min(short, 2500), 0)
    return cluster


def two_zones(rng: random.Random) -> ZooCluster:
    """Two zones of different size, and most pods with a volume in one of them."""
    cluster = ZooCluster(dict(rng.choice((CEILINGS, DRAIN))))
    drain = "NodeMaintenance" in cluster.settings["enabledStrategies"]
    zone_of: dict[str, str] = {}
    for zone, count in (("a", 3), ("b", rng.randint(4, 6))):
        for i in range(count):
            labels = {MAINTENANCE: "true"} if drain and (zone, i) == ("b", 0) else {}
            zone_of[cluster.node(f"{zone}{i}", zone=zone, labels=labels)] = zone
    drawn: list[Drawn] = []
    for name in zone_of:
        hot = name in ("a0", "b0") and not drain
        target = rng.uniform(84, 93) if hot else rng.uniform(48, 66)
        drawn += fill(rng, name, 8000, target, (250, 1200))
    for name, node in group(cluster, rng, drawn, replicas=(2, 4)).items():
        if rng.random() < 0.7:
            cluster.zonal_claim(name, zone_of[node])
    return cluster


def quorums(rng: random.Random) -> ZooCluster:
    """StatefulSets of three and five with a PodDisruptionBudget each, beside other pods."""
    cluster = ZooCluster(dict(rng.choice((CEILINGS, DRAIN))))
    drain = "NodeMaintenance" in cluster.settings["enabledStrategies"]
    names = [
        cluster.node(f"n{i}", labels={MAINTENANCE: "true"} if drain and not i else {})
        for i in range(8)
    ]
    room = dict.fromkeys(names, 3400)
    for w in range(12):
        cpu, replicas = rng.randint(300, 900), rng.choice((3, 3, 5))
        free = [name for name in rng.sample(names, len(names)) if room[name] >= cpu]
        if len(free) < replicas:
            continue
        for name in free[:replicas]:
            room[name] -= cpu
        app = f"set-{w:02}"
        uses = [Use(cpu, MEM)] * replicas
        cluster.workload(app, free[:replicas], uses, stateful=True)
        cluster.pdb(f"{app}-pdb", app, allowed=1, max_unavailable=1)
    drawn: list[Drawn] = []
    for i, name in enumerate(names):
        held = cluster.used(name).cpu_milli / 80.0
        hot = i < 2 and not drain
        target = (rng.uniform(85, 93) if hot else rng.uniform(48, 64)) - held
        drawn += fill(rng, name, 8000, max(3.0, target), (200, 900))
    group(cluster, rng, drawn, replicas=(2, 4))
    return cluster


def _repelling(*apps: str) -> dict[str, Any]:
    terms = [{"labelSelector": {"matchLabels": {"app": a}}, "topologyKey": HOST} for a in apps]
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return {"affinity": {"podAntiAffinity": anti}}


ODD_FAMILIES: Final = (
    giant_node,
    no_requests,
    preferred_taints,
    few_places,
    memory_in_tiny_pods,
    wide_sizes,
    three_way_exchange,
    repelling_chain,
    two_zones,
    quorums,
)
