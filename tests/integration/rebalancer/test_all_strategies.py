# SPDX-License-Identifier: Apache-2.0
"""All strategies at once, over a hundred cycles in which nodes and pods keep changing.

The witness of the loop fails the test if a lineage is evicted twice within its cooldown, against
a budget, or against an opt-out: goals that disagree would move the same pods to and fro.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from common.kube.resources import DEPLOYMENTS, NODES, PODS
from simulator import build
from tests.support.http import fetch
from tests.support.stands.closed_loop import Loop, closed_loop
from tests.support.stands.loop_programs import figure

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects

CYCLES, PER_ROUND = 100, 10
MOST_ROUNDS = 40
SETTINGS: Json = {
    "enabledStrategies": [
        "ResourceOptimization",
        "LoadBalancing",
        "Consolidation",
        "Violations",
        "Duplicates",
        "PreferredNodes",
        "TopologySpread",
        "Hygiene",
    ],
    "consolidation": {"minNodeAge": "1s"},
    "hygiene": {"tooManyRestarts": [{"restarts": 100}]},
    "reschedulingInterval": "1s",
    "maxReschedulePods": 100,
    "lineageCooldown": "1h",
}
ZONE = "topology.kubernetes.io/zone"
NODE_COUNT = 8
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


def workloads() -> list[Json]:
    """Return workloads that have reasons of all kinds to be somewhere else."""
    pool = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["spot"]}]}
    likes = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 50, "preference": pool}
    ]}}  # fmt: skip
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "zoned"}},
    }
    return [
        build.deployment("web", 6, cpu="200m", usage_cpu="700m"),
        build.deployment("api", 5, cpu="300m", usage_cpu="300m"),
        build.deployment("spot", 4, cpu="200m", usage_cpu="400m", spec={"affinity": likes}),
        build.deployment(
            "zoned", 6, cpu="100m", usage_cpu="200m", spec={"topologySpreadConstraints": [spread]}
        ),
        build.pdb("web", match={"app": "web"}, max_unavailable=1),
    ]


def nodes() -> list[Json]:
    return [
        build.node(
            f"node-{number}",
            cpu="8",
            labels={ZONE: f"z{number % 3}", "pool": "spot" if number % 2 else "other"},
        )
        for number in range(NODE_COUNT)
    ]


def churn(loop: Loop, dice: random.Random, number: int) -> None:
    """Let one thing happen that happens in clusters."""
    node = f"node-{dice.randrange(NODE_COUNT)}"
    match dice.randrange(6):
        case 0:
            loop.store.patch(NODES, node, {"spec": {"taints": [TAINT]}})
        case 1:
            for number in range(NODE_COUNT):
                loop.store.patch(NODES, f"node-{number}", {"spec": {"taints": None}})
        case 2:
            pool = dice.choice(("spot", "other"))
            loop.store.patch(NODES, node, {"metadata": {"labels": {"pool": pool}}})
        case 3:
            pod = dice.choice(loop.pods())
            meta = pod["metadata"]
            loop.store.delete(PODS, meta["name"], namespace=meta["namespace"])
        case 4:
            # Its pods have not been moved yet: there is always something left to move.
            new = build.deployment(f"new-{number}", 2, cpu="200m", usage_cpu="400m")
            loop.cluster.create([new])
        case _:
            app, count = dice.choice(("web", "api", "spot")), dice.randint(3, 7)
            loop.store.patch(DEPLOYMENTS, app, {"spec": {"replicas": count}}, namespace="default")


def strategies(loop: Loop) -> set[str]:
    """Return the strategies that have moved pods."""
    return {each["spec"]["strategy"] for each in loop.migrations()}


@pytest.mark.long(15)
async def test_goals_that_disagree_move_no_pod_twice_in_a_hundred_cycles(tmp_path: Path) -> None:
    dice = random.Random(19)
    async with closed_loop(tmp_path, *workloads(), nodes=nodes()) as loop:
        await loop.until(lambda: len(loop.ready()) == 21, "all pods run")
        async with loop.rebalancer(**SETTINGS) as health:
            for number in range(MOST_ROUNDS):
                # Which goals get their turn in a hundred cycles depends on the machine's load.
                if number >= CYCLES // PER_ROUND and len(strategies(loop)) >= 3:
                    break
                churn(loop, dice, number)
                await loop.cycles(health, PER_ROUND)
            assert await figure(health, "cycles_total", result="done") >= CYCLES
            plan = (await fetch(f"{health}/debug/plan")).text
            assert "LoadBalancing wants pods spread over all nodes and Consolidation on few" in plan
        specs = [each["spec"] for each in loop.migrations()]
        moved = Counter(each["pod"]["uid"] for each in specs)
        replaced = {
            each.get("status", {}).get("replacement", {}).get("uid") for each in loop.migrations()
        }
        assert len(strategies(loop)) >= 3
        assert max(moved.values()) == 1
        assert replaced.isdisjoint(moved)
