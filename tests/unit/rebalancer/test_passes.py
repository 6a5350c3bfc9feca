# SPDX-License-Identifier: Apache-2.0
"""A pass is repeated: at once, after changes but not too often, and periodically."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from rebalancer.passes import Passes
from tests.support.clock import FakeClock

PAUSE_S, EVERY_S = 0.5, 30.0


@dataclass
class Stand:
    """Counts passes; `during` happens in each of them."""

    clock: FakeClock
    passes: Passes
    count: int = 0
    during: list[Callable[[], None]] = field(default_factory=list)

    async def reconcile(self) -> None:
        self.count += 1
        for happens in self.during:
            happens()


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    clock = FakeClock()
    made = Stand(clock, Passes(clock, pause_s=PAUSE_S, every_s=EVERY_S))
    running = asyncio.create_task(made.passes.run(made.reconcile, "pass failed"))
    await clock.until_sleeping()
    yield made
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_the_first_pass_comes_at_once(stand: Stand) -> None:
    assert stand.count == 1


async def test_without_changes_it_is_repeated_periodically(stand: Stand) -> None:
    await stand.clock.advance(PAUSE_S + EVERY_S - 0.1)
    assert stand.count == 1
    await stand.clock.advance(0.2)
    assert stand.count == 2


async def test_a_change_leads_to_one_more_pass_after_the_pause(stand: Stand) -> None:
    for _ in range(3):
        stand.passes.on_change(None, object())
    await stand.clock.advance(PAUSE_S - 0.1)
    assert stand.count == 1
    await stand.clock.advance(0.2)
    assert stand.count == 2
    await stand.clock.advance(EVERY_S - 1.0)
    assert stand.count == 2


async def test_a_change_during_a_pass_leads_to_another(stand: Stand) -> None:
    stand.during.append(lambda: stand.passes.request() if stand.count == 2 else None)
    stand.passes.request()
    await stand.clock.advance(PAUSE_S + 0.1)
    assert stand.count == 2
    await stand.clock.advance(PAUSE_S)
    assert stand.count == 3


async def test_a_pass_that_fails_is_logged_and_followed_by_the_next(stand: Stand) -> None:
    def fails() -> None:
        raise ValueError("malformed")

    stand.during.append(fails)
    stand.passes.request()
    with capture_logs() as logs:
        await stand.clock.advance(PAUSE_S + 0.1)
    assert [each["event"] for each in logs] == ["pass failed"]
    stand.during.clear()
    stand.passes.request()
    await stand.clock.advance(PAUSE_S)
    assert stand.count == 3
