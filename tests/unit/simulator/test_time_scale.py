# SPDX-License-Identifier: Apache-2.0
"""Simulated durations pass faster, in their order, and can be called off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from simulator.time_scale import Timers, TimeScale
from tests.support.clock import FakeClock


@asynccontextmanager
async def running(timers: Timers) -> AsyncIterator[None]:
    task = asyncio.create_task(timers.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_speed_makes_durations_shorter() -> None:
    clock = FakeClock()
    timers = Timers(TimeScale(clock, speed=10))
    done: list[str] = []
    timers.after(30, lambda: done.append("late"))
    async with running(timers):
        await clock.advance(2.9)
        assert not done
        await clock.advance(0.2)
    assert done == ["late"]


async def test_appointments_are_kept_in_their_order() -> None:
    clock = FakeClock()
    timers = Timers(TimeScale(clock))
    done: list[int] = []
    for seconds in (5, 1, 3):
        timers.after(seconds, lambda seconds=seconds: done.append(seconds))  # type: ignore[misc]
    async with running(timers):
        await clock.advance(10)
    assert done == [1, 3, 5]


async def test_an_earlier_appointment_wakes_the_agenda() -> None:
    clock = FakeClock()
    timers = Timers(TimeScale(clock))
    done: list[str] = []
    timers.after(100, lambda: done.append("later"))
    async with running(timers):
        await clock.advance(1)
        timers.after(1, lambda: done.append("sooner"))
        await clock.advance(2)
    assert done == ["sooner"]


async def test_what_is_called_off_does_not_happen() -> None:
    clock = FakeClock()
    timers = Timers(TimeScale(clock))
    done: list[str] = []
    timers.after(1, lambda: done.append("never")).cancel()
    async with running(timers):
        await clock.advance(2)
    assert not done


async def test_one_failure_does_not_stop_the_agenda() -> None:
    clock = FakeClock()
    timers = Timers(TimeScale(clock))
    done: list[str] = []
    timers.after(1, lambda: [][0])
    timers.after(2, lambda: done.append("still"))
    async with running(timers):
        await clock.advance(3)
    assert done == ["still"]


@pytest.mark.parametrize("speed", [0, -1])
def test_time_does_not_stand_still_or_go_back(speed: float) -> None:
    with pytest.raises(ValueError, match="speed"):
        TimeScale(FakeClock(), speed=speed)
