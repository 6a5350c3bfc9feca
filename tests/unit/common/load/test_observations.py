# SPDX-License-Identifier: Apache-2.0
"""A goal is broken when several new samples in a row say so."""

from __future__ import annotations

import pytest

from common.load import Observations


def look(
    observations: Observations[str], script: str, level: float = 90.0, after_s: float = 0.0
) -> list[bool]:
    """Play new samples, B for one that breaks the goal and g for one that does not."""
    return [
        observations.observe("n1", broken=sign == "B", sample_s=after_s + number, levels=(level,))
        for number, sign in enumerate(script, 1)
    ]


@pytest.mark.parametrize(
    ("script", "broken"),
    [
        pytest.param("B", False, id="one is chance"),
        pytest.param("BB", False, id="two may be"),
        pytest.param("BBB", True, id="three are not"),
        pytest.param("BBgB", True, id="one good one neither counts nor clears"),
        pytest.param("BBggB", False, id="two good ones clear"),
        pytest.param("BBBg", True, id="one good one does not end it"),
        pytest.param("BBBgg", False, id="two do"),
        pytest.param("BBBggBB", False, id="then it takes three again"),
        pytest.param("BBBggBBB", True, id="and three are enough again"),
        pytest.param("gBgBgB", True, id="good ones must be in a row to clear"),
        pytest.param("gggg", False, id="all is well"),
    ],
)
def test_three_new_samples_break_a_goal_and_two_good_ones_clear_it(
    script: str, broken: bool
) -> None:
    assert look(Observations(), script)[-1] is broken


def test_the_numbers_are_settings() -> None:
    assert look(Observations(needed=1), "B") == [True]
    assert look(Observations(needed=1, to_clear=1), "Bg") == [True, False]


def test_looking_twice_at_a_sample_counts_once() -> None:
    observations: Observations[str] = Observations()
    for _ in range(5):
        broken = observations.observe("n1", broken=True, sample_s=7.0, levels=(90.0,))

    assert not broken
    assert observations.count("n1") == 1


def test_without_samples_every_look_counts() -> None:
    observations: Observations[str] = Observations()
    looks = [
        observations.observe("n1", broken=True, sample_s=None, levels=(90.0,)) for _ in range(3)
    ]

    assert looks == [False, False, True]


def test_our_own_move_restarts_the_count_and_the_sample_at_hand_does_not_count() -> None:
    observations: Observations[str] = Observations()
    look(observations, "BBB")
    observations.restart("n1")
    again = observations.observe("n1", broken=True, sample_s=3.0, levels=(90.0,))

    assert not again
    assert observations.count("n1") == 0
    assert look(observations, "BBB", after_s=3.0) == [False, False, True]


@pytest.mark.parametrize("level", [90.0, 100.0, 81.0, 115.0])
def test_a_node_whose_load_is_high_and_restless_is_counted(level: float) -> None:
    observations: Observations[str] = Observations()
    look(observations, "BB", level=90.0)

    assert look(observations, "B", level=level, after_s=2.0) == [True]


@pytest.mark.parametrize(
    ("level", "broken"),
    [
        pytest.param(80.0, True, id="ordinary churn"),
        pytest.param(79.9, False, id="more than a tenth of allocatable"),
    ],
)
def test_a_goal_that_is_met_by_a_jump_restarts_the_count(level: float, broken: bool) -> None:
    observations: Observations[str] = Observations()
    look(observations, "BBB", level=90.0)
    look(observations, "G", level=level, after_s=3.0)

    assert look(observations, "B", level=90.0, after_s=4.0) == [broken]


def test_a_slow_drift_does_not_restart_the_count() -> None:
    observations: Observations[str] = Observations()
    for sample_s, level in enumerate((80.0, 88.0, 96.0)):
        (broken,) = look(observations, "B", level=level, after_s=sample_s)

    assert broken


def test_a_change_within_one_sample_restarts_the_count_without_counting_it_again() -> None:
    observations: Observations[str] = Observations()
    look(observations, "BBB", level=90.0)
    broken = observations.observe("n1", broken=True, sample_s=3.0, levels=(70.0,))

    assert not broken
    assert observations.count("n1") == 0


def test_any_of_several_levels_restarts_the_count() -> None:
    observations: Observations[tuple[str, str]] = Observations()
    pair = ("pool", "cpu")
    for sample_s, levels in enumerate([(90.0, 20.0), (90.0, 20.0), (90.0, 20.0)]):
        observations.observe(pair, broken=True, sample_s=float(sample_s), levels=levels)
    broken = observations.observe(pair, broken=True, sample_s=2.0, levels=(90.0, 31.0))

    assert not broken
    assert observations.count(pair) == 0


def test_things_observed_are_counted_apart() -> None:
    observations: Observations[str] = Observations()
    look(observations, "BBB")

    assert not observations.observe("n2", broken=True, sample_s=9.0, levels=(90.0,))
    assert (observations.count("n1"), observations.count("n2")) == (3, 1)


def test_what_is_not_kept_is_forgotten() -> None:
    observations: Observations[str] = Observations()
    look(observations, "BBB")
    observations.keep({"n2"})

    assert observations.count("n1") == 0
    assert look(observations, "B") == [False]
    observations.restart("never seen")
