# SPDX-License-Identifier: Apache-2.0
"""Openings around changes of clocks, compared with a walk over every minute that passes.

The walk knows nothing of offsets: it reads the clock on the wall minute by minute, and sees what
was skipped and what it has seen before.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from common.config import Duration, Window

MINUTE = timedelta(minutes=1)
CASES = 4
CHANGES = [
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-11-01"),
    ("America/Havana", "2026-11-01"),  # at midnight
    ("America/Nuuk", "2026-03-28"),  # an hour before midnight
    ("Australia/Lord_Howe", "2026-04-05"),  # by half an hour
    ("Australia/Lord_Howe", "2026-10-04"),
    ("Pacific/Chatham", "2026-09-27"),  # 45 minutes off
    ("Antarctica/Troll", "2026-03-29"),  # by two hours
    ("Antarctica/Troll", "2026-10-25"),
    ("Europe/Dublin", "2026-03-29"),  # winter is the exception there
    ("Africa/Casablanca", "2026-02-15"),
]


def expression(dice: random.Random) -> tuple[str, str]:
    """Return minutes and hours with few hits, because each is searched for."""
    one, other = dice.randint(0, 29), dice.randint(30, 59)
    minutes = dice.choice([f"{one}", f"{one},{other}", f"{one}-59/20", "*/15", "*/20"])
    return minutes, dice.choice(["0-4", "1,2", "2", "1-3/2", "*", "23", "*/5"])


def values(text: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        begin, _, end = (f"{low}-{high}" if span == "*" else span).partition("-")
        found.update(range(int(begin), int(end or begin) + 1, int(step or 1)))
    return found


def walked(minutes: str, hours: str, zone: str, begin: datetime, end: datetime) -> Iterator[float]:
    """Yield the openings that someone notes who looks at the clock once a minute."""
    clock, follows = ZoneInfo(zone), "*" in (minutes[0], hours[0])
    wanted = values(minutes, 0, 59), values(hours, 0, 23)
    now, seen = begin - timedelta(days=1), {datetime.min}
    last = now.astimezone(clock).replace(tzinfo=None, fold=0) - MINUTE

    def hits(shown: datetime) -> bool:
        return shown.minute in wanted[0] and shown.hour in wanted[1]

    while now < end:
        shown = now.astimezone(clock).replace(tzinfo=None, fold=0)
        skipped = [last + n * MINUTE for n in range(1, max(1, (shown - last) // MINUTE))]
        late = not follows and any(map(hits, skipped))
        if now >= begin and (late or (hits(shown) and (follows or shown not in seen))):
            yield now.timestamp()
        seen.add(shown)
        last, now = shown, now + MINUTE


@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_openings_are_those_of_a_walk_over_every_minute(zone: str, day: str) -> None:
    dice = random.Random(f"{zone} {day}")
    begin = datetime.fromisoformat(f"{day}T00:00").replace(tzinfo=UTC) - timedelta(hours=13)
    end = begin + timedelta(hours=28)
    for _ in range(CASES):
        minutes, hours = expression(dice)
        asked = Window(schedule=f"{minutes} {hours} * * *", duration=Duration("1h"), time_zone=zone)
        found, now_s = [], begin.timestamp() - 1
        while (now_s := asked.opens_s(now_s) or 0.0) < end.timestamp():
            found.append(now_s)
        assert found == [*walked(minutes, hours, zone, begin, end)], asked
