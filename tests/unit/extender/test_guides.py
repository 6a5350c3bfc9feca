"""Who asks the extender, and how much of the cluster it is shown."""

from __future__ import annotations

import pytest

from extender.guides import Guides
from tests.support.clock import FakeClock


def guides() -> tuple[Guides, FakeClock]:
    clock = FakeClock(now=1_794_000_000.0)
    return Guides(clock), clock


def share(found: Guides, name: str = "default-scheduler") -> float:
    told = found.report()[name]["share"]
    assert isinstance(told, float)
    return told


def test_nobody_has_called_yet() -> None:
    assert guides()[0].report() == {}


async def test_the_last_call_is_told_per_scheduler() -> None:
    found, clock = guides()
    found.called("one", 10, 10)
    await clock.advance(1.5)
    found.called("two", 10, 10)
    assert found.report() == {
        "one": {"last": "2026-11-06T21:20:00.000000Z", "share": 1.0},
        "two": {"last": "2026-11-06T21:20:01.500000Z", "share": 1.0},
    }


@pytest.mark.parametrize(
    ("shown", "could", "told"),
    [
        (100, 400, 0.25),
        (400, 400, 1.0),
        (401, 400, 1.0),
        (99, 100, 0.99),
        # Of fewer than a hundred, all that fit are shown; what is missing was refused.
        (5, 99, 1.0),
        (0, 500, 0.0),
        (1, 3, 1.0),
    ],
)
def test_the_share_is_of_the_nodes_that_could_be_shown(shown: int, could: int, told: float) -> None:
    found, _ = guides()
    found.called("default-scheduler", shown, could)
    assert share(found) == told


async def test_the_best_of_the_last_ten_minutes_counts() -> None:
    found, clock = guides()
    found.called("default-scheduler", 400, 400)
    await clock.advance(300)
    found.called("default-scheduler", 100, 400)
    assert share(found) == 1.0
    await clock.advance(301)
    assert share(found) == 0.25


async def test_the_best_of_the_last_hundred_calls_counts() -> None:
    found, _ = guides()
    found.called("default-scheduler", 400, 400)
    for _ in range(99):
        found.called("default-scheduler", 100, 400)
    assert share(found) == 1.0
    found.called("default-scheduler", 100, 400)
    assert share(found) == 0.25


async def test_one_that_fell_silent_keeps_its_last_share() -> None:
    found, clock = guides()
    found.called("default-scheduler", 100, 400)
    await clock.advance(3600)
    assert share(found) == 0.25


async def test_the_share_is_wanted_once_a_second() -> None:
    found, clock = guides()
    assert found.wants_share("default-scheduler")
    found.called("default-scheduler", 5)
    assert found.wants_share("default-scheduler")
    assert "share" not in found.report()["default-scheduler"]
    found.called("default-scheduler", 5, 5)
    assert not found.wants_share("default-scheduler")
    await clock.advance(1)
    assert found.wants_share("default-scheduler")


async def test_any_number_of_names_takes_bounded_room() -> None:
    found, clock = guides()
    for number in range(100):
        found.called(f"scheduler-{number}", 1, 1)
        found.called("default-scheduler", 1, 1)
        await clock.advance(1)
    assert len(found.report()) == 32
    assert "default-scheduler" in found.report()
