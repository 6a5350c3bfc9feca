# SPDX-License-Identifier: Apache-2.0
"""Many moves: as few as can be where nodes are too hot, and hundreds while requests fail."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from common.kube.resources import EVENTS, PODS
from common.kube.timestamps import micro_time
from simulator import build
from simulator.api import Json
from tests.support.stands.closed_loop import Loop, closed_loop, ending
from tests.support.stands.loop_programs import figure

MEASURED = "MigrationMeasured"
APPS, REPLICAS, NODES = 25, 20, 10
MANY = APPS * REPLICAS
CREATED = ("events", "leases", "migrations", "poddisruptionbudgets", "pods")
# Anybody may ask for many moves at once; here nothing but the faults is to hold them up.
WIDE: dict[str, Any] = {
    "maxReschedulePods": 10_000,
    "maxInFlightPerNode": 100,
    "maxInboundPerNode": 100,
    "workloadCooldown": "0s",
    "reschedulingInterval": "60s",
}
# Who is still there when an eviction is tried again could be evicted again.
LINGERING: dict[str, Any] = {
    "annotations": {build.STOP_AFTER: "100s"},
    "spec": {"terminationGracePeriodSeconds": 1000},
}
# The clock goes on while a busy machine computes, and a deadline that it misses is no finding.
ENOUGH_S = 36_000.0
# So many pods are a lot to measure, and to look at again and again.
SELDOM: dict[str, Any] = {"usageInterval": "20s"}


async def test_hot_spots_are_leveled_with_as_few_evictions_as_can_be(tmp_path: Path) -> None:
    """Requests mislead: the hungry ask for a tenth of what they use."""
    hungry = [build.deployment(f"hungry-{n}", 4, cpu="100m", usage_cpu="1") for n in range(5)]
    idle = [build.deployment(f"idle-{n}", 4, cpu="600m", usage_cpu="400m") for n in range(4)]
    hot = {f"hungry-{n}": ["node-0", "node-0", "node-1", "node-1"] for n in range(4)}
    quiet = [f"node-{n}" for n in (2, 3, 4, 5)]
    cool = {"hungry-4": quiet, **{f"idle-{n}": quiet for n in range(4)}}
    places = {**hot, **cool}
    async with closed_loop(tmp_path, *hungry, *idle, nodes=6, places=places) as loop:
        await loop.until(lambda: len(loop.ready()) == 36, "all pods run")
        # Both nodes have been hot for several samples: one plan is for both.
        await loop.clock.sleep(60.0)
        async with loop.rebalancer() as health:
            await loop.until(lambda: level(loop), "all nodes are under their ceilings")
            await loop.settled()
            bound = await figure(health, "episode_lower_bound")
            evicted = len(loop.witness.evicted)
            await loop.cycles(health, 5)
            await loop.until(lambda: len(measured(loop)) == evicted, "what each move did is told")
    assert evicted == bound == 4
    assert len(loop.witness.evicted) == evicted
    assert loop.outcomes() == ["AsPlanned"] * evicted


def measured(loop: Loop) -> list[str]:
    """Return the moves that say in status and Event what was predicted and what came true."""
    told = {e["regarding"]["uid"] for e in loop.store.list(EVENTS) if e["reason"] == MEASURED}
    said = [m["status"] for m in loop.migrations()]
    return [
        s["replacement"]["name"]
        for s in said
        if s.get("actual") and s.get("predicted") and s["replacement"]["uid"] in told
    ]


def level(loop: Loop) -> bool:
    used: Counter[str] = Counter()
    for pod in loop.ready():
        hungry = pod["metadata"]["labels"]["app"].startswith("hungry")
        used[pod["spec"]["nodeName"]] += 1000 if hungry else 400
    return len(loop.ready()) == 36 and max(used.values()) <= 6300


@pytest.mark.long(45)
async def test_hundreds_of_moves_while_a_tenth_of_all_writes_fails(
    tmp_path: Path,
) -> None:
    use: dict[str, Any] = {"cpu": "50m", "usage_cpu": "50m", **LINGERING}
    apps = [build.deployment(f"app-{n}", REPLICAS, **use) for n in range(APPS)]
    async with closed_loop(tmp_path, *apps, nodes=NODES, speed=4.0, load=SELDOM) as loop:
        await loop.until(lambda: len(loop.ready()) == MANY, "all pods run")
        add = loop.cluster.server.faults.add
        faults = {
            "evictions": add(
                verbs=["create"], resources=["pods/eviction"], status=500, probability=0.1
            ),
            "creates": add(verbs=["create"], resources=CREATED, status=500, probability=0.1),
            "patches": add(verbs=["patch"], status=500, probability=0.1),
            "lost evictions": add(resources=["pods/eviction"], loses=True, probability=0.1),
            "lost writes": add(verbs=["create", "patch", "delete"], loses=True, probability=0.02),
        }
        async with loop.rebalancer(**WIDE, **SELDOM):
            originals = {str(pod["metadata"]["uid"]): pod for pod in loop.ready()}
            for wave in waves(originals):
                spec = {"planId": "many", "deadline": micro_time(loop.clock.now() + ENOUGH_S)}
                names = [loop.plan(pod, target_of(pod), **spec) for pod in wave]
                await loop.until_ended(*names)
    endings = Counter(ending(each) for each in loop.migrations())
    print({name: fault.hits for name, fault in faults.items()}, dict(endings))
    assert min(fault.hits for fault in faults.values()) > 0
    assert endings["AsPlanned"] >= 0.99 * MANY
    assert sum(endings.values()) == MANY
    failed = [m for m in loop.migrations() if m["status"]["phase"] == "Failed"]
    assert all(stayed(loop, originals[m["metadata"]["name"]]) for m in failed)


def waves(originals: dict[str, Json]) -> list[list[Json]]:
    """Return the pods in groups that hold two of each app."""
    by_app: dict[str, list[Json]] = {}
    for pod in originals.values():
        by_app.setdefault(pod["metadata"]["labels"]["app"], []).append(pod)
    turns = range(0, REPLICAS, 2)
    return [[p for pods in by_app.values() for p in pods[turn : turn + 2]] for turn in turns]


def target_of(pod: Json) -> str:
    number = int(pod["spec"]["nodeName"].removeprefix("node-"))
    return f"node-{(number + 1) % NODES}"


def stayed(loop: Loop, pod: Json) -> bool:
    """Tell whether a pod still runs as it did."""
    meta = pod["metadata"]
    found = loop.store.find(PODS, meta["name"], meta["namespace"])
    return found is not None and found["metadata"]["uid"] == meta["uid"]
