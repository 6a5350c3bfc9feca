# SPDX-License-Identifier: Apache-2.0
"""Families of ordinary clusters, each drawn from a seed.

A family is a function of a random generator. Sizes are such that the judge proves its answer
within a minute in most cases. Hot nodes are clearly hot, so that margins do not matter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from bench.zoo.cluster import GIB, Use, ZooCluster
from bench.zoo.drawing import (
    CEILINGS,
    DEFAULT,
    DRAIN,
    MEM,
    SPREAD,
    Drawn,
    draw_both,
    fill,
    group,
    spread_over,
)
from bench.zoo.fine_families import FINE_FAMILIES
from bench.zoo.further_families import FURTHER_FAMILIES
from bench.zoo.hard_families import HARD_FAMILIES
from bench.zoo.model import HOST, MAINTENANCE, ZONE
from bench.zoo.odd_families import ODD_FAMILIES
from bench.zoo.rule_families import RULE_FAMILIES

Family = Callable[[random.Random], ZooCluster]


def big_nodes(rng: random.Random) -> ZooCluster:
    """One of eight 64-core nodes is hot, and no pod is as large as one percent of it."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}", cpu=64, gib=256, pods=250) for i in range(8)]
    drawn = []
    for name in names:
        target = rng.uniform(86, 96) if name == names[0] else rng.uniform(45, 62)
        drawn += fill(rng, name, 64_000, target, (300, 610))
    group(cluster, rng, drawn, replicas=(3, 8))
    return cluster


def small_zone(rng: random.Random) -> ZooCluster:
    """A zone of two nodes is hot; every workload has one replica in each of three zones."""
    cluster = ZooCluster(dict(CEILINGS))
    zones: dict[str, list[str]] = {"a": [], "b": [], "c": []}
    for zone, count in (("a", 2), ("b", 4), ("c", 4)):
        for i in range(count):
            zones[zone].append(cluster.node(f"{zone}{i}", zone=zone))
    for w in range(16):
        on = [zones["a"][w % 2], zones["b"][w % 4], zones["c"][w % 4]]
        cpu = rng.randint(760, 920)
        cluster.workload(f"app-{w:02}", on, [Use(cpu, MEM)] * 3)
    return cluster


def replicas_everywhere(rng: random.Random) -> ZooCluster:
    """As many replicas as nodes, one of which is smaller than the others."""
    cluster = ZooCluster(dict(CEILINGS))
    count = rng.randint(5, 8)
    names = [cluster.node(f"n{i}", cpu=5 if i == 0 else 8) for i in range(count)]
    for w in range(8):
        cpu = rng.randint(480, 640)
        cluster.workload(f"app-{w}", names, [Use(cpu, MEM)] * count)
    return cluster


def memory_hot(rng: random.Random) -> ZooCluster:
    """Ten nodes, some of them short of memory, CPU at ease."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(10)]
    hot = set(rng.sample(names, rng.randint(1, 3)))
    drawn: list[Drawn] = []
    for name in names:
        target = rng.uniform(84, 95) if name in hot else rng.uniform(40, 68)
        left = target / 100 * 32 * GIB
        while left > 0:
            size = min(left, rng.choice((0.5, 1, 1.5, 2, 3, 4)) * GIB * rng.uniform(0.8, 1.2))
            drawn.append((name, Use(rng.randint(40, 400), int(size))))
            left -= size
    group(cluster, rng, drawn, replicas=(2, 5))
    return cluster


def mixed_sizes(rng: random.Random) -> ZooCluster:
    """Nodes of 4, 16 and 64 cores."""
    cluster = ZooCluster(dict(CEILINGS))
    drawn: list[Drawn] = []
    kinds = [(4, 16), (4, 16), (4, 16), (16, 64), (16, 64), (64, 256)]
    hot = set(rng.sample(range(5), 2))
    for i, (cpu, gib) in enumerate(kinds):
        name = cluster.node(f"n{i}", cpu=cpu, gib=gib)
        target = rng.uniform(84, 97) if i in hot else rng.uniform(45, 65)
        drawn += fill(rng, name, cpu * 1000, target, (150, max(500, cpu * 70)))
    group(cluster, rng, drawn, replicas=(2, 4))
    return cluster


def exchange(rng: random.Random) -> ZooCluster:
    """Two full nodes whose only way out is to exchange pods; a third one takes nothing."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}", cpu=10) for i in range(3)]
    wiggle = rng.randint(-60, 0)
    here, there = (1500, 4000 + wiggle, 3000), (1000, 3400, 3000)
    for node, sizes in zip(names[:2], (here, there), strict=True):
        for number, cpu in enumerate(sizes):
            on = [node, names[2]]
            cluster.workload(f"{node}-{number}", on, [Use(cpu, MEM), Use(1, MEM)])
    cluster.workload("rest", [names[2], names[2]], [Use(3890, MEM), Use(3890, MEM)])
    return cluster


def anti_affine_sibling(rng: random.Random) -> ZooCluster:
    """The only node with room holds a replica that repels the pod that has to go there."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(4)]
    anti = {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": HOST}
                ]
            }
        }
    }
    big = rng.randint(2300, 2600)
    small = rng.randint(250, 400)
    cluster.workload("db", [names[0], names[1]], [Use(big, MEM), Use(small, MEM)], spec=anti)
    fixed: dict[str, Any] = {
        "labels": {"app": "fixed", "scheduler.alpha.kubernetes.io/rescheduling": "disabled"}
    }
    levels = {0: 4700, 1: rng.randint(2300, 2700), 2: 5600, 3: 5700}
    cluster.workload("fixed", names, [Use(levels[i], MEM) for i in range(4)], **fixed)
    return cluster


def both_spread(rng: random.Random) -> ZooCluster:
    """Both resources are spread too far, on different nodes."""
    return spread_over(rng, dict(SPREAD), nodes=10, cpu=(25, 75), memory=(25, 75))


def cpu_spread(rng: random.Random) -> ZooCluster:
    """CPU is spread too far, memory is level."""
    return spread_over(rng, dict(SPREAD), nodes=10, cpu=(25, 72), memory=(42, 52))


def default_pair(rng: random.Random) -> ZooCluster:
    """The default strategies together: some nodes above the ceiling, and a wide spread."""
    return spread_over(rng, dict(DEFAULT), nodes=8, cpu=(35, 92), memory=(35, 50))


def tight(rng: random.Random) -> ZooCluster:
    """Two or three hot nodes, and hardly any room elsewhere."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(10)]
    hot = set(rng.sample(names, rng.randint(2, 3)))
    drawn: list[Drawn] = []
    for name in names:
        target = rng.uniform(82, 89) if name in hot else rng.uniform(66, 76)
        drawn += fill(rng, name, 8000, target, (150, 1100))
    group(cluster, rng, drawn, replicas=(2, 5))
    return cluster


def tainted_pools(rng: random.Random) -> ZooCluster:
    """Two pools behind taints and labels, each with a hot node of its own."""
    cluster = ZooCluster(dict(CEILINGS))
    for pool, count in (("web", 5), ("batch", 4)):
        taint = {"key": "pool", "value": pool, "effect": "NoSchedule"}
        names = [
            cluster.node(f"{pool}{i}", labels={"pool": pool}, taints=[taint]) for i in range(count)
        ]
        spec = {
            "nodeSelector": {"pool": pool},
            "tolerations": [{"key": "pool", "value": pool, "effect": "NoSchedule"}],
        }
        drawn: list[Drawn] = []
        for i, name in enumerate(names):
            target = rng.uniform(86, 95) if i == 0 else rng.uniform(45, 66)
            drawn += fill(rng, name, 8000, target, (150, 900))
        group(cluster, rng, drawn, replicas=(2, 4), prefix=f"{pool}-", spec=spec)
    return cluster


def zonal_volumes(rng: random.Random) -> ZooCluster:
    """Pods with volumes that only their own zone reaches, in three zones."""
    cluster = ZooCluster(dict(CEILINGS))
    zone_of: dict[str, str] = {}
    for zone in "abc":
        for i in range(3):
            zone_of[cluster.node(f"{zone}{i}", zone=zone)] = zone
    drawn: list[Drawn] = []
    hot = {"a0", "b0"}
    for name in zone_of:
        target = rng.uniform(86, 95) if name in hot else rng.uniform(45, 66)
        drawn += fill(rng, name, 8000, target, (250, 1100))
    for name, node in group(cluster, rng, drawn, replicas=(2, 3)).items():
        if rng.random() < 0.5:
            cluster.zonal_claim(name, zone_of[node])
    return cluster


def many_pdbs(rng: random.Random) -> ZooCluster:
    """Every workload has a PodDisruptionBudget; a third of them allow nothing just now."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(9)]
    drawn: list[Drawn] = []
    for i, name in enumerate(names):
        target = rng.uniform(86, 94) if i < 2 else rng.uniform(45, 66)
        drawn += fill(rng, name, 8000, target, (150, 900))
    group(cluster, rng, drawn, replicas=(3, 5))
    for owner in list(cluster.objects["replicasets"]):
        app = owner["metadata"]["name"]
        closed = rng.random() < 0.33
        allowed = 0 if closed else 1
        limits: dict[str, Any] = {"max_unavailable": 0} if closed else {"max_unavailable": 1}
        cluster.pdb(f"{app}-pdb", app, allowed=allowed, **limits)
    return cluster


def stateful_sets(rng: random.Random) -> ZooCluster:
    """StatefulSets of three on nine nodes: a host never gets more members than any has now."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(9)]
    room = {name: (7500 if i < 2 else 4500) for i, name in enumerate(names)}
    for w in range(60):
        cpu = rng.randint(300, 900)
        hot = [name for name in names[:2] if room[name] >= cpu]
        free = [name for name in names[2:] if room[name] >= cpu]
        if not hot or len(free) < 2:
            continue
        on = [rng.choice(hot), *rng.sample(free, 2)]
        for name in on:
            room[name] -= cpu
        cluster.workload(f"set-{w:02}", on, [Use(cpu, MEM)] * 3, stateful=True)
    return cluster


def constrained_spread(rng: random.Random) -> ZooCluster:
    """Hard and soft topology spread constraints mixed, in three zones."""
    cluster = ZooCluster(dict(CEILINGS))
    names = {z: [cluster.node(f"{z}{i}", zone=z) for i in range(3)] for z in "abc"}
    room = {name: 4600 for zone in names.values() for name in zone}
    room["a0"] = room["b1"] = 7400
    for w in range(60):
        cpu = rng.randint(250, 800)
        kind = w % 3
        on = [max(names[zone], key=lambda name: room[name]) for zone in "abc"]
        if any(room[name] < cpu for name in on[:2]):
            break
        if room[on[2]] < cpu:
            on[2] = on[0]
            kind = 2
        for name in on:
            room[name] -= cpu
        when = "DoNotSchedule" if kind == 0 else "ScheduleAnyway"
        key = ZONE if kind < 2 else HOST
        rule = {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": when,
            "labelSelector": {"matchLabels": {"app": f"app-{w:02}"}},
        }
        spec = {"topologySpreadConstraints": [rule]}
        cluster.workload(f"app-{w:02}", on, [Use(cpu, MEM)] * 3, spec=spec)
    return cluster


def both_hot(rng: random.Random) -> ZooCluster:
    """Nodes short of CPU, of memory, or of both."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(9)]
    wanted = {0: (90, 60), 1: (60, 90), 2: (88, 87)}
    drawn: list[Drawn] = []
    for i, name in enumerate(names):
        cpu, memory = wanted.get(i, (rng.uniform(45, 64), rng.uniform(45, 64)))
        drawn += draw_both(rng, name, cpu + rng.uniform(-2, 4), memory + rng.uniform(-2, 4))
    group(cluster, rng, drawn, replicas=(2, 4))
    return cluster


def giant_pod(rng: random.Random) -> ZooCluster:
    """One pod uses half of its node and fits nowhere else; small ones have to make up for it."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(7)]
    drawn: list[Drawn] = []
    for name in names[1:]:
        drawn += fill(rng, name, 8000, rng.uniform(48, 68), (150, 900))
    drawn += fill(rng, names[0], 8000, rng.uniform(36, 46), (150, 700))
    group(cluster, rng, drawn, replicas=(2, 4))
    cluster.workload("giant", [names[0], names[1]], [Use(4200, 2 * GIB), Use(100, MEM)])
    return cluster


def tiny_pods(rng: random.Random) -> ZooCluster:
    """Two hundred and fifty tiny pods a node, one node hot."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}", cpu=16, gib=64, pods=300) for i in range(5)]
    drawn: list[Drawn] = []
    for i, name in enumerate(names):
        target = rng.uniform(83, 88) if i == 0 else rng.uniform(45, 62)
        mean = target / 100 * 16_000 / 250
        drawn += [
            (name, Use(max(5, int(rng.gauss(mean, mean / 3))), GIB // 16)) for _ in range(250)
        ]
    group(cluster, rng, drawn, replicas=(5, 20), requests=Use(20, GIB // 32))
    return cluster


def requests_only(rng: random.Random) -> ZooCluster:
    """No metrics: load is what pods request."""
    cluster = ZooCluster({**CEILINGS, "usageSource": "requests"})
    names = [cluster.node(f"n{i}") for i in range(8)]
    room = {name: (7300 if i < 2 else 4900) for i, name in enumerate(names)}
    for w in range(60):
        cpu = rng.randint(200, 900)
        on = [name for name in rng.sample(names, 4) if room[name] >= cpu][:3]
        if len(on) < 2:
            continue
        for name in on:
            room[name] -= cpu
        asked = Use(cpu, MEM)
        cluster.workload(f"app-{w:02}", on, [asked] * len(on), requests=asked)
    return cluster


def full_requests(rng: random.Random) -> ZooCluster:
    """Requests leave little room where load would: fit decides, not load."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(8)]
    for w in range(11):
        for half in range(2):
            on = [names[(w * 3 + half * 4 + i) % 8] for i in range(4)]
            cpus = [rng.randint(450, 700) if n in names[:2] else rng.randint(250, 520) for n in on]
            asked = Use(rng.choice((500, 600, 650)), MEM)
            cluster.workload(f"app-{w:02}-{half}", on, [Use(c, MEM) for c in cpus], requests=asked)
    drawn: list[Drawn] = []
    for name in names[:2]:
        drawn += fill(rng, name, 8000, rng.uniform(10, 16), (200, 500))
    group(cluster, rng, drawn, replicas=(2, 2), prefix="extra-", requests=Use(60, MEM))
    return cluster


def new_nodes(rng: random.Random) -> ZooCluster:
    """Empty nodes have joined a cluster that was level."""
    cluster = ZooCluster(dict(SPREAD))
    names = [cluster.node(f"n{i}") for i in range(7)]
    for i in range(rng.randint(1, 2)):
        cluster.node(f"new{i}")
    drawn: list[Drawn] = []
    for name in names:
        drawn += fill(rng, name, 8000, rng.uniform(50, 62), (200, 1100))
    group(cluster, rng, drawn, replicas=(2, 5))
    return cluster


def drained(rng: random.Random) -> ZooCluster:
    """Two nodes under maintenance in a cluster that is rather full."""
    cluster = ZooCluster(dict(DRAIN))
    names = [
        cluster.node(f"n{i}", labels={MAINTENANCE: "true"} if i < 2 else {}) for i in range(10)
    ]
    drawn: list[Drawn] = []
    for name in names:
        drawn += fill(rng, name, 8000, rng.uniform(50, 64), (200, 1300))
    group(cluster, rng, drawn, replicas=(2, 5))
    return cluster


def priorities(rng: random.Random) -> ZooCluster:
    """Pods of three priorities on hot nodes: the low ones go first."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(8)]
    drawn: list[Drawn] = []
    for i, name in enumerate(names):
        target = rng.uniform(86, 94) if i < 2 else rng.uniform(45, 62)
        drawn += fill(rng, name, 8000, target, (200, 900))
    rng.shuffle(drawn)
    third = len(drawn) // 3
    for number, priority in enumerate((0, 100, 1000)):
        part = drawn[number * third : (number + 1) * third if number < 2 else len(drawn)]
        spec = {"priority": priority}
        group(cluster, rng, part, replicas=(2, 4), prefix=f"p{priority}-", spec=spec)
    return cluster


FAMILIES: Final[Mapping[str, Family]] = {
    family.__name__.replace("_", "-"): family
    for family in (
        big_nodes,
        small_zone,
        replicas_everywhere,
        memory_hot,
        mixed_sizes,
        exchange,
        anti_affine_sibling,
        both_spread,
        cpu_spread,
        default_pair,
        tight,
        tainted_pools,
        zonal_volumes,
        many_pdbs,
        stateful_sets,
        constrained_spread,
        both_hot,
        giant_pod,
        tiny_pods,
        requests_only,
        full_requests,
        new_nodes,
        drained,
        priorities,
        *HARD_FAMILIES,
        *ODD_FAMILIES,
        *FURTHER_FAMILIES,
        *FINE_FAMILIES,
        *RULE_FAMILIES,
    )
}


def drawn_cluster(family: str, seed: int) -> ZooCluster:
    """Return one cluster of a family; the same one for the same seed."""
    return FAMILIES[family](random.Random(f"{family}/{seed}"))
