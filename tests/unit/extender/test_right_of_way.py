"""A thread stands aside while a request is answered, and is not kept from its work."""

from __future__ import annotations

import threading

from common.clock import SYSTEM
from extender.right_of_way import RightOfWay
from tests.support.clock import FakeClock


def gives(way: RightOfWay) -> threading.Thread:
    thread = threading.Thread(target=way.give)
    thread.start()
    return thread


def test_nobody_sleeps_while_nothing_is_asked() -> None:
    naps: list[float] = []
    RightOfWay(FakeClock(), naps.append).give()
    assert naps == []


def test_the_thread_goes_on_when_the_answer_is_given() -> None:
    way = RightOfWay(SYSTEM)
    with way:
        thread = gives(way)
    thread.join(10)
    assert not thread.is_alive()


def test_a_request_that_takes_for_ever_stops_nobody() -> None:
    way = RightOfWay(SYSTEM)
    with way:
        thread = gives(way)
        thread.join(10)
        assert not thread.is_alive()
        way.give()


def test_it_looks_up_after_each_nap() -> None:
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            way.__exit__()

    way = RightOfWay(FakeClock(), nap)
    way.__enter__()
    way.give()
    assert len(naps) == 3


async def test_requests_without_a_pause_leave_it_half_of_the_time() -> None:
    clock, naps = FakeClock(), list[float]()
    way = RightOfWay(clock, naps.append)
    with way:
        for turn in range(1, 4):
            way.give()
            assert naps == [0.001] * 20 * turn
            way.give()
            await clock.advance(0.015)
            with way:
                way.give()
            assert naps == [0.001] * 20 * turn
            await clock.advance(0.01)
