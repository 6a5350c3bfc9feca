# SPDX-License-Identifier: Apache-2.0
"""Times as the API writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.kube.timestamps import micro_time, parse_time


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "1970-01-01T00:00:00.000000Z"),
        (1_794_819_216.123456, "2026-11-16T08:53:36.123456Z"),
        (1_794_819_216.0, "2026-11-16T08:53:36.000000Z"),
        (1_794_819_216.9999999, "2026-11-16T08:53:37.000000Z"),
        (-1.5, "1969-12-31T23:59:58.500000Z"),
    ],
)
def test_writes_six_digits_always(seconds: float, text: str) -> None:
    assert micro_time(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-11-16T08:53:36Z", 1_794_819_216.0),
        ("2026-11-16T08:53:36.5Z", 1_794_819_216.5),
        ("2026-11-16T08:53:36.123456Z", 1_794_819_216.123456),
        ("2026-11-16T08:53:36.123456789Z", 1_794_819_216.123456),
        ("2026-11-16T10:53:36+02:00", 1_794_819_216.0),
        ("2026-11-16T03:23:36.25-05:30", 1_794_819_216.25),
        ("0001-01-01T00:00:00Z", -62_135_596_800.0),
    ],
)
def test_reads_what_the_api_server_writes(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-11-16",
        "2026-11-16T08:53:36",
        "2026-11-16 08:53:36Z",
        "20261116T085336Z",
        "2026-W47-1T08:53:36Z",
        "2026-02-30T08:53:36Z",
        "2026-11-16T24:53:36Z",
        "2026-11-16T08:53:60Z",
        "2026-11-16T08:53:36.Z",
        "2026-11-16T08:53:36Z\n",
        "٢٠٢٦-11-16T08:53:36Z",
    ],
)
def test_refuses_everything_else(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are Python's for some of them
        parse_time(text)


@given(st.integers(min_value=0, max_value=4_000_000_000_000_000))
def test_microseconds_survive_the_way_there_and_back(micros: int) -> None:
    seconds = micros / 1e6
    assert round(parse_time(micro_time(seconds)) * 1e6) == micros
