"""A pod's smoothed value and decayed peak."""

from __future__ import annotations

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.usage.history import PodHistory, first, follow
from common.usage.source import Usage
from tests.support.load_world import LoadWorld

SMOOTHING_S, PEAK_S = 60.0, 3600.0


def played(*samples: tuple[float, float]) -> PodHistory:
    """Return the history after (time, milli-cores) in turn."""
    usages = [Usage(cpu, 2.0 * cpu, end_s, 15.0) for end_s, cpu in samples]
    page = first(usages[0])
    for usage in usages[1:]:
        page = follow(page, usage, SMOOTHING_S, PEAK_S)
    return page


def test_the_first_sample_is_taken_as_it_is() -> None:
    assert played((0.0, 100.0)) == PodHistory(100.0, 200.0, 100.0, 200.0, 0.0)


def test_a_step_is_half_visible_after_its_half_life() -> None:
    page = played((0.0, 0.0), (41.6, 100.0))

    assert page.cpu_milli == pytest.approx(50.0, abs=0.1)
    assert page.mem_bytes == pytest.approx(100.0, abs=0.2)


def test_an_old_level_is_forgotten_when_a_sample_would_expire() -> None:
    assert played((0.0, 100.0), (180.0, 0.0)).cpu_milli <= 5.0


def test_how_often_samples_come_does_not_change_the_outcome() -> None:
    often = played((0.0, 0.0), *((float(s), 100.0) for s in range(10, 130, 10)))
    seldom = played((0.0, 0.0), (120.0, 100.0))

    assert often.cpu_milli == pytest.approx(seldom.cpu_milli)


def test_a_peak_stays_and_falls_back_towards_the_smoothed_value() -> None:
    page = played((0.0, 100.0), (15.0, 900.0), *((15.0 + 60.0 * m, 100.0) for m in range(1, 61)))

    assert page.cpu_milli == pytest.approx(100.0)
    assert page.cpu_peak_milli == pytest.approx(100.0 + 800.0 * exp(-1.0), rel=0.05)
    assert page.mem_peak_bytes == pytest.approx(2.0 * page.cpu_peak_milli)


def test_a_new_peak_counts_at_once() -> None:
    assert played((0.0, 100.0), (15.0, 900.0)).cpu_peak_milli == 900.0


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=30))
def test_the_smoothed_value_stays_between_the_extremes_and_below_the_peak(
    figures: list[float],
) -> None:
    page = played(*((15.0 * index, cpu) for index, cpu in enumerate(figures)))

    assert min(figures) - 1e-6 <= page.cpu_milli <= max(figures) + 1e-6
    assert page.cpu_milli <= page.cpu_peak_milli + 1e-6
    assert page.cpu_peak_milli <= max(figures) + 1e-6


@pytest.fixture
def world() -> LoadWorld:
    made = LoadWorld()
    made.node("n1")
    made.pod("p")
    return made


def test_a_book_smooths_what_it_observes(world: LoadWorld) -> None:
    world.measure({"n1": (100.0, 100.0)}, {"p": (100.0, 100.0)})
    world.pass_time(60.0)
    world.measure({"n1": (200.0, 200.0)}, {"p": (200.0, 200.0)})

    assert world.pod_load("p").cpu_milli == pytest.approx(200.0 - 100.0 * exp(-1.0))


def test_the_same_sample_is_not_counted_twice(world: LoadWorld) -> None:
    world.measure({"n1": (100.0, 100.0)}, {"p": (100.0, 100.0)})
    world.pass_time(60.0)
    world.measure({"n1": (200.0, 200.0)}, {"p": (200.0, 200.0)})
    once = world.pod_load("p")
    for _ in range(5):
        world.measure({"n1": (200.0, 200.0)}, {"p": (200.0, 200.0)})

    assert world.pod_load("p") == once


def test_a_sample_that_comes_late_is_not_counted(world: LoadWorld) -> None:
    world.measure({"n1": (100.0, 100.0)}, {"p": (100.0, 100.0)})
    world.measure({"n1": (900.0, 900.0)}, {"p": (900.0, 900.0)}, end_s=world.now_s - 30.0)

    assert world.pod_load("p").cpu_milli == 100.0


def test_a_peak_can_be_asked_for(world: LoadWorld) -> None:
    uid = world.pod("p")
    assert world.view().pod_peak(uid) is None
    world.measure({"n1": (900.0, 900.0)}, {"p": (900.0, 900.0)})
    world.pass_time(60.0)
    world.measure({"n1": (100.0, 100.0)}, {"p": (100.0, 100.0)})
    peak = world.view().pod_peak(uid)

    assert peak is not None
    assert world.pod_load("p").cpu_milli < 500.0 < peak.cpu_milli


def test_history_is_forgotten_when_the_pod_goes(world: LoadWorld) -> None:
    uid = world.pod("p", uid="same")
    world.measure({"n1": (900.0, 900.0)}, {"p": (900.0, 900.0)})
    world.leave("p")
    world.pass_time(15.0)
    world.measure({"n1": (100.0, 100.0)})

    assert world.view().pod_peak(uid) is None


def test_history_does_not_belong_to_the_node(world: LoadWorld) -> None:
    world.measure({"n1": (5000.0, 5000.0)}, {"p": (5000.0, 5000.0)})
    world.pass_time(60.0)
    world.measure({"n1": (5000.0, 5000.0)}, {"p": (5000.0, 5000.0)})
    world.leave("p")

    assert world.load().cpu_milli == 0.0
