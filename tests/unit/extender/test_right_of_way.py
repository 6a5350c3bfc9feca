"""A thread stands aside while a request is answered, and is not kept from its work."""

from __future__ import annotations

import threading

from extender.right_of_way import RightOfWay


def gives(way: RightOfWay) -> threading.Thread:
    thread = threading.Thread(target=way.give)
    thread.start()
    return thread


def test_nobody_sleeps_while_nothing_is_asked() -> None:
    RightOfWay().give()


def test_the_thread_goes_on_when_the_answer_is_given() -> None:
    way = RightOfWay()
    with way:
        thread = gives(way)
    thread.join(10)
    assert not thread.is_alive()


def test_a_request_that_takes_for_ever_stops_nobody() -> None:
    way = RightOfWay()
    with way:
        thread = gives(way)
        thread.join(10)
        assert not thread.is_alive()
        way.give()


def test_every_request_is_given_its_own_time() -> None:
    naps: list[float] = []
    way = RightOfWay(naps.append)
    for _ in range(3):
        with way:
            way.give()
            way.give()
    assert len(naps) == 3 * 20
