# SPDX-License-Identifier: Apache-2.0
"""Curves say their factor at a moment and their exact mean over a window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.nodes.curves import CONSTANT, Constant, CurveError, Leak, Spike, Wave, parse


@pytest.mark.parametrize(
    ("text", "moment_s", "factor"),
    [
        ("constant", 100, 1.0),
        ("wave period=100s depth=50%", 0, 1.0),
        ("wave period=100s depth=50%", 25, 1.5),
        ("wave period=100s depth=50%", 75, 0.5),
        ("spike after=10s for=5s times=3", 9.9, 1.0),
        ("spike after=10s for=5s times=3", 10, 3.0),
        ("spike after=10s for=5s times=3", 15, 1.0),
        ("spike after=10s for=5s times=3", 40, 1.0),
        ("spike after=10s for=5s times=3 every=30s", 42, 3.0),
        ("leak per=10s by=20% until=200%", 0, 1.0),
        ("leak per=10s by=20% until=200%", 25, 1.5),
        ("leak per=10s by=20% until=200%", 500, 2.0),
    ],
)
def test_a_curve_has_a_factor_at_every_moment(text: str, moment_s: float, factor: float) -> None:
    assert parse(text).at(moment_s) == pytest.approx(factor)


@given(
    curve=st.one_of(
        st.just(Constant()),
        st.builds(Wave, st.floats(5, 500), st.floats(0, 1), st.floats(0, 1)),
        st.builds(Spike, st.floats(0, 50), st.floats(1, 20), st.floats(0, 5), st.just(0.0)),
        st.builds(Spike, st.floats(0, 50), st.floats(1, 20), st.floats(0, 5), st.floats(25, 90)),
        st.builds(Leak, st.floats(1, 50), st.floats(0.01, 1), st.floats(1, 5)),
    ),
    begin_s=st.floats(0, 200),
    span_s=st.floats(1, 60),
)
def test_a_mean_is_what_adding_up_would_give(
    curve: Constant | Wave | Spike | Leak, begin_s: float, span_s: float
) -> None:
    steps = 4000
    moments = [begin_s + span_s * (number + 0.5) / steps for number in range(steps)]
    added_up = sum(map(curve.at, moments)) / steps
    assert curve.mean(begin_s, begin_s + span_s) == pytest.approx(added_up, rel=0.01, abs=0.01)


def test_an_empty_window_has_the_factor_of_its_moment() -> None:
    for curve in (CONSTANT, Wave(10, 0.5), Spike(0, 5, 3), Leak(10, 0.1, 2)):
        assert curve.mean(2.0, 2.0) == pytest.approx(curve.at(2.0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wav period=1m depth=1", "wav is not a curve"),
        ("wave period=1m", "wave needs depth"),
        ("wave period=1m depth=1 deep=2", "wave has no deep"),
        ("wave period=60 depth=1", "period=60 is not valid"),
        ("wave period=0s depth=1", "period=0s is out of range"),
        ("spike after=1s for=1s times=-2", "times=-2 is out of range"),
        ("leak per=1m by=0% until=2", "by=0% is out of range"),
    ],
)
def test_an_invalid_curve_is_rejected_with_a_message(text: str, message: str) -> None:
    with pytest.raises(CurveError, match=message):
        parse(text)
