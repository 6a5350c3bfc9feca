"""A rebalancer dies at every named point, and the next one brings its moves to their end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.kube.resources import MIGRATIONS
from rebalancer import crash
from simulator import build
from tests.support.closed_loop import closed_loop
from tests.support.loop_process import Nursery, nursery

# The dead hold their lead until it runs out; nobody keeps what is over for long.
SETTINGS: dict[str, Any] = {
    "leaderElection": {
        "namespace": "default",
        "leaseDuration": "6s",
        "renewDeadline": "4s",
        "retryPeriod": "1s",
    },
}
REMOVING: dict[str, Any] = {
    "keepFinished": "1s",
    "lineageCooldown": "0s",
    "workloadCooldown": "0s",
}
BARE_POINTS = [point for point in crash.POINTS if not point.endswith("-protect")]


@pytest.fixture(scope="module")
def rebalancers() -> Iterator[Nursery]:
    with nursery() as found:
        yield found


@pytest.mark.parametrize("point", crash.POINTS)
async def test_whoever_starts_next_finishes_the_move(
    point: str, rebalancers: Nursery, tmp_path: Path
) -> None:
    web = build.deployment("web", 7, cpu="100m", usage_cpu="1000m")
    removing = REMOVING if point.endswith("remove") else {}
    settings = {**SETTINGS, **removing}
    async with closed_loop(tmp_path, web, places={"web": ["node-0"] * 7}) as loop:
        assert await rebalancers.dies(loop, point, **settings) == crash.EXIT_CODE
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
async def test_whoever_starts_next_finishes_the_move_of_a_bare_pod(
    point: str, rebalancers: Nursery, tmp_path: Path
) -> None:
    alone = build.pod("alone", labels={"app": "alone"}, node="node-0")
    removing = REMOVING if point.endswith("remove") else {}
    settings = {**SETTINGS, **removing, "barePods": "replace"}
    async with closed_loop(tmp_path, alone) as loop:
        [pod] = await loop.until_ready("alone", 1)
        loop.plan(pod, "node-1", replacementName="rescheduled-alone-1800000000")
        assert await rebalancers.dies(loop, point, **settings) == crash.EXIT_CODE
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
async def test_a_move_that_is_called_off_while_nobody_runs_leaves_nothing_behind(
    point: str, rebalancers: Nursery, tmp_path: Path
) -> None:
    alone = build.pod("alone", labels={"app": "alone"}, node="node-0")
    settings = {**SETTINGS, "barePods": "replace"}
    async with closed_loop(tmp_path, alone) as loop:
        [pod] = await loop.until_ready("alone", 1)
        name = loop.plan(pod, "node-1", replacementName="rescheduled-alone-1800000000")
        assert await rebalancers.dies(loop, point, **settings) == crash.EXIT_CODE
        loop.store.delete(MIGRATIONS, name)
        async with loop.rebalancer(**settings):
            await loop.until(lambda: len(loop.pods("alone")) == 1, "the original is alone")
    [left] = loop.pods("alone")
    assert left["metadata"]["uid"] == name
    assert loop.witness.evicted == []
