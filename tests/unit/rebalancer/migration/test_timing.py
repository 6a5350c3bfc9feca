# SPDX-License-Identifier: Apache-2.0
"""How long a move waits after an eviction that was not accepted."""

from __future__ import annotations

import random
from typing import Any

from rebalancer.migration.timing import EvictionBackoff, Timing
from rebalancer.migration.verdicts import Wait
from rebalancer.migration.view import MigrationView
from rebalancer.refusals import Refusal
from tests.support.clock import FakeClock
from tests.support.worlds.migration_views import MigrationWorld

NONE_LEFT = {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2}
ONE_LEFT = {"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2}
NO = Refusal("PdbExhausted", "web needs 2 and has 2", permanent=False)


def view(budget: dict[str, Any]) -> MigrationView:
    return MigrationWorld({"budgets": {"web": budget}}).view()


def backoff_of(clock: FakeClock) -> EvictionBackoff:
    return EvictionBackoff(Timing(), clock, random.Random(1))


async def test_a_budget_that_changes_is_asked_again_but_not_at_once() -> None:
    clock = FakeClock()
    backoff = backoff_of(clock)
    backoff.pause(view(NONE_LEFT), Wait(NO, 40.0), early_after_s=5.0)
    await clock.advance(4.0)
    assert backoff.remaining(view(ONE_LEFT)) == Wait(NO, 1.0)
    await clock.advance(1.0)
    assert backoff.remaining(view(ONE_LEFT)) is None
    assert backoff.remaining(view(NONE_LEFT)) == Wait(NO, 35.0)
    await clock.advance(35.0)
    assert backoff.remaining(view(NONE_LEFT)) is None


async def test_a_busy_server_is_left_alone_whatever_changes() -> None:
    clock = FakeClock()
    backoff = backoff_of(clock)
    backoff.pause(view(NONE_LEFT), Wait(NO, 40.0))
    await clock.advance(30.0)
    assert backoff.remaining(view(ONE_LEFT)) == Wait(NO, 10.0)
    backoff.forget(view(NONE_LEFT).migration)
    assert backoff.remaining(view(NONE_LEFT)) is None


def test_pauses_for_a_budget_grow_from_five_seconds_to_a_minute() -> None:
    backoff, moving = backoff_of(FakeClock()), view(NONE_LEFT).migration
    pauses = [backoff.after_pdb_refusal_s(moving) for _ in range(200)]
    assert min(pauses) >= 5.0
    assert pauses[0] <= 10.0
    assert 55.0 < max(pauses) <= 60.0
