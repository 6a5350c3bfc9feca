# SPDX-License-Identifier: Apache-2.0
"""Turns: one at a time, first come first served, and time for others in between."""

from __future__ import annotations

import asyncio

from common.turns import Turns


async def test_one_waiter_goes_on_per_pass_of_the_loop_in_order() -> None:
    turns, passes, order = Turns(), [0], list[tuple[int, int]]()

    async def wait(number: int) -> None:
        await turns.take()
        order.append((number, passes[0]))

    def another_pass() -> None:
        passes[0] += 1
        asyncio.get_running_loop().call_soon(another_pass)

    another_pass()
    await asyncio.gather(*(wait(number) for number in range(5)))
    assert [number for number, _ in order] == [0, 1, 2, 3, 4]
    assert len({at for _, at in order}) == 5, "each in a pass of its own"


async def test_who_left_the_queue_takes_no_turn() -> None:
    turns = Turns()
    gone = [asyncio.create_task(turns.take()) for _ in range(3)]
    last = asyncio.create_task(turns.take())
    await asyncio.wait(gone, timeout=0)
    for task in gone:
        task.cancel()
    await last
    assert all(task.cancelled() or task.done() for task in gone)


async def test_a_burst_needs_no_distance_and_what_follows_does() -> None:
    turns = Turns(3_600.0, burst=5)
    for _ in range(5):
        await turns.take()
    late = asyncio.create_task(turns.take())
    await asyncio.wait([late], timeout=0.01)
    assert not late.done()
    late.cancel()
