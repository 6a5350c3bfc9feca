# SPDX-License-Identifier: Apache-2.0
"""A rebalancer dies at every named point, and the next one brings its moves to their end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.kube.resources import LEASES, MIGRATIONS
from rebalancer import failpoints as crash
from simulator import build
from tests.support.oracles.availability import Availability, replicas
from tests.support.stands.closed_loop import Loop, closed_loop
from tests.support.stands.loop_process import Nursery, nursery

LEASE = "evenkeel-rebalancer"
# On a busy machine a short Lease is lost before its holder comes to the point where it dies.
SETTINGS: dict[str, Any] = {
    "leaderElection": {
        "namespace": "default",
        "leaseDuration": "60s",
        "renewDeadline": "40s",
        "retryPeriod": "1s",
    },
}
# Finished Migrations are not kept for long.
REMOVING: dict[str, Any] = {
    "keepFinished": "1s",
    "lineageCooldown": "0s",
    "workloadCooldown": "0s",
}
SURGES = tuple(point for point in crash.POINTS if point.rpartition("-")[2] in crash.SURGE_STEPS)
OWNED_POINTS = [point for point in crash.POINTS if point not in (*SURGES, "before-release")]
BARE_POINTS = [point for point in OWNED_POINTS if not point.endswith("-protect")]
SHARED = ("evict", "replace", "ready", "clean", "close", "remove", "release")
SURGE_POINTS = [
    *SURGES,
    *(point for point in crash.POINTS if point.rpartition("-")[2] in SHARED),
]


@pytest.fixture(scope="module")
def rebalancers() -> Iterator[Nursery]:
    with nursery() as found:
        yield found


async def dies(rebalancers: Nursery, loop: Loop, point: str, settings: dict[str, Any]) -> None:
    """Run a rebalancer until it dies; its Lease is held for another second."""
    assert await rebalancers.dies(loop, point, **settings) == crash.EXIT_CODE
    shorter = {"spec": {"leaseDurationSeconds": 1}}
    loop.store.patch(LEASES, LEASE, shorter, namespace="default")


@pytest.mark.parametrize("point", OWNED_POINTS)
async def test_the_next_leader_finishes_the_move(
    point: str, rebalancers: Nursery, tmp_path: Path
) -> None:
    web = build.deployment("web", 7, cpu="100m", usage_cpu="1000m")
    removing = REMOVING if point.endswith("remove") else {}
    settings = {**SETTINGS, **removing}
    async with closed_loop(tmp_path, web, places={"web": ["node-0"] * 7}) as loop:
        await dies(rebalancers, loop, point, settings)
        evicted = len(loop.witness.evicted)
        async with loop.rebalancer(**settings):
            await loop.until(lambda: len(loop.on("node-0")) == 6, "node-0 is level")
            await loop.until_ready("web", 7)
            if removing:
                await loop.until(lambda: not loop.migrations(), "what is over is removed")
    assert len(loop.witness.evicted) == 1
    assert evicted in (0, 1)
    assert removing or loop.outcomes() == ["AsPlanned"]


@pytest.mark.parametrize("point", BARE_POINTS)
async def test_the_next_leader_finishes_the_move_of_a_bare_pod(
    point: str, rebalancers: Nursery, tmp_path: Path
) -> None:
    alone = build.pod("alone", labels={"app": "alone"}, node="node-0")
    removing = REMOVING if point.endswith("remove") else {}
    settings = {**SETTINGS, **removing, "barePods": "replace"}
    async with closed_loop(tmp_path, alone) as loop:
        [pod] = await loop.until_ready("alone", 1)
        loop.plan(pod, "node-1", replacementName="rescheduled-alone-1800000000")
        await dies(rebalancers, loop, point, settings)
        async with loop.rebalancer(**settings):
            if removing:
                await loop.until(lambda: not loop.migrations(), "what is over is removed")
            else:
                await loop.until_ended(pod["metadata"]["uid"])
    assert removing or loop.outcomes() == ["AsPlanned"]
    assert len(loop.witness.evicted) == 1
    [copy] = loop.ready("alone")
    assert (copy["metadata"]["name"], copy["spec"]["nodeName"]) == (
        "rescheduled-alone-1800000000",
        "node-1",
    )


@pytest.mark.parametrize("point", ["after-mark", "after-replace", "recorded-ready"])
async def test_a_move_that_is_canceled_while_no_controller_runs_leaves_nothing_behind(
    point: str, rebalancers: Nursery, tmp_path: Path
) -> None:
    alone = build.pod("alone", labels={"app": "alone"}, node="node-0")
    settings = {**SETTINGS, "barePods": "replace"}
    async with closed_loop(tmp_path, alone) as loop:
        [pod] = await loop.until_ready("alone", 1)
        name = loop.plan(pod, "node-1", replacementName="rescheduled-alone-1800000000")
        await dies(rebalancers, loop, point, settings)
        loop.store.delete(MIGRATIONS, name)
        async with loop.rebalancer(**settings):
            await loop.until(lambda: len(loop.pods("alone")) == 1, "the original is alone")
    [left] = loop.pods("alone")
    assert left["metadata"]["uid"] == name
    assert loop.witness.evicted == []


@pytest.mark.parametrize("point", SURGE_POINTS)
async def test_the_next_leader_finishes_a_surge(
    point: str, rebalancers: Nursery, tmp_path: Path
) -> None:
    removing = REMOVING if point.endswith("remove") else {}
    settings = {**SETTINGS, **removing}
    web = build.deployment("web", 1, cpu="100m")
    async with closed_loop(tmp_path, web, places={"web": ["node-0"]}) as loop:
        [pod] = await loop.until_ready("web", 1)
        seen = Availability(loop.store, {"web": 1})
        name = loop.plan(pod, "node-1", surge=True)
        await dies(rebalancers, loop, point, settings)
        async with loop.rebalancer(**settings):
            if removing:
                await loop.until(lambda: not loop.migrations(), "what is over is removed")
            else:
                await loop.until_ended(name)
            await loop.until(lambda: len(loop.pods("web")) == 1, "one replica is left")
    assert removing or loop.outcomes() == ["AsPlanned"]
    assert (seen.gaps, seen.most["web"], replicas(loop, "web")) == ([], 2, 1)
    assert [pod["spec"]["nodeName"] for pod in loop.ready("web")] == ["node-1"]
    assert loop.witness.evicted == []


@pytest.mark.parametrize("point", ["after-raise", "recorded-raise", "recorded-rank", "after-lower"])
async def test_a_surge_that_is_canceled_while_no_controller_runs_leaves_no_replica_behind(
    point: str, rebalancers: Nursery, tmp_path: Path
) -> None:
    web = build.deployment("web", 1, cpu="100m")
    async with closed_loop(tmp_path, web, places={"web": ["node-0"]}) as loop:
        [pod] = await loop.until_ready("web", 1)
        seen = Availability(loop.store, {"web": 1})
        name = loop.plan(pod, "node-1", surge=True)
        await dies(rebalancers, loop, point, SETTINGS)
        loop.store.delete(MIGRATIONS, name)
        async with loop.rebalancer(**SETTINGS):
            await loop.until(lambda: not loop.migrations(), "the Migration is gone")
            await loop.until(lambda: len(loop.pods("web")) == 1, "one replica is left")
            await loop.until_ready("web", 1)
    assert (seen.gaps, replicas(loop, "web")) == ([], 1)
