# SPDX-License-Identifier: Apache-2.0
"""Exchanges of pods between full nodes, carried out by the running programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from common.kube.resources import PDBS, PODS
from simulator import build
from simulator.api import is_ready
from tests.support.stands.closed_loop import closed_loop
from tests.support.stands.extender import eventually
from tests.support.stands.loop_programs import figure

USED = {"node-0": ("1500m", "3900m", "3000m"), "node-1": ("1000m", "3400m", "3000m")}
"""84 and 74 % of ten cores with a ceiling of 80: only the two smallest can change places."""
SETTINGS: dict[str, Any] = {
    "enabledStrategies": ["ResourceOptimization"],
    "surge": "Never",
    "singleReplica": "allow",
    "lineageCooldown": "1s",
    "workloadCooldown": "1s",
}


async def test_an_exchange_whose_second_half_fails_leaves_an_ordinary_goal(tmp_path: Path) -> None:
    """Nothing is moved back, the node that is too full says so, and it is helped when possible."""
    apps = [
        build.deployment(f"{node}-{number}", 1, cpu="100m", usage_cpu=used)
        for node, sizes in USED.items()
        for number, used in enumerate(sizes)
    ]
    places = {app["metadata"]["name"]: [app["metadata"]["name"][:6]] for app in apps}
    nodes = [build.node(name, cpu="10") for name in USED]
    strict = build.pdb("strict", match={"app": "node-1-0"}, max_unavailable=0)
    async with closed_loop(tmp_path, *apps, nodes=nodes, places=places) as loop:
        await loop.until(lambda: len(loop.ready()) == len(apps), "all pods run")
        loop.when(
            PODS,
            lambda pod: (
                "node-0-0" in pod["metadata"]["name"]
                and pod["spec"].get("nodeName") == "node-1"
                and is_ready(pod)
            ),
            lambda: loop.cluster.create([strict]),
        )
        async with loop.rebalancer(**SETTINGS, migrationDeadline="60s") as health:
            await loop.until(lambda: len(loop.migrations()) >= 2, "both halves are planned")
            await loop.settled()

            async def says_so() -> bool:
                return await figure(health, "plan_goals_unmet") == 1

            await eventually(says_so, "the goal of the other node is unmet")
            await loop.cycles(health, 5)
            assert len(loop.witness.evicted) == 1, "nothing is moved back, nor anything else"
            loop.store.delete(PDBS, "strict", namespace="default")
            await loop.until(lambda: bool(loop.on("node-0", "node-1-0")), "it is helped")
    assert len(loop.witness.evicted) == 2
    assert {node: len(loop.on(node)) for node in USED} == dict.fromkeys(USED, 3)
