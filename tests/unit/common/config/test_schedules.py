# SPDX-License-Identifier: Apache-2.0
"""Windows open at the hits of cron in their time zone, also on days on which clocks change.

Clocks of Europe/Berlin skip 02:00 to 03:00 on 2026-03-29 and pass it twice on 2026-10-25, those
of America/New_York do the same on 2026-03-08 and 2026-11-01 (01:00 to 02:00 twice), and those of
Australia/Lord_Howe are changed by half an hour: 02:00 to 02:30 is skipped on 2026-10-04, and
01:30 to 02:00 passes twice on 2026-04-05. Those of America/Santiago skip the first hour of
2026-09-06 and pass the last one of 2026-04-04 twice; those of Africa/Cairo skip the first hour of
2026-04-24; those of Africa/Casablanca are an hour behind in Ramadan (02:00 to 03:00 twice on
2026-02-15, skipped on 2026-03-22); those of Antarctica/Troll are changed by two hours.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from common.config import Duration, Window, next_opening

SANTIAGO, CAIRO = "America/Santiago", "Africa/Cairo"
CASABLANCA, TROLL = "Africa/Casablanca", "Antarctica/Troll"
BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def at(text: str) -> float:
    """Return a moment that is written with its offset."""
    return datetime.fromisoformat(text).timestamp()


def window(schedule: str, zone: str = "UTC", duration: str = "1h") -> Window:
    return Window(schedule=schedule, duration=Duration(duration), time_zone=zone)


def hits(schedule: str, zone: str, begin: str, end: str) -> list[str]:
    """Return the openings between two moments, in the time of the zone."""
    asked, now_s, found = window(schedule, zone), at(begin) - 1, []
    while (now_s := asked.opens_s(now_s) or 0.0) < at(end):
        found.append(datetime.fromtimestamp(now_s, ZoneInfo(zone)).isoformat(timespec="minutes"))
    return found


@pytest.mark.parametrize(
    ("schedule", "zone", "day", "expected"),
    [
        ("30 1 * * *", BERLIN, "2026-03-29", ["01:30+01:00"]),
        ("30 2 * * *", BERLIN, "2026-03-29", ["03:00+02:00"]),
        ("0 2 * * *", BERLIN, "2026-03-29", ["03:00+02:00"]),
        ("0 3 * * *", BERLIN, "2026-03-29", ["03:00+02:00"]),
        ("0 2,3 * * *", BERLIN, "2026-03-29", ["03:00+02:00"]),
        ("30 2 * * *", BERLIN, "2026-10-25", ["02:30+02:00"]),
        ("0 3 * * *", BERLIN, "2026-10-25", ["03:00+01:00"]),
        ("30 2 * * *", NEW_YORK, "2026-03-08", ["03:00-04:00"]),
        ("30 1 * * *", NEW_YORK, "2026-11-01", ["01:30-04:00"]),
        ("0 22 * * *", NEW_YORK, "2026-11-01", ["22:00-05:00"]),
        ("15 2 * * *", LORD_HOWE, "2026-10-04", ["02:30+11:00"]),
        ("30 2 * * *", LORD_HOWE, "2026-10-04", ["02:30+11:00"]),
        ("45 1 * * *", LORD_HOWE, "2026-04-05", ["01:45+11:00"]),
        ("0 2 * * *", LORD_HOWE, "2026-04-05", ["02:00+10:30"]),
        ("0 0 * * *", SANTIAGO, "2026-09-06", ["01:00-03:00"]),
        ("30 0 6 9 *", SANTIAGO, "2026-09-06", ["01:00-03:00"]),
        ("30 23 * * *", SANTIAGO, "2026-04-04", ["23:30-03:00"]),
        ("0 0 * * FRI", CAIRO, "2026-04-24", ["01:00+03:00"]),
        ("30 2 * * *", CASABLANCA, "2026-02-15", ["02:30+01:00"]),
        ("30 2 * * *", CASABLANCA, "2026-03-22", ["03:00+01:00"]),
        ("0 1,2,3 * * *", TROLL, "2026-03-29", ["03:00+02:00"]),
        ("30 1,2 * * *", TROLL, "2026-10-25", ["01:30+02:00", "02:30+02:00"]),
        # With a star hits follow the clock on the wall.
        ("0 */2 * * *", SANTIAGO, "2026-09-06", [f"{h:02}:00-03:00" for h in range(2, 24, 2)]),
        ("*/30 1 * * *", TROLL, "2026-03-29", []),
        ("*/30 2 * * *", BERLIN, "2026-03-29", []),
        (
            "*/30 2 * * *",
            BERLIN,
            "2026-10-25",
            ["02:00+02:00", "02:30+02:00", "02:00+01:00", "02:30+01:00"],
        ),
        ("*/15 2 * * *", LORD_HOWE, "2026-10-04", ["02:30+11:00", "02:45+11:00"]),
        (
            "*/15 2 * * *",
            LORD_HOWE,
            "2026-04-05",
            ["02:00+10:30", "02:15+10:30", "02:30+10:30", "02:45+10:30"],
        ),
        (
            "*/15 1 * * *",
            LORD_HOWE,
            "2026-04-05",
            [
                *("01:00+11:00", "01:15+11:00", "01:30+11:00", "01:45+11:00"),
                *("01:30+10:30", "01:45+10:30"),
            ],
        ),
    ],
)
def test_openings_on_days_on_which_clocks_change(
    schedule: str, zone: str, day: str, expected: list[str]
) -> None:
    begin = datetime.fromisoformat(f"{day}T00:00").replace(tzinfo=ZoneInfo(zone))
    end = begin.replace(tzinfo=None) + timedelta(days=1)
    found = hits(schedule, zone, begin.isoformat(), end.replace(tzinfo=ZoneInfo(zone)).isoformat())
    assert found == [f"{day}T{each}" for each in expected]


@pytest.mark.parametrize(
    ("zone", "opens", "closes"),
    [
        # Eight hours pass, whatever the clock on the wall shows then.
        (BERLIN, "2026-03-28T22:00+01:00", "2026-03-29T07:00+02:00"),
        (BERLIN, "2026-10-24T22:00+02:00", "2026-10-25T05:00+01:00"),
        (NEW_YORK, "2026-03-07T22:00-05:00", "2026-03-08T07:00-04:00"),
        (NEW_YORK, "2026-10-31T22:00-04:00", "2026-11-01T05:00-05:00"),
        (LORD_HOWE, "2026-10-03T22:00+10:30", "2026-10-04T06:30+11:00"),
        (LORD_HOWE, "2026-04-04T22:00+11:00", "2026-04-05T05:30+10:30"),
    ],
)
def test_a_window_is_open_for_its_duration(zone: str, opens: str, closes: str) -> None:
    night = window("0 22 * * *", zone, "8h")
    assert [night.is_open(at(opens) + s) for s in (-1, 0, 1)] == [False, True, True]
    assert [night.is_open(at(closes) + s) for s in (-1, 0)] == [True, False]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("@daily", ["2026-11-20", "2026-11-21"]),
        ("@weekly", ["2026-11-22", "2026-11-29"]),
        (" @monthly ", ["2026-12-01", "2027-01-01"]),
        ("@yearly", ["2027-01-01", "2028-01-01"]),
        ("0 0 29 2 *", ["2028-02-29", "2032-02-29"]),
        ("0 0 29 2 */7", ["2032-02-29", "2060-02-29"]),  # with a star, both have to match
        ("0 0 31 * *", ["2026-12-31", "2027-01-31"]),
        ("0 0 L * *", ["2026-11-30", "2026-12-31"]),
        ("0 0 L 2 *", ["2027-02-28", "2028-02-29"]),
        ("0 0 LW 2 *", ["2027-02-26", "2028-02-29"]),
        ("0 0 * * 5L", ["2026-11-27", "2026-12-25"]),
        ("0 0 * * MON#5", ["2026-11-30", "2027-03-29"]),
        ("0 0 13 * FRI", ["2026-11-20", "2026-11-27"]),  # either is enough
        ("0 0 13 2 7", ["2027-02-07", "2027-02-13"]),
        ("0 0 */2 * MON", ["2026-11-23", "2026-12-07"]),
        ("0 0 ? * MON", ["2026-11-23", "2026-11-30"]),
        ("0 0 31 * ?", ["2026-12-31", "2027-01-31"]),
    ],
)
def test_days_on_which_a_window_opens(schedule: str, expected: list[str]) -> None:
    asked, now_s, found = window(schedule), at("2026-11-19T12:00Z"), []
    for _ in expected:
        now_s = asked.opens_s(now_s) or 0.0
        found.append(datetime.fromtimestamp(now_s, UTC).date().isoformat())
    assert found == expected


@pytest.mark.parametrize("duration", ["25h", "24h", "48h", "1000h"])
def test_a_window_that_is_longer_than_its_period_is_always_open(duration: str) -> None:
    for zone in (BERLIN, NEW_YORK, LORD_HOWE, "UTC"):
        asked = window("0 3 * * *", zone, duration)
        hours = range(0, 366 * 24, 5)
        begin = at("2026-01-10T00:00Z")
        shut = [h for h in hours if not asked.is_open(begin + 3600.0 * h)]
        # A day of 25 hours is longer than 24.
        assert len(shut) <= (duration == "24h" and zone != "UTC")


def test_a_window_on_leap_days_stays_open_over_the_year() -> None:
    asked = window("0 12 29 2 *", BERLIN, "24h")
    assert asked.is_open(at("2028-03-01T11:59+01:00"))
    assert not asked.is_open(at("2028-03-01T12:00+01:00"))
    assert str(next_opening((asked,), at("2028-03-01T12:00+01:00"))) == (
        "2032-02-29 12:00 Europe/Berlin"
    )


def test_a_window_in_skipped_time_opens_once_and_closes() -> None:
    skipped = window("30 2 * * *", BERLIN, "30m")
    begin = at("2026-03-29T03:00+02:00")
    states = [skipped.is_open(begin + minutes * 60) for minutes in (-1, 0, 29, 30, 60)]
    assert states == [False, True, True, False, False]


def test_a_schedule_is_open_while_one_of_its_windows_is() -> None:
    schedule = (window("0 22 * * *"), window("0 6 * * SAT", duration="12h"))
    assert next_opening(schedule, at("2026-11-18T22:30Z")) is None
    assert next_opening(schedule, at("2026-11-21T17:59Z")) is None
    opening = next_opening(schedule, at("2026-11-21T18:00Z"))
    assert str(opening) == "2026-11-21 22:00 UTC"
    assert next_opening((), 0.0) is None


def test_an_opening_is_told_in_the_time_of_its_zone() -> None:
    opening = next_opening((window("0 22 * * MON-FRI", BERLIN),), at("2026-03-27T23:30Z"))
    assert str(opening) == "2026-03-30 22:00 Europe/Berlin"


@given(
    st.sampled_from(["* * * * *", "0 * * * *", "*/20 1-3 * * *", "30 2 * * *", "0 0 1,15 * MON"]),
    st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE, "UTC"]),
    st.integers(0, 365 * 24 * 3600),
)
def test_a_window_is_open_from_its_opening_on(schedule: str, zone: str, offset_s: int) -> None:
    now_s = datetime(2026, 1, 1, tzinfo=UTC).timestamp() + offset_s
    asked = window(schedule, zone, "5m")
    opens_s = asked.opens_s(now_s)
    assert opens_s is not None
    assert opens_s > now_s
    assert asked.is_open(opens_s)
    if not asked.is_open(now_s):
        assert not asked.is_open(opens_s - 1)


@settings(max_examples=25)
@given(st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE]), st.integers(0, 364))
def test_every_minute_is_a_hit_of_five_stars(zone: str, day: int) -> None:
    """Where every minute of the wall clock counts, no minute that passes is left out."""
    begin_s = datetime(2026, 1, 1, tzinfo=UTC).timestamp() + day * 86_400 + 3 * 3600
    asked, found = window("* * * * *", zone), [begin_s]
    for _ in range(5):
        found.append(asked.opens_s(found[-1]) or 0.0)
    assert {b - a for a, b in pairwise(found)} == {60.0}


@pytest.mark.parametrize(
    ("given_", "why"),
    [
        ({"schedule": "0 22 * *"}, "five fields"),
        ({"schedule": "0 0 22 * * *"}, "five fields"),
        ({"schedule": "@reboot"}, "five fields"),
        ({"schedule": "TZ=Europe/Berlin 0 22 * * *"}, "five fields"),
        ({"schedule": "0 0 * * FRI-MON"}, "bad day-of-week"),
        ({"schedule": "0 ? * * *"}, "bad hour"),
        ({"schedule": "0 0 ?/2 * *"}, "bad day-of-month"),
        ({"schedule": "0 25 * * *"}, "bad hour"),
        ({"schedule": "0 0 31 2 *"}, "bad day-of-month"),
        ({"schedule": "0 0 * * 1#2/3"}, "not a schedule"),
        ({"schedule": "0 0 * 2 MON#5", "timeZone": "Europe"}, "not a time zone"),
        ({"timeZone": "Mars/Olympus"}, "not a time zone"),
        ({"timeZone": "../etc/passwd"}, "not a time zone"),
        ({"timeZone": "localtime"}, "not a time zone"),
        ({"timeZone": "right/Europe/Berlin"}, "not a time zone"),
        ({"timeZone": "Factory"}, "not a time zone"),
        ({"schedule": "7-7/5 * * * *"}, "7-7/ has only 7 to step through"),
        ({"schedule": "0 22,05-5/2 * * *"}, "has only 5 to step through"),
        ({"duration": "0s"}, "longer than 0s"),
    ],
)
def test_a_window_that_cannot_be_read_is_refused(given_: dict[str, str], why: str) -> None:
    values = {"schedule": "0 22 * * *", "duration": "8h"} | given_
    with pytest.raises(ValidationError, match=why):
        Window.model_validate(values)
