# SPDX-License-Identifier: Apache-2.0
"""Families in which something other than load decides, each drawn from a seed.

What a node has only so much of: host ports, devices, volumes that it can attach, room for init
containers and sidecars. Nodes that need each other's room, pods that may help only if they are
unimportant enough, and pods whose node has been ruled out for them since they started.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench.zoo.cluster import GIB, Json, Use, ZooCluster
from bench.zoo.drawing import CEILINGS, DRAIN, MEM, Drawn, draw_both, fill, group
from bench.zoo.model import HOST, MAINTENANCE, ZONE

REPAIRS: Final = {"enabledStrategies": ["Violations"]}
REPAIRS_AND_CEILINGS: Final = {"enabledStrategies": ["ResourceOptimization", "Violations"]}
GPU: Final = "nvidia.com/gpu"


def need_each_other(rng: random.Random) -> ZooCluster:
    """A node short of CPU and one short of memory; all others are full of both."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(rng.randint(4, 6))]
    high, low = (84, 92), (50, 62)
    drawn: list[Drawn] = []
    for i, name in enumerate(names):
        cpu, memory = {0: (high, low), 1: (low, high)}.get(i, ((70, 79), (70, 79)))
        drawn += draw_both(rng, name, rng.uniform(*cpu), rng.uniform(*memory))
    group(cluster, rng, drawn, replicas=(2, 4))
    return cluster


def host_ports(rng: random.Random) -> ZooCluster:
    """Most pods need a port of their host, and few hosts have it free."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(rng.randint(5, 8))]
    room = {name: (7300 if i < 2 else rng.randint(4200, 5600)) for i, name in enumerate(names)}
    taken: dict[str, set[int]] = {name: set() for name in names}
    for w in range(45):
        cpu, port = rng.randint(200, 900), rng.choice((0, 80, 80, 443, 8080, 9100))
        free = [n for n in rng.sample(names, len(names)) if room[n] >= cpu]
        on = [n for n in free if not port or port not in taken[n]][: rng.randint(2, 4)]
        if len(on) < 2:
            continue
        for name in on:
            room[name] -= cpu
            taken[name].add(port)
        container = _container(50, ports=(port,) if port else ())
        cluster.workload(f"app-{w:02}", on, _same(cpu, on), spec={"containers": [container]})
    _heat(cluster, rng, names[:2])
    return cluster


def attach_limits(rng: random.Random) -> ZooCluster:
    """Two zones of volumes, and nodes that can attach hardly any more of them."""
    cluster = ZooCluster(dict(rng.choice((CEILINGS, DRAIN))))
    drain = _drains(cluster)
    zone_of: dict[str, str] = {}
    for zone in "ab":
        for i in range(rng.randint(3, 4)):
            labels = {MAINTENANCE: "true"} if drain and (zone, i) == ("a", 0) else {}
            zone_of[cluster.node(f"{zone}{i}", zone=zone, labels=labels)] = zone
    drawn: list[Drawn] = []
    for name in zone_of:
        hot = name in ("a0", "b0") and not drain
        percent = rng.uniform(84, 93) if hot else rng.uniform(48, 66)
        drawn += fill(rng, name, 8000, percent, (250, 1100))
    attached = dict.fromkeys(zone_of, 0)
    for pod, node in group(cluster, rng, drawn, replicas=(2, 3)).items():
        if rng.random() < 0.6:
            cluster.zonal_claim(pod, zone_of[node])
            attached[node] += 1
    for name, count in attached.items():
        cluster.attaches(name, count + rng.choice((0, 0, 1, 2)))
    return cluster


def devices(rng: random.Random) -> ZooCluster:
    """Some nodes have devices, which most of their pods request."""
    cluster = ZooCluster(dict(rng.choice((CEILINGS, CEILINGS, DRAIN))))
    drain = _drains(cluster)
    left: dict[str, int] = {}
    for i in range(rng.randint(3, 5)):
        count = rng.choice((2, 4, 8))
        labels = {MAINTENANCE: "true"} if drain and not i else {}
        left[cluster.node(f"g{i}", extended={GPU: str(count)}, labels=labels)] = count
    names = [*left, *(cluster.node(f"n{i}") for i in range(rng.randint(2, 4)))]
    room = {name: rng.randint(4000, 5600) for name in names}
    room["g0"] = 7200 if not drain else room["g0"]
    for w in range(50):
        cpu, asked = rng.randint(250, 1100), rng.choice((0, 0, 1, 1, 2))
        may = list(left) if asked else names
        free = [n for n in rng.sample(may, len(may)) if room[n] >= cpu]
        on = [n for n in free if not asked or left[n] >= asked][: rng.randint(2, 3)]
        if len(on) < 2:
            continue
        for name in on:
            room[name] -= cpu
            if asked:
                left[name] -= asked
        container = _container(50, devices=asked)
        cluster.workload(f"app-{w:02}", on, _same(cpu, on), spec={"containers": [container]})
    if not drain:
        _heat(cluster, rng, ["g0"])
    return cluster


def init_containers(rng: random.Random) -> ZooCluster:
    """Init containers, sidecars and overhead: pods request more than their containers do."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(rng.randint(5, 8))]
    room = {name: (7900 if i < 2 else rng.randint(5200, 7200)) for i, name in enumerate(names)}
    for w in range(60):
        asked, more, kind = rng.randint(150, 700), rng.randint(100, 400), rng.randrange(4)
        spec: Json = {"containers": [_container(asked)]}
        if kind == 1:
            spec["initContainers"] = [{**_container(asked + more), "name": "first"}]
        if kind == 2:
            sidecar = {**_container(more), "name": "side", "restartPolicy": "Always"}
            spec["initContainers"] = [sidecar, {**_container(asked + 100), "name": "first"}]
        if kind == 3:
            spec["overhead"] = {"cpu": f"{more}m", "memory": "64Mi"}
        total = asked + (0, more, more + 100, more)[kind]
        on = [n for n in rng.sample(names, len(names)) if room[n] >= total][: rng.randint(2, 3)]
        if len(on) < 2:
            continue
        for name in on:
            room[name] -= total
        uses = [Use(asked if name in names[:2] else int(asked * 0.75), MEM) for name in on]
        cluster.workload(f"app-{w:02}", on, uses, spec=spec)
    _heat(cluster, rng, names[:2])
    return cluster


def node_affinity(rng: random.Random) -> ZooCluster:
    """Required node affinity with several expressions, over disks and generations of nodes."""
    cluster = ZooCluster(dict(rng.choice((CEILINGS, DRAIN))))
    drain = _drains(cluster)
    labels: dict[str, dict[str, str]] = {}
    for i in range(rng.randint(6, 9)):
        mine = {"disk": rng.choice(("ssd", "hdd")), "generation": str(rng.randint(1, 3))}
        mine |= {MAINTENANCE: "true"} if drain and not i else {}
        labels[cluster.node(f"n{i}", labels=mine)] = mine
    room = {name: rng.randint(4200, 5400) for name in labels}
    if not drain:
        room |= dict.fromkeys(list(labels)[:2], 7300)
    for w in range(50):
        cpu, wanted = rng.randint(250, 1000), rng.choice(_WANTED)
        may = [name for name, mine in labels.items() if _selected(mine, wanted)]
        on = [n for n in rng.sample(may, len(may)) if room[n] >= cpu][: rng.randint(2, 3)]
        if len(on) < 2:
            continue
        for name in on:
            room[name] -= cpu
        cluster.workload(f"app-{w:02}", on, _same(cpu, on), spec=_affine(wanted))
    return cluster


def hundred_replicas(rng: random.Random) -> ZooCluster:
    """Two large workloads with hard spread over hosts or zones, beside ordinary ones."""
    cluster = ZooCluster(dict(CEILINGS))
    zones = {z: [cluster.node(f"{z}{i}", zone=z) for i in range(rng.randint(3, 4))] for z in "abc"}
    names = [name for zone in zones.values() for name in zone]
    hot = rng.choice(names)
    for replicas in (100, 40):
        app, cpu = f"large-{replicas}", rng.randint(120, 300)
        key = HOST if rng.random() < 0.4 else ZONE
        on = names * replicas if key == HOST else []
        for i in range(0 if on else replicas):
            zone = zones["abc"[i % 3]]
            on.append(hot if hot in zone and rng.random() < 0.3 else rng.choice(zone))
        on = on[:replicas]
        uses = [Use(int(cpu * rng.uniform(0.8, 1.2)), MEM // 2) for _ in on]
        rule = {
            "maxSkew": rng.choice((1, 2, 3)),
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}},
        }
        spec = {"topologySpreadConstraints": [rule]}
        cluster.workload(app, on, uses, spec=spec, requests=Use(20, MEM // 8))
    drawn: list[Drawn] = []
    for name in names:
        percent = rng.uniform(84, 90) if name == hot else rng.uniform(55, 70)
        drawn += fill(rng, name, 8000, percent - cluster.used(name).cpu_milli / 80, (150, 700))
    group(cluster, rng, drawn, replicas=(2, 4))
    return cluster


def unimportant_helpers(rng: random.Random) -> ZooCluster:
    """All nodes are full, and of the pods that could make room many are too important for it."""
    cluster = ZooCluster(dict(CEILINGS))
    names = [cluster.node(f"n{i}") for i in range(rng.randint(4, 6))]
    number = 0
    for i, name in enumerate(names):
        left = rng.randint(5500, 6250) if i else rng.randint(6650, 7300)
        while left > 0:
            cpu = min(left, rng.randint(200, 1400))
            spec = {"priority": rng.choice((0, 0, 100, 1000) if i else (0, 100, 100))}
            on, uses = [name, names[(i + 1) % len(names)]], [Use(cpu, MEM), Use(1, 1 << 20)]
            cluster.workload(f"app-{number:03}", on, uses, spec=spec)
            number, left = number + 1, left - cpu
    return cluster


def labels_changed(rng: random.Random) -> ZooCluster:
    """Pods whose node selector does not select their node any more; the others are rather full."""
    cluster = ZooCluster(dict(REPAIRS))
    disks = {f"n{i}": ("hdd", "ssd")[i % 2] for i in range(rng.randint(5, 9))}
    for name, disk in disks.items():
        cluster.node(name, labels={"disk": disk})
    room = {name: rng.randint(4200, 6300) for name in disks}
    for w in range(40):
        cpu, wanted = rng.randint(250, 1000), rng.choice(("", "", "ssd", "hdd"))
        free = [n for n in rng.sample(list(disks), len(disks)) if room[n] >= cpu]
        good = [n for n in free if wanted in ("", disks[n])]
        bad = [n for n in free if n not in good]
        on = good[:2] + bad[:1] if wanted and rng.random() < 0.3 else good[:3]
        if len(on) < 2:
            continue
        for name in on:
            room[name] -= cpu
        spec = {"nodeSelector": {"disk": wanted}} if wanted else {}
        cluster.workload(f"app-{w:02}", on, _same(cpu, on), spec=spec)
    return cluster


def tainted_later(rng: random.Random) -> ZooCluster:
    """A node got a taint that half of its pods do not tolerate, and another one is hot."""
    cluster = ZooCluster(dict(REPAIRS_AND_CEILINGS))
    effect = rng.choice(("NoSchedule", "NoExecute"))
    taint = {"key": "team", "value": "x", "effect": effect}
    names = [cluster.node(f"n{i}", taints=() if i else (taint,)) for i in range(rng.randint(5, 8))]
    tolerating: list[Drawn] = []
    others: list[Drawn] = []
    for i, name in enumerate(names):
        percent = rng.uniform(84, 92) if i == 1 else rng.uniform(50, 72)
        mine = fill(rng, name, 8000, percent, (200, 1000))
        share = len(mine) // (3 if i else 2)
        tolerating += mine[:share]
        others += mine[share:]
    spec = {"tolerations": [{"key": "team", "operator": "Exists"}]}
    group(cluster, rng, tolerating, replicas=(2, 4), prefix="tolerates-", spec=spec)
    group(cluster, rng, others, replicas=(2, 4))
    return cluster


def all_at_once(rng: random.Random) -> ZooCluster:
    """A node to be drained, a hot one, and a pool that has to become or to stay level."""
    strategies = ["LoadBalancing", "ResourceOptimization", "NodeMaintenance"]
    cluster = ZooCluster({"enabledStrategies": strategies})
    drawn: list[Drawn] = []
    for i in range(rng.randint(6, 9)):
        name = cluster.node(f"n{i}", labels={} if i else {MAINTENANCE: "true"})
        cpu = rng.uniform(84, 90) if i == 1 else rng.uniform(30, 65)
        drawn += draw_both(rng, name, cpu, rng.uniform(35, 55))
    group(cluster, rng, drawn, replicas=(2, 4))
    return cluster


FURTHER_FAMILIES: Final = (
    need_each_other,
    host_ports,
    attach_limits,
    devices,
    init_containers,
    node_affinity,
    hundred_replicas,
    unimportant_helpers,
    labels_changed,
    tainted_later,
    all_at_once,
)

_WANTED: Final[Sequence[Mapping[str, Sequence[str]]]] = (
    {},
    {"disk": ("ssd",)},
    {"generation": ("2", "3")},
    {"generation": ("1", "2"), "disk": ("hdd",)},
)


def _selected(labels: Mapping[str, str], wanted: Mapping[str, Sequence[str]]) -> bool:
    return all(labels.get(key) in values for key, values in wanted.items())


def _affine(wanted: Mapping[str, Sequence[str]]) -> Json:
    if not wanted:
        return {}
    found = [{"key": k, "operator": "In", "values": list(v)} for k, v in wanted.items()]
    term = {"nodeSelectorTerms": [{"matchExpressions": found}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}}


def _container(cpu: int, *, ports: Sequence[int] = (), devices: int = 0) -> Json:
    has = {GPU: str(devices)} if devices else {}
    asked = {"cpu": f"{cpu}m", "memory": f"{GIB >> 14}Ki", **has}
    made: Json = {"name": "app", "image": "app", "resources": {"requests": asked}}
    if has:
        made["resources"]["limits"] = has
    if ports:
        made["ports"] = [{"containerPort": port, "hostPort": port} for port in ports]
    return made


def _same(cpu: int, on: Sequence[Any]) -> list[Use]:
    return [Use(cpu, MEM)] * len(on)


def _drains(cluster: ZooCluster) -> bool:
    return "NodeMaintenance" in cluster.settings["enabledStrategies"]


def _heat(cluster: ZooCluster, rng: random.Random, names: Sequence[str]) -> None:
    """Bring nodes above their ceiling by what they use themselves, where pods do not."""
    for name in names:
        short = rng.randint(6700, 7200) - cluster.used(name).cpu_milli
        if short > 0:
            cluster.overhead[name] = Use(short, 0)
