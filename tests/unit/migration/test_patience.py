"""How long a move waits after an attempt to evict that came to nothing."""

from __future__ import annotations

import random
from typing import Any

from rebalancer.migration.patience import Patience
from rebalancer.migration.scene import Scene
from rebalancer.migration.settings import ControllerSettings
from rebalancer.migration.verdicts import Wait
from rebalancer.reasons import Refusal
from tests.support.clock import FakeClock
from tests.support.migration_scenes import SceneWorld

NONE_LEFT = {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2}
ONE_LEFT = {"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2}
NO = Refusal("PdbExhausted", "web needs 2 and has 2", for_good=False)


def scene(budget: dict[str, Any]) -> Scene:
    return SceneWorld({"budgets": {"web": budget}}).scene()


def patience(clock: FakeClock) -> Patience:
    return Patience(ControllerSettings(), clock, random.Random(1))


async def test_a_budget_that_changes_is_asked_again_but_not_at_once() -> None:
    clock = FakeClock()
    waiting = patience(clock)
    waiting.hold(scene(NONE_LEFT), Wait(NO, 40.0), least_s=5.0)
    await clock.advance(4.0)
    assert waiting.left(scene(ONE_LEFT)) == Wait(NO, 1.0)
    await clock.advance(1.0)
    assert waiting.left(scene(ONE_LEFT)) is None
    assert waiting.left(scene(NONE_LEFT)) == Wait(NO, 35.0)
    await clock.advance(35.0)
    assert waiting.left(scene(NONE_LEFT)) is None


async def test_a_busy_server_is_left_alone_whatever_changes() -> None:
    clock = FakeClock()
    waiting = patience(clock)
    waiting.hold(scene(NONE_LEFT), Wait(NO, 40.0))
    await clock.advance(30.0)
    assert waiting.left(scene(ONE_LEFT)) == Wait(NO, 10.0)
    waiting.forget(scene(NONE_LEFT).migration)
    assert waiting.left(scene(NONE_LEFT)) is None


def test_pauses_for_a_budget_grow_from_five_seconds_to_a_minute() -> None:
    waiting, moving = patience(FakeClock()), scene(NONE_LEFT).migration
    pauses = [waiting.for_budget(moving) for _ in range(200)]
    assert min(pauses) >= 5.0
    assert pauses[0] <= 10.0
    assert 55.0 < max(pauses) <= 60.0
