# SPDX-License-Identifier: Apache-2.0
"""Nodes are emptied for an autoscaler by the running programs, and stay empty while pods come."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from common.api.contract import CONSOLIDATION_SINCE
from common.kube.resources import DEPLOYMENTS, NODES, PODS
from simulator import build
from simulator.api import Change
from tests.support.stands.closed_loop import Loop, closed_loop

Json = dict[str, Any]  # Any: what the API server keeps

CHURNED: Json = {"cpu": "100m", "usage_cpu": "100m"}
HOUR_S = 3600.0
KEPT = ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt")
REMOVED = ("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted")

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


def annotate(loop: Loop, node: str, key: str) -> None:
    loop.store.patch(NODES, node, {"metadata": {"annotations": {key: "true"}}})


def taint(loop: Loop, node: str, key: str | None) -> None:
    """Set the taint of an autoscaler, or take it back."""
    taints = [{"key": key, "effect": "NoSchedule"}] if key else None
    loop.store.patch(NODES, node, {"spec": {"taints": taints}})


def names_on(loop: Loop, node: str) -> set[str]:
    return {pod["metadata"]["name"] for pod in loop.on(node)}


def planned_from(loop: Loop, node: str) -> set[str]:
    """Return the pods of a node that moves were made for."""
    found = (each["spec"] for each in loop.migrations())
    return {each["pod"]["name"] for each in found if each["source"] == node}


@pytest.mark.parametrize("key", KEPT)
async def test_a_node_that_autoscalers_keep_is_not_emptied(tmp_path: Path, key: str) -> None:
    async with spread_out(tmp_path) as loop:
        annotate(loop, "node-5", key)
        mine = names_on(loop, "node-5")
        async with loop.rebalancer(**SETTINGS) as health:
            await loop.until(lambda: len(used(loop)) == 2, "four nodes are empty")
            await loop.cycles(health, 3)
            assert len(marked(loop)) == 4
            assert "node-5" not in marked(loop)
        assert mine <= names_on(loop, "node-5")


@pytest.mark.parametrize("key", REMOVED)
async def test_a_node_that_an_autoscaler_removes_is_left_to_it(tmp_path: Path, key: str) -> None:
    async with spread_out(tmp_path) as loop:
        taint(loop, "node-5", key)
        mine = names_on(loop, "node-5")
        async with loop.rebalancer(**SETTINGS) as health:
            await loop.until(lambda: len(used(loop)) <= 3, "the others are emptied")
            await loop.cycles(health, 3)
            assert "node-5" not in marked(loop)
        assert names_on(loop, "node-5") == mine


@asynccontextmanager
async def half_emptied(folder: Path) -> AsyncIterator[tuple[Loop, str, str]]:
    """Give the loop while a node is being emptied, its health port and the node."""
    slowly = {"maxReschedulePods": 1, "maxInFlightPerNode": 1, "reschedulingInterval": "20s"}
    async with spread_out(folder) as loop, loop.rebalancer(**SETTINGS | slowly) as health:

        def halves() -> list[str]:
            found = [n for n in marked(loop) if len(loop.on(n)) == 1 and planned_from(loop, n)]
            return [n for n in found if names_on(loop, n).isdisjoint(planned_from(loop, n))]

        await loop.until(halves, "a node is half empty")
        yield loop, health, halves()[0]


@pytest.mark.long(17)
@pytest.mark.parametrize("key", REMOVED)
async def test_nothing_more_leaves_a_node_once_an_autoscaler_removes_it(
    tmp_path: Path, key: str
) -> None:
    async with half_emptied(tmp_path) as (loop, health, node):
        taint(loop, node, key)
        begun, left = planned_from(loop, node), names_on(loop, node)
        await loop.cycles(health, 6)
        assert planned_from(loop, node) == begun
        assert names_on(loop, node) == left
        assert node in marked(loop)
        taint(loop, node, None)
        await loop.until(lambda: not loop.on(node), "it is emptied after all")


@pytest.mark.parametrize("key", KEPT)
async def test_a_node_is_given_back_once_autoscalers_are_told_to_keep_it(
    tmp_path: Path, key: str
) -> None:
    async with half_emptied(tmp_path) as (loop, health, node):
        annotate(loop, node, key)
        await loop.until(lambda: node not in marked(loop), "it is given back")
        await loop.settled()
        left = names_on(loop, node)
        await loop.cycles(health, 4)
        assert node not in marked(loop)
        assert left <= names_on(loop, node)


@pytest.mark.long(185)
async def test_no_pod_comes_to_an_emptied_node_within_an_hour(tmp_path: Path) -> None:
    """Pods come, go and are replaced all the time, and two nodes always have room for them."""
    # Faster, and a machine that is busy for two seconds would let samples expire.
    calm = {"leaderElection": {"namespace": "default", "leaseDuration": "600s",
                               "renewDeadline": "400s", "retryPeriod": "20s"}}  # fmt: skip
    dice, refills = random.Random(19), list[str]()
    settings = SETTINGS | calm | {"reschedulingInterval": "30s"}
    async with spread_out(tmp_path, speed=20.0) as loop, loop.rebalancer(**settings) as health:
        await loop.until(lambda: len(used(loop)) == 2, "four nodes are empty")
        await loop.settled()
        free = marked(loop)
        assert len(free) == 4

        def bound(change: Change) -> None:
            if change.obj["spec"].get("nodeName") in free:
                refills.append(change.obj["metadata"]["name"])

        loop.store.subscribe(PODS, bound)
        loop.cluster.create([build.deployment("some", 3, **CHURNED)])
        until_s, rounds = loop.clock.now() + HOUR_S, 0
        while loop.clock.now() < until_s or rounds < 20:
            rounds += 1
            if rounds % 2:
                replicas = {"spec": {"replicas": dice.randint(1, 8)}}
                loop.store.patch(DEPLOYMENTS, "some", replicas, namespace="default")
            else:
                pod = dice.choice(loop.pods())["metadata"]
                loop.store.delete(PODS, pod["name"], namespace=pod["namespace"])
            await loop.clock.sleep(120.0)
            await loop.cycles(health, 1)
        assert marked(loop) == free
    assert refills == []
