# SPDX-License-Identifier: Apache-2.0
"""The token bucket counts on the clock that it is given."""

from __future__ import annotations

import asyncio

import pytest

from common.kube.throttle import TokenBucket
from tests.support.clock import FakeClock


class Crowd:
    """Takers that all want a token now."""

    def __init__(self, bucket: TokenBucket, size: int) -> None:
        self.through: list[int] = []
        self.tasks = [asyncio.create_task(self._take(bucket, number)) for number in range(size)]

    async def _take(self, bucket: TokenBucket, number: int) -> None:
        await bucket.take()
        self.through.append(number)

    async def leave(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_a_burst_passes_at_once_and_the_rest_in_order() -> None:
    clock = FakeClock()
    crowd = Crowd(TokenBucket(qps=10, burst=3, clock=clock), 6)
    await clock.advance(0)
    assert crowd.through == [0, 1, 2]
    await clock.advance(0.1)
    assert crowd.through == [0, 1, 2, 3]
    await clock.advance(0.2)
    assert crowd.through == [0, 1, 2, 3, 4, 5]


async def test_an_idle_hour_saves_up_no_more_than_the_burst() -> None:
    clock = FakeClock()
    bucket = TokenBucket(qps=10, burst=3, clock=clock)
    await clock.advance(3600)
    crowd = Crowd(bucket, 5)
    await clock.advance(0)
    assert len(crowd.through) == 3
    await crowd.leave()


async def test_who_gives_up_waiting_returns_the_token() -> None:
    clock = FakeClock()
    bucket = TokenBucket(qps=1, burst=1, clock=clock)
    impatient = Crowd(bucket, 100)
    await clock.advance(0)
    await impatient.leave()
    patient = Crowd(bucket, 1)
    await clock.advance(1)
    assert patient.through == [0]


async def test_wall_clock_jumps_change_nothing() -> None:
    clock = FakeClock()
    bucket = TokenBucket(qps=1, burst=1, clock=clock)
    await bucket.take()
    clock.jump_wall(1e6)
    crowd = Crowd(bucket, 1)
    await clock.advance(0.5)
    assert crowd.through == []
    clock.jump_wall(-2e6)
    await clock.advance(0.5)
    assert crowd.through == [0]


async def test_no_qps_means_no_limit() -> None:
    crowd = Crowd(TokenBucket(qps=0, burst=0, clock=FakeClock()), 1000)
    await asyncio.gather(*crowd.tasks)
    assert len(crowd.through) == 1000


def test_a_bucket_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="burst"):
        TokenBucket(qps=1, burst=0, clock=FakeClock())
