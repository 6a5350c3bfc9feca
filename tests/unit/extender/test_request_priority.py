# SPDX-License-Identifier: Apache-2.0
"""A thread pauses while a request is answered, and cannot be starved."""

from __future__ import annotations

import threading

from common.clock import SYSTEM
from extender.request_priority import RequestPriority
from tests.support.clock import FakeClock


def yielding(priority: RequestPriority) -> threading.Thread:
    thread = threading.Thread(target=priority.yield_to_requests)
    thread.start()
    return thread


def test_no_thread_sleeps_without_a_request() -> None:
    naps: list[float] = []
    RequestPriority(FakeClock(), naps.append).yield_to_requests()
    assert naps == []


def test_the_thread_continues_after_the_answer() -> None:
    priority = RequestPriority(SYSTEM)
    with priority:
        thread = yielding(priority)
    thread.join(10)
    assert not thread.is_alive()


def test_a_request_that_never_ends_stops_no_thread() -> None:
    priority = RequestPriority(SYSTEM)
    with priority:
        thread = yielding(priority)
        thread.join(10)
        assert not thread.is_alive()
        priority.yield_to_requests()


def test_it_checks_after_each_nap() -> None:
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            priority.__exit__()

    priority = RequestPriority(FakeClock(), nap)
    priority.__enter__()
    priority.yield_to_requests()
    assert len(naps) == 3


async def test_requests_without_a_gap_leave_it_half_of_the_time() -> None:
    clock, naps = FakeClock(), list[float]()
    priority = RequestPriority(clock, naps.append)
    with priority:
        for turn in range(1, 4):
            priority.yield_to_requests()
            assert naps == [0.001] * 20 * turn
            priority.yield_to_requests()
            await clock.advance(0.015)
            with priority:
                priority.yield_to_requests()
            assert naps == [0.001] * 20 * turn
            await clock.advance(0.01)
