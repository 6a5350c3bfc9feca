# SPDX-License-Identifier: Apache-2.0
"""Waiting on a clock that tests turn by hand, and giving up in time."""

from __future__ import annotations

import asyncio

import pytest

from common.clock import within
from tests.support.clock import FakeClock


async def test_work_that_ends_in_time_gives_its_result() -> None:
    clock = FakeClock()

    async def work() -> str:
        await clock.sleep(5)
        return "done"

    task = asyncio.create_task(within(clock, 10, work()))
    await clock.advance(5)
    assert await task == "done"
    assert clock.sleeping == 0


async def test_work_that_takes_too_long_is_cancelled_before_the_error_comes() -> None:
    clock = FakeClock()
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(within(clock, 10, work()))
    await clock.advance(9.9)
    assert not task.done()
    await clock.advance(0.1)
    with pytest.raises(TimeoutError, match="nothing within 10 s"):
        await task
    assert ended.is_set()


async def test_the_errors_of_the_work_are_the_callers() -> None:
    async def work() -> None:
        raise LookupError("not there")

    with pytest.raises(LookupError):
        await within(FakeClock(), 10, work())


async def test_a_cancelled_wait_leaves_nobody_behind() -> None:
    clock = FakeClock()
    task = asyncio.create_task(within(clock, 10, asyncio.Event().wait()))
    await clock.advance(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(asyncio.all_tasks()) == 1
