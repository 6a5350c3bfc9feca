# SPDX-License-Identifier: Apache-2.0
"""Families in which no single pod gains much, or hardly any may move, each drawn from a seed.

Large nodes and tiny pods in pools that have to become level, exchanges in which one node gives
several pods, pools of different machines, StatefulSets with zonal volumes and budgets, and nodes
full of pods that no one may move, and one pod of a workload in each zone.
"""

from __future__ import annotations

import random
from typing import Any, Final

from bench.zoo.cluster import GIB, Use, ZooCluster
from bench.zoo.drawing import CEILINGS, DEFAULT, DRAIN, MEM, SPREAD, Drawn, fill, group
from bench.zoo.model import HOST, MAINTENANCE, ZONE


def level_large_nodes(rng: random.Random) -> ZooCluster:
    """Nodes of 32 to 192 cores that are too far apart, and most pods are less than a percent."""
    cluster = ZooCluster(dict(rng.choice((SPREAD, DEFAULT))))
    cpu = rng.choice((32, 64, 192))
    drawn: list[Drawn] = []
    for i in range(rng.randint(3, 8)):
        name = cluster.node(f"n{i}", cpu=cpu, gib=4 * cpu, pods=250)
        high, low = rng.uniform(66, 78), rng.uniform(44, 60)
        levels = (low if i else high, rng.uniform(30, 65))
        drawn += _shares(rng, name, (cpu, 4 * cpu), levels, rng.randint(80, 200))
    group(cluster, rng, drawn, replicas=(3, 10))
    return cluster


def level_tiny_pods(rng: random.Random) -> ZooCluster:
    """Up to 250 tiny pods a node, and one of the nodes too far above the others."""
    cluster = ZooCluster(dict(SPREAD))
    drawn: list[Drawn] = []
    for i in range(rng.randint(3, 6)):
        name = cluster.node(f"n{i}", cpu=16, gib=64, pods=260)
        levels = (rng.uniform(55, 72) if i else rng.uniform(82, 88), rng.uniform(40, 60))
        drawn += _shares(rng, name, (16, 64), levels, rng.randint(150, 250))
    group(cluster, rng, drawn, replicas=(5, 12), requests=Use(5, GIB // 256))
    return cluster


def level_and_hot(rng: random.Random) -> ZooCluster:
    """Nodes of 16, 64 and 192 cores with many pods: one is hot, and both resources uneven."""
    cluster = ZooCluster(dict(DEFAULT))
    drawn: list[Drawn] = []
    for i in range(rng.randint(3, 6)):
        cpu = rng.choice((16, 64, 192))
        name = cluster.node(f"n{i}", cpu=cpu, gib=4 * cpu, pods=250)
        levels = (rng.uniform(40, 70) if i else rng.uniform(82, 88), rng.uniform(30, 70))
        drawn += _shares(rng, name, (cpu, 4 * cpu), levels, rng.randint(60, 200))
    group(cluster, rng, drawn, replicas=(3, 10))
    return cluster


def full_circle(rng: random.Random) -> ZooCluster:
    """All nodes are full, one of them too full: several pods of a node take part in a circle."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}", cpu=10) for i in range(rng.randint(4, 6))]
    for i, name in enumerate(names):
        left, number = rng.randint(7600, 7990) if i else rng.randint(8080, 8500), 0
        while left > 0:
            cpu = min(left, rng.choice((700, 900, 1100, 1300, 1500, 2100, 3300)))
            on = [name, names[(i + 1) % len(names)]]
            cluster.workload(f"{name}-{number}", on, [Use(cpu, MEM), Use(1, 1 << 20)])
            left, number = left - cpu, number + 1
    return cluster


def mixed_pools(rng: random.Random) -> ZooCluster:
    """Three kinds of machines, two behind taints, each with a node short of CPU or memory."""
    cluster = ZooCluster(dict(CEILINGS))
    kinds = (("plain", rng.randint(3, 6), 8, 32), ("large", rng.randint(2, 4), 8, 128))
    for pool, count, cpu, gib in (*kinds, ("gpu", rng.randint(2, 3), 32, 128)):
        tainted = pool != "plain"
        taint = {"key": "pool", "value": pool, "effect": "NoSchedule"}
        drawn: list[Drawn] = []
        for i in range(count):
            labels, taints = {"pool": pool}, [taint] if tainted else ()
            name = cluster.node(f"{pool}{i}", cpu=cpu, gib=gib, labels=labels, taints=taints)
            levels = [rng.uniform(45, 74), rng.uniform(40, 72)]
            if not i:
                levels[rng.randrange(2)] = rng.uniform(84, 95)
            drawn += _shares(rng, name, (cpu, gib), (levels[0], levels[1]), rng.randint(6, 16))
        rng.shuffle(drawn)
        half = len(drawn) // 2
        spec: dict[str, Any] = {"nodeSelector": {"pool": pool}}
        if tainted:
            spec["tolerations"] = [{"key": "pool", "value": pool, "effect": "NoSchedule"}]
        group(cluster, rng, drawn[:half], replicas=(2, 4), prefix=f"{pool}-", spec=spec)
        anywhere = {"tolerations": [{"key": "pool", "operator": "Exists"}]}
        group(cluster, rng, drawn[half:], replicas=(2, 4), prefix=f"{pool}-any-", spec=anywhere)
    return cluster


def volumes_and_quorums(rng: random.Random) -> ZooCluster:
    """StatefulSets over three zones, with zonal volumes, budgets, spread or anti-affinity."""
    cluster = ZooCluster(dict(rng.choice((CEILINGS, DRAIN))))
    drain = "NodeMaintenance" in cluster.settings["enabledStrategies"]
    zones: dict[str, list[str]] = {}
    count = rng.randint(2, 4)
    for zone in "abc":
        first = {MAINTENANCE: "true"} if drain and zone == "a" else {}
        labels = [first, *[{}] * (count - 1)]
        made = [cluster.node(f"{zone}{i}", zone=zone, labels=labels[i]) for i in range(count)]
        zones[zone] = made
    room = {name: rng.randint(4200, 5600) for made in zones.values() for name in made}
    room |= {} if drain else {"a0": 7400, "b0": 7400}
    for w in range(40):
        cpu, app, kind = rng.randint(300, 1000), f"set-{w:02}", rng.randrange(4)
        free = [[name for name in made if room[name] >= cpu] for made in zones.values()]
        if not all(free):
            continue
        on = [max(names, key=lambda n: (room[n] > 5600, rng.random())) for names in free]
        for name in on:
            room[name] -= cpu
        spec = {1: _evenly(app), 2: _apart(app)}.get(kind, {})
        pods = cluster.workload(app, on, [Use(cpu, MEM)] * 3, stateful=kind < 3, spec=spec)
        if kind < 2:
            for pod, name in zip(pods, on, strict=True):
                cluster.zonal_claim(pod, name[0])
        if rng.random() < 0.6:
            cluster.pdb(f"{app}-pdb", app, allowed=1, max_unavailable=1)
    return cluster


def few_may_move(rng: random.Random) -> ZooCluster:
    """Most of the load belongs to DaemonSets, to small workloads, and to exhausted budgets."""
    cluster = ZooCluster({**CEILINGS, "minReplicas": 3})
    names = [cluster.node(f"n{i}", cpu=rng.choice((4, 8, 16))) for i in range(rng.randint(5, 12))]
    hot = set(rng.sample(names, 2))
    sizes = {n["metadata"]["name"]: int(n["status"]["allocatable"]["cpu"]) for n in
             cluster.objects["nodes"]}  # fmt: skip
    for number in range(3):
        uses = {name: Use(rng.randint(100, 400), GIB // 4) for name in names}
        cluster.daemon_set(f"agent-{number}", uses)
    some: list[Drawn] = []
    for name in names:
        percent = rng.uniform(84, 94) if name in hot else rng.uniform(50, 70)
        left = percent - cluster.used(name).cpu_milli / sizes[name] / 10
        some += fill(rng, name, 1000 * sizes[name], max(5.0, left), (100, 80 * sizes[name]))
    rng.shuffle(some)
    group(cluster, rng, some[: len(some) // 3], replicas=(2, 2), prefix="small-")
    group(cluster, rng, some[len(some) // 3 :], replicas=(3, 5))
    for owner in list(cluster.objects["replicasets"]):
        if rng.random() < 0.2:
            app = owner["metadata"]["name"]
            cluster.pdb(f"{app}-pdb", app, allowed=0, max_unavailable=0)
    return cluster


def one_per_zone(rng: random.Random) -> ZooCluster:
    """Zones of one to five nodes, with workloads of which a zone may have one pod only."""
    cluster = ZooCluster(dict(rng.choice((CEILINGS, DRAIN))))
    drain = "NodeMaintenance" in cluster.settings["enabledStrategies"]
    zones: dict[str, list[str]] = {}
    for zone in "abc":
        count = rng.randint(2, 5)
        labels = [{MAINTENANCE: "true"} if drain and zone == "a" else {}, *[{}] * (count - 1)]
        zones[zone] = [
            cluster.node(f"{zone}{i}", zone=zone, labels=labels[i]) for i in range(count)
        ]
    room = {name: rng.randint(3600, 5400) for made in zones.values() for name in made}
    room |= {} if drain else {"a0": 7400, "b0": 7200}
    for w in range(60):
        cpu, app = rng.randint(250, 900), f"app-{w:02}"
        free = [[name for name in made if room[name] >= cpu] for made in zones.values()]
        on = [max(names, key=lambda n: (room[n] > 5400, rng.random())) for names in free if names]
        if len(on) < 2:
            continue
        for name in on:
            room[name] -= cpu
        spec = _apart(app, ZONE) if rng.random() < 0.7 else {}
        cluster.workload(app, on, [Use(cpu, MEM)] * len(on), stateful=w % 7 == 0, spec=spec)
    return cluster


FINE_FAMILIES: Final = (
    level_large_nodes,
    level_tiny_pods,
    level_and_hot,
    full_circle,
    mixed_pools,
    volumes_and_quorums,
    few_may_move,
    one_per_zone,
)


def _shares(
    rng: random.Random, node: str, size: tuple[int, int], levels: tuple[float, float], count: int
) -> list[Drawn]:
    """Return so many pods that use these percentages of a node's CPU and memory together."""
    totals = (size[0] * 10 * levels[0], size[1] * GIB / 100 * levels[1])
    weights = [[rng.random() ** 1.5 + 0.05 for _ in range(count)] for _ in totals]
    cpu, memory = (
        [max(1, int(each / sum(mine) * total)) for each in mine]
        for mine, total in zip(weights, totals, strict=True)
    )
    return [(node, Use(one, two)) for one, two in zip(cpu, memory, strict=True)]


def _evenly(app: str) -> dict[str, Any]:
    rule = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    return {"topologySpreadConstraints": [rule]}


def _apart(app: str, key: str = HOST) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAntiAffinity": anti}}
