# SPDX-License-Identifier: Apache-2.0
"""Durations: a number with its unit, exact to the millisecond."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.config import Duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("100ms", 0.1),
        ("1.5h", 5400),
        ("1h0m0s", 3600),
        ("0s", 0),
        ("0.5s", 0.5),
        ("2m30.25s", 150.25),
        ("8784h", 366 * 24 * 3600),
    ],
)
def test_reads_what_people_write(text: str, seconds: float) -> None:
    assert Duration(text).seconds == seconds
    assert str(Duration(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "30", "s", "-5s", "+5s", "5 s", " 5s", "5s ", "5S", "1d", "1.s", ".5s", "1e3s", "5s\n",
     "٣s", "5us", "nan", "inf", "1h-5m"],
)  # fmt: skip
def test_refuses_everything_else(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write 30s, 5m or 1h"):
        Duration(text)


def test_refuses_what_a_clock_cannot_tell_apart() -> None:
    with pytest.raises(ValueError, match=re.escape("0.5ms is finer than a millisecond")):
        Duration("0.5ms")


@pytest.mark.parametrize("text", ["8785h", "9" * 400 + "h"])
def test_refuses_more_than_a_year(text: str) -> None:
    with pytest.raises(ValueError, match="is longer than a year"):
        Duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (90, "1m30s"), (0.05, "50ms"), (3661.5, "1h1m1s500ms")]
)
def test_seconds_are_spelt_out(seconds: float, text: str) -> None:
    assert str(Duration(seconds)) == text


@given(st.integers(0, 366 * 24 * 3_600_000))
def test_spelling_and_reading_are_inverse(millis: int) -> None:
    assert Duration(str(Duration(millis / 1000))) == millis / 1000


@given(st.text(alphabet="0123456789.hms ", max_size=12))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    try:
        duration = Duration(text)
    except ValueError:
        return
    assert duration >= 0


def test_copies_keep_the_spelling() -> None:
    duration = Duration("90s")
    for twin in (copy.deepcopy(duration), pickle.loads(pickle.dumps(duration))):
        assert (twin, str(twin), repr(twin)) == (90, "90s", "Duration('90s')")


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_a_number_that_is_no_duration_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        Duration(seconds)
