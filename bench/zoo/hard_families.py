# SPDX-License-Identifier: Apache-2.0
"""Families that are likely to break a planner, each drawn from a seed.

Little room where much has to move, resources that pull in opposite directions, requests that
say nothing about usage, and all rules of the scheduler mixed in a small cluster.
"""

from __future__ import annotations

import random
from typing import Any, Final

from bench.zoo.cluster import GIB, Use, ZooCluster
from bench.zoo.drawing import (
    CEILINGS,
    DRAIN,
    MEM,
    SPREAD,
    Drawn,
    draw_both,
    fill,
    group,
)
from bench.zoo.model import HOST, MAINTENANCE, ZONE

DISABLED: Final = {"scheduler.alpha.kubernetes.io/rescheduling": "disabled"}


def drains_with_little_room(rng: random.Random) -> ZooCluster:
    """Three nodes under maintenance at once; the others have just enough room."""
    cluster = ZooCluster(dict(DRAIN))
    names = [
        cluster.node(f"n{i}", labels={MAINTENANCE: "true"} if i < 3 else {}) for i in range(12)
    ]
    drawn: list[Drawn] = []
    for i, name in enumerate(names):
        percent = rng.uniform(40, 50) if i < 3 else rng.uniform(54, 62)
        drawn += fill(rng, name, 8000, percent, (200, 1100))
    group(cluster, rng, drawn, replicas=(2, 5))
    return cluster


def opposite_resources(rng: random.Random) -> ZooCluster:
    """Pods that use much CPU use little memory, and nodes are short of one or the other."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(9)]
    wanted = {0: (91, 35), 1: (88, 45), 2: (35, 91), 3: (45, 87)}
    drawn: list[Drawn] = []
    for i, name in enumerate(names):
        cpu, memory = wanted.get(i, (rng.uniform(50, 68), rng.uniform(50, 68)))
        left, room = cpu / 100 * 8000, memory / 100 * 32 * GIB
        while left > 20 or room > GIB / 16:
            share = rng.random()
            one, two = min(left, 80 + 1000 * share), min(room, (0.2 + 4 * (1 - share)) * GIB)
            drawn.append((name, Use(int(one), int(two))))
            left, room = left - one, room - two
    group(cluster, rng, drawn, replicas=(2, 4))
    return cluster


def autoscaled_pools(rng: random.Random) -> ZooCluster:
    """Two pools by label, each uneven in itself and level with the other."""
    cluster = ZooCluster({**SPREAD, "poolLabel": "pool", "fillLowNodes": "always"})
    for pool, count in (("a", 5), ("b", 4)):
        names = [cluster.node(f"{pool}{i}", labels={"pool": pool}) for i in range(count)]
        drawn: list[Drawn] = []
        for i, name in enumerate(names):
            percent = rng.uniform(62, 72) if i == 0 else rng.uniform(28, 50)
            drawn += fill(rng, name, 8000, percent, (200, 900))
        spec = {"nodeSelector": {"pool": pool}}
        group(cluster, rng, drawn, replicas=(2, 4), prefix=f"{pool}-", spec=spec)
    return cluster


def anti_affinity_everywhere(rng: random.Random) -> ZooCluster:
    """Every workload repels itself, with a replica on more than half of the nodes."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(8)]
    room = {name: (7300 if i < 2 else 4700) for i, name in enumerate(names)}
    for w in range(40):
        cpu, app = rng.randint(300, 700), f"app-{w:02}"
        free = [name for name in rng.sample(names, len(names)) if room[name] >= cpu]
        on = free[: rng.randint(3, 5)]
        if len(on) < 2:
            continue
        for name in on:
            room[name] -= cpu
        cluster.workload(app, on, [Use(cpu, MEM)] * len(on), spec=_repelling(app))
    return cluster


def huge_requests(rng: random.Random) -> ZooCluster:
    """Pods request many times what they use: where load has room, requests hardly have."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(8)]
    for i, name in enumerate(names):
        asked = 7400 if i < 2 else rng.randint(5200, 6600)
        _reserve(cluster, rng, name, asked)
    busy: dict[str, Any] = {"labels": {"app": "busy", **DISABLED}}
    uses = [Use(5900 if i < 2 else rng.randint(2800, 3900), MEM) for i in range(len(names))]
    cluster.workload("busy", names, uses, requests=Use(10, MEM // 16), **busy)
    return cluster


def usage_above_requests(rng: random.Random) -> ZooCluster:
    """Pods request next to nothing and use a lot."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(9)]
    drawn: list[Drawn] = []
    for i, name in enumerate(names):
        cpu = rng.uniform(88, 99) if i < 3 else rng.uniform(50, 70)
        drawn += draw_both(rng, name, cpu, rng.uniform(45, 70))
    group(cluster, rng, drawn, replicas=(2, 5), requests=Use(1, 1 << 20))
    return cluster


def priorities_in_the_way(rng: random.Random) -> ZooCluster:
    """The pods of low priority are small or fit nowhere; important ones would be enough at once."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(7)]
    levels = (0, 100, 1000, 5000)
    for i, name in enumerate(names):
        left = (7200 if i < 2 else rng.randint(4300, 5600)) - 400
        number = 0
        while left > 0:
            level = rng.randrange(len(levels))
            cpu = min(left, rng.randint(120, 260) * (level + 1))
            spec: dict[str, Any] = {"priority": levels[level]}
            if level == 0 and rng.random() < 0.5:
                spec["nodeSelector"] = {HOST: name}
            on, uses = [name, names[(i + 1) % 7]], [Use(cpu, MEM), Use(1, 1 << 20)]
            if "nodeSelector" in spec:
                on = [name, name]
            cluster.workload(f"{name}-{number:02}", on, uses, spec=spec)
            left, number = left - cpu, number + 1
    return cluster


def forty_nodes(rng: random.Random) -> ZooCluster:
    """Forty nodes in three zones, six of them hot."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i:02}", zone="abc"[i % 3]) for i in range(40)]
    hot = set(rng.sample(names, 6))
    drawn: list[Drawn] = []
    for name in names:
        percent = rng.uniform(84, 95) if name in hot else rng.uniform(55, 74)
        drawn += fill(rng, name, 8000, percent, (300, 1500))
    group(cluster, rng, drawn, replicas=(2, 6))
    return cluster


def mixture(rng: random.Random) -> ZooCluster:
    """A few nodes and pods, and all rules of the scheduler in odd combinations."""
    goal = rng.choice(("hot", "hot", "drain"))
    cluster = ZooCluster(dict(CEILINGS if goal == "hot" else DRAIN))
    count = rng.randint(4, 6)
    names = [
        cluster.node(
            f"n{i}",
            zone="ab"[i % 2],
            labels={MAINTENANCE: "true"} if goal == "drain" and i == 0 else {"disk": "dh"[i % 2]},
            taints=[{"key": "team", "effect": "NoSchedule"}] if rng.random() < 0.15 else (),
        )
        for i in range(count)
    ]
    room = {name: rng.randint(3600, 5900) for name in names}
    if goal == "hot":
        room[names[0]] = rng.randint(6700, 7600)
    for w in range(24):
        _mixed_workload(cluster, rng, f"app-{w:02}", names, room)
    short = 6800 - cluster.used(names[0]).cpu_milli
    if goal == "hot" and short > 0:
        cluster.overhead[names[0]] = Use(short, 0)
    return cluster


HARD_FAMILIES: Final = (
    drains_with_little_room,
    opposite_resources,
    autoscaled_pools,
    anti_affinity_everywhere,
    huge_requests,
    usage_above_requests,
    priorities_in_the_way,
    forty_nodes,
    mixture,
)


def _mixed_workload(
    cluster: ZooCluster,
    rng: random.Random,
    app: str,
    names: list[str],
    room: dict[str, int],
) -> None:
    cpu = rng.randint(250, 1300)
    free = [name for name in names if room[name] >= cpu]
    if not free:
        return
    spread_out = rng.sample(free, len(free))
    on = [max(spread_out, key=lambda name: room[name]), *spread_out][: rng.randint(2, 3)]
    on = list(dict.fromkeys(on))
    if len(on) < 2:
        on.append(on[0])
    for name in on:
        room[name] -= cpu
    uses = [Use(int(cpu * rng.uniform(0.8, 1.0)), int(MEM * rng.uniform(0.5, 6))) for _ in on]
    asked = Use(rng.choice((50, cpu // 2, cpu)), MEM // 4)
    stateful = rng.random() < 0.15
    cluster.workload(app, on, uses, requests=asked, stateful=stateful, spec=_rule(rng, app, on))
    if rng.random() < 0.15:
        allowed = rng.choice((0, 1))
        cluster.pdb(f"{app}-pdb", app, allowed=allowed, max_unavailable=allowed)


def _rule(rng: random.Random, app: str, on: list[str]) -> dict[str, Any]:
    kind = rng.choice(("", "", "", "repels", "hard", "soft", "disk", "tolerates", "priority"))
    if kind == "repels":
        return _repelling(app) if len(set(on)) == len(on) else {}
    if kind in ("hard", "soft"):
        rule = {
            "maxSkew": len(on) if kind == "hard" else 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule" if kind == "hard" else "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": app}},
        }
        return {"topologySpreadConstraints": [rule]}
    if kind == "tolerates":
        return {"tolerations": [{"key": "team", "operator": "Exists"}]}
    return {"priority": rng.choice((10, 100))} if kind == "priority" else {}


def _repelling(app: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOST}
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAntiAffinity": anti}}


def _reserve(cluster: ZooCluster, rng: random.Random, name: str, asked: int) -> None:
    """Fill a node with pods that request so much and use a fraction of it."""
    number = 0
    while asked >= 300:
        size = min(asked // 2, rng.randint(150, 700))
        uses = [Use(int(size * rng.uniform(0.08, 0.3)), MEM) for _ in range(2)]
        cluster.workload(f"{name}-{number:02}", [name] * 2, uses, requests=Use(size, MEM // 4))
        asked, number = asked - 2 * size, number + 1
