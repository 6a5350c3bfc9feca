# SPDX-License-Identifier: Apache-2.0
"""Random small clusters for the planner: everything that may go wrong, in odd mixtures."""

from __future__ import annotations

import random
from typing import Any

from tests.support.worlds.planner import PlannerWorld

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def random_world(seed: int) -> PlannerWorld:
    """Return a cluster of a few nodes; the same one for the same seed."""
    dice = random.Random(seed)
    strategies = dice.choice(
        (
            ["ResourceOptimization"],
            ["LoadBalancing"],
            ["ResourceOptimization", "LoadBalancing", "NodeMaintenance"],
            ["ResourceOptimization", "NodeMaintenance"],
        )
    )
    world = PlannerWorld(
        config={
            "enabledStrategies": strategies,
            "cpuThreshold": dice.choice((60.0, 80.0)),
            "memoryThreshold": dice.choice((70.0, 80.0)),
            "imbalanceThreshold": dice.choice((10.0, 20.0)),
            "minGain": dice.choice((0.0, 1.0)),
            "maxReschedulePods": dice.choice((2, 10)),
            "fillLowNodes": dice.choice(("always", "never")),
        }
    )
    nodes = [f"n{i}" for i in range(dice.randint(1, 6))]
    for number, name in enumerate(nodes):
        world.node(name, **_node(dice, number))
    for number in range(dice.randint(1, 8)):
        _workload(dice, world, number, nodes)
    return world


def _node(dice: random.Random, number: int) -> dict[str, Any]:
    effect = dice.choice(("", "", "", "NoSchedule", "PreferNoSchedule"))
    return {
        "size": dice.choice((1.0, 1.0, 2.0)),
        "maintenance": dice.random() < 0.15,
        "measured": dice.random() < 0.95,
        "zone": f"z{number % 2}" if dice.random() < 0.8 else None,
        "pods": dice.choice((4, 110)),
        "taints": [{"key": "team", "effect": effect}] if effect else (),
        "unschedulable": dice.random() < 0.05,
    }


def _workload(dice: random.Random, world: PlannerWorld, number: int, nodes: list[str]) -> None:
    name, replicas = f"w{number}", dice.choice((1, 2, 3, 5))
    kind = dice.choice(("ReplicaSet", "ReplicaSet", "StatefulSet", "none"))
    spec = _rules(dice, name)
    asks = (dice.uniform(0.1, 30.0), dice.uniform(0.1, 30.0))
    crowded = dice.choice(nodes)
    for replica in range(replicas):
        world.pod(
            f"{name}-{replica}",
            crowded if dice.random() < 0.5 else dice.choice(nodes),
            (dice.uniform(0.5, 35.0), dice.uniform(0.5, 35.0)),
            owner=name,
            kind=kind,
            replicas=replicas,
            asks=asks,
            spec=spec,
        )
    if dice.random() < 0.3:
        world.pdb(name, {"app": name}, allowed=dice.choice((0, 1, 2)), healthy=replicas)


def _rules(dice: random.Random, name: str) -> dict[str, Any]:
    mine = {"matchLabels": {"app": name}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    term = {"topologyKey": HOST, "labelSelector": mine}
    even = {"maxSkew": 1, "topologyKey": ZONE, "labelSelector": mine}
    rules: list[dict[str, Any]] = [
        {},
        {},
        {},
        {"priority": 100},
        {"tolerations": [{"operator": "Exists"}]},
        {"affinity": {"podAntiAffinity": {required: [term]}}},
        {"affinity": {"podAffinity": {required: [{**term, "topologyKey": ZONE}]}}},
        {"topologySpreadConstraints": [{**even, "whenUnsatisfiable": "DoNotSchedule"}]},
        {"topologySpreadConstraints": [{**even, "whenUnsatisfiable": "ScheduleAnyway"}]},
    ]
    return dice.choice(rules)
