# SPDX-License-Identifier: Apache-2.0
"""Nodes are emptied for an autoscaler by the running programs, and stay empty while pods come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from common.api.contract import CONSOLIDATION_SINCE
from common.kube.resources import NODES
from simulator import build
from tests.support.stands.closed_loop import Loop, closed_loop

Json = dict[str, Any]  # Any: what the API server keeps

SETTINGS: Json = {
    "enabledStrategies": ["Consolidation", "LoadBalancing", "ResourceOptimization"],
    "consolidation": {"minNodeAge": "0s"},
    "maxInFlightPerNode": 5,
    "workloadCooldown": "0s",
}


def marked(loop: Loop) -> list[str]:
    """Return the nodes that carry the mark."""
    found = loop.store.list(NODES)
    return sorted(
        node["metadata"]["name"]
        for node in found
        if CONSOLIDATION_SINCE in (node["metadata"].get("annotations") or {})
    )


def used(loop: Loop) -> list[str]:
    """Return the nodes that have pods."""
    return sorted({pod["spec"]["nodeName"] for pod in loop.pods() if "nodeName" in pod["spec"]})


@asynccontextmanager
async def spread_out(folder: Path, **given: Any) -> AsyncIterator[Loop]:
    """Give six nodes of 8 CPU, each with two pods that use half a CPU."""
    apps = [build.deployment(f"app-{n}", 3, cpu="400m", usage_cpu="500m") for n in range(4)]
    nodes = [f"node-{n}" for n in range(6)]
    places = {f"app-{n}": nodes[n % 2 :: 2] for n in range(4)}
    async with closed_loop(folder, *apps, nodes=6, places=places, **given) as loop:
        await loop.until(lambda: len(loop.ready()) == 12, "all are Ready")
        assert used(loop) == nodes
        yield loop


async def test_nodes_are_freed_and_stay_empty_while_new_pods_come(tmp_path: Path) -> None:
    async with spread_out(tmp_path) as loop:
        async with loop.rebalancer(**SETTINGS) as health:
            # 6 CPU of load, and 5.2 on a node at most: two nodes stay.
            await loop.until(lambda: len(used(loop)) == 2, "four nodes are empty")
            free = marked(loop)
            await loop.cycles(health, 3)
            # Spread over hosts, as kube-scheduler does by itself, and with room on two nodes.
            loop.cluster.create([build.deployment("late", 4, cpu="100m", usage_cpu="100m")])
            await loop.until(lambda: len(loop.ready("late")) == 4, "the new pods are Ready")
            await loop.cycles(health, 3)
            assert marked(loop) == free
            assert len(free) == 4
            assert set(used(loop)).isdisjoint(free)
        evicted = len(loop.witness.evicted)
    assert evicted == 8


async def test_a_pod_that_fits_nowhere_else_gets_a_kept_node_which_is_given_back(
    tmp_path: Path,
) -> None:
    async with spread_out(tmp_path) as loop, loop.rebalancer(**SETTINGS) as health:
        await loop.until(lambda: len(used(loop)) == 2, "four nodes are empty")
        free = marked(loop)
        loop.cluster.create([build.deployment("large", 1, cpu="7000m", usage_cpu="6500m")])
        await loop.until(lambda: len(loop.ready("large")) == 1, "the large pod is Ready")
        home = loop.pods("large")[0]["spec"]["nodeName"]
        assert home in free
        await loop.until(lambda: home not in marked(loop), "its node is given back")
        await loop.cycles(health, 2)
        assert set(marked(loop)) == set(free) - {home}
        assert [pod["spec"]["nodeName"] for pod in loop.pods("large")] == [home]


@pytest.mark.parametrize(
    "given",
    [
        {"modes": {"Consolidation": "observe"}},
        {"schedules": {"Consolidation": [{"schedule": "0 0 29 2 *", "duration": "1m"}]}},
    ],
    ids=["observes", "waits"],
)
async def test_nothing_is_marked_or_moved_while_it_may_not_begin(
    tmp_path: Path, given: Json
) -> None:
    async with spread_out(tmp_path) as loop:
        async with loop.rebalancer(**SETTINGS, **given) as health:
            await loop.cycles(health, 4)
            assert marked(loop) == []
        assert not loop.witness.evicted


async def test_marks_go_when_the_strategy_is_turned_off(tmp_path: Path) -> None:
    async with spread_out(tmp_path) as loop:
        loop.store.patch(
            NODES, "node-0", {"metadata": {"annotations": {CONSOLIDATION_SINCE: "then"}}}
        )
        async with loop.rebalancer(enabledStrategies=["ResourceOptimization"]):
            await loop.until(lambda: marked(loop) == [], "the mark is gone")
