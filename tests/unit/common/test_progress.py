# SPDX-License-Identifier: Apache-2.0
"""Work that should end again and again, and since when it has not."""

from __future__ import annotations

from common.progress import Progress
from tests.support.clock import FakeClock


def progress() -> tuple[Progress, FakeClock]:
    clock = FakeClock()
    return Progress("cycle of planning", clock), clock


async def test_nothing_is_expected_before_the_beginning_and_after_a_rest() -> None:
    work, clock = progress()
    await clock.advance(10_000)
    assert work.why_stuck() is None
    work.begin(10.0)
    work.rest()
    await clock.advance(10_000)
    assert work.why_stuck() is None


async def test_it_is_stuck_after_its_patience_and_says_since_when_and_where() -> None:
    work, clock = progress()
    work.begin(300.0)
    work.doing("planning")
    await clock.advance(300)
    assert work.why_stuck() is None
    await clock.advance(1)
    assert work.why_stuck() == (
        "no cycle of planning has ended since 2027-01-15T08:00:00Z, 301 s ago; "
        "at most 300 s are expected, and it is still planning"
    )


async def test_every_end_counts_from_the_beginning_again() -> None:
    work, clock = progress()
    work.begin(300.0)
    for _ in range(5):
        await clock.advance(299)
        work.ended(300.0)
    assert work.why_stuck() is None
    await clock.advance(301)
    assert work.why_stuck() is not None


async def test_time_without_an_api_server_does_not_count() -> None:
    work, clock = progress()
    work.begin(300.0)
    await clock.advance(1_000)
    cut_off_s = clock.monotonic()
    assert work.why_stuck() is not None
    assert work.why_stuck(cut_off_s) is None
    await clock.advance(300)
    assert work.why_stuck(cut_off_s) is None
    await clock.advance(1)
    assert work.why_stuck(cut_off_s) is not None


async def test_more_patience_counts_at_once_and_less_only_after_the_next_end() -> None:
    work, clock = progress()
    work.begin(300.0)
    work.expect(3_600.0)
    work.expect(300.0)
    await clock.advance(3_600)
    assert work.why_stuck() is None
    work.ended(300.0)
    await clock.advance(301)
    assert work.why_stuck() is not None


async def test_a_change_of_the_wall_clock_makes_nothing_late() -> None:
    work, clock = progress()
    work.begin(300.0)
    clock.jump_wall(86_400)
    assert work.why_stuck() is None
    clock.jump_wall(-2 * 86_400)
    await clock.advance(301)
    assert work.why_stuck() is not None
