# SPDX-License-Identifier: Apache-2.0
"""The rebalancer is alive while cycles end, whatever becomes of them."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from common.config import RebalancerConfiguration
from common.health import Health
from rebalancer.loop import patience_s
from tests.support.worlds.loop import Stage
from tests.support.worlds.planner import PlannerWorld

QUICK: dict[str, Any] = {
    "enabledStrategies": ["ResourceOptimization"],
    "observations": 1,
    "smoothing": "1s",
    "reschedulingInterval": "30s",
    "revalidateAfter": "15s",
    "revalidateWithin": "90s",
}


def stage(**config: Any) -> Stage:
    """Return a stage with one node that is too hot by one pod."""
    world = PlannerWorld(config={**QUICK, **config})
    for name in ("hot", "low", "mid"):
        world.node(name)
    for pod, node, load in (("big", "hot", 40.0), ("rest", "hot", 50.0)):
        world.pod(pod, node, load, replicas=40)
    made = Stage(world)
    made.measure()
    return made


async def test_a_cycle_that_never_ends_is_not_alive_after_five_minutes() -> None:
    played = stage()
    async with played.running():
        await played.advance(200)
        assert played.loop.progress.why_stuck() is None
        played.observer.hangs = True
        await played.clock.advance(270)
        assert played.loop.progress.why_stuck() is None
        await played.clock.advance(90)
        why = played.loop.progress.why_stuck()
    assert why is not None
    assert why.startswith("no cycle of planning has ended since 20")
    assert "at most 300 s are expected" in why


async def test_the_probe_fails_with_these_words_while_other_pages_are_answered() -> None:
    played = stage()
    health = Health(played.metrics)
    health.live("cycles", played.loop.progress.why_stuck)
    played.observer.hangs = True
    transport = httpx.ASGITransport(health.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        task = asyncio.create_task(played.loop.run())
        await played.clock.advance(301)
        answer = await client.get("/livez")
        metrics = await client.get("/metrics")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        after = await client.get("/livez")
    assert answer.status_code == 503
    assert "[-]cycles failed: no cycle of planning has ended since" in answer.text
    assert "it is still planning" in answer.text
    assert metrics.status_code == 200
    assert after.status_code == 200, "who does not lead any more stands by"


async def test_a_failed_cycle_has_ended_and_failures_in_a_row_are_counted() -> None:
    played = stage()
    async with played.running():
        played.blow_up = True
        for _ in range(12):
            await played.advance(30)
        assert played.loop.progress.why_stuck() is None
        assert played.total("cycles_failed_in_a_row") >= 11
        played.blow_up = False
        await played.advance(60)
        assert played.total("cycles_failed_in_a_row") == 0
        played.blow_up = True
        await played.advance(60)
        assert played.total("cycles_failed_in_a_row") >= 1
    assert played.total("cycles_failed_in_a_row") == 0, "a standby fails at nothing"


async def test_a_plan_that_waits_as_long_as_it_may_is_alive() -> None:
    # No newer sample comes: the wait of every plan lasts as long as the configuration allows.
    played = stage(revalidateWithin="10m", metricExpiry="24h")
    async with played.running():
        for _ in range(25):
            await played.advance(30)
            assert played.loop.progress.why_stuck() is None
    assert played.total("plan_chains_dropped_total", reason="NoNewerSample") >= 1


async def test_a_shorter_wait_in_the_configuration_makes_no_running_wait_late() -> None:
    played = stage(revalidateWithin="2h", metricExpiry="24h")
    async with played.running():
        await played.advance(60)
        played.config = RebalancerConfiguration.model_validate(dict(QUICK))
        await played.advance(600)
        assert played.loop.progress.why_stuck() is None


@pytest.mark.parametrize(
    ("config", "seconds"),
    [
        ({}, 300),
        ({"reschedulingInterval": "1m"}, 300),
        ({"reschedulingInterval": "10m"}, 3_000),
        ({"revalidateWithin": "1h"}, 30 + 3_600 + 60),
    ],
)
def test_patience_is_five_intervals_five_minutes_or_the_longest_wait(
    config: dict[str, Any], seconds: float
) -> None:
    made = RebalancerConfiguration.model_validate({**QUICK, **config})
    assert patience_s(made) == seconds
