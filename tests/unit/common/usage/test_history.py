# SPDX-License-Identifier: Apache-2.0
"""A pod's smoothed value and its newest sample."""

from __future__ import annotations

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.load import Basis
from common.usage.history import PodHistory, first, follow
from common.usage.source import Usage
from tests.support.worlds.load import LoadWorld

SMOOTHING_S = 60.0


def played(*samples: tuple[float, float]) -> PodHistory:
    """Return the history after (time, milli-cores) in turn."""
    usages = [Usage(cpu, 2.0 * cpu, end_s, 15.0) for end_s, cpu in samples]
    page = first(usages[0])
    for usage in usages[1:]:
        page = follow(page, usage, SMOOTHING_S)
    return page


def test_the_first_sample_is_taken_as_it_is() -> None:
    assert played((0.0, 100.0)) == PodHistory(100.0, 200.0, 100.0, 200.0, 0.0)


def test_one_sample_counts_by_the_time_since_the_last() -> None:
    page = played((0.0, 0.0), (41.6, 100.0))

    assert page.cpu_milli == pytest.approx(50.0, abs=0.1)
    assert page.mem_bytes == pytest.approx(100.0, abs=0.2)
    assert (page.cpu_last_milli, page.mem_last_bytes) == (100.0, 200.0)


def test_an_old_level_is_forgotten_when_a_sample_would_expire() -> None:
    assert played((0.0, 100.0), (180.0, 0.0)).cpu_milli <= 5.0


@pytest.mark.parametrize("level", [400.0, 20.0])
def test_two_samples_in_a_row_far_on_the_same_side_are_a_step(level: float) -> None:
    assert played((0.0, 100.0), (15.0, level), (30.0, level)).cpu_milli == level


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param((400.0, 100.0, 400.0, 100.0), id="spikes that do not last"),
        pytest.param((120.0, 120.0, 120.0), id="too small a change"),
        pytest.param((60.0, 150.0, 60.0, 150.0), id="to both sides"),
    ],
)
def test_noise_is_no_step(samples: tuple[float, ...]) -> None:
    pairs = [(15.0 * (index + 1), cpu) for index, cpu in enumerate(samples)]
    cpu = 100.0
    for _, new in pairs:
        cpu += (1.0 - exp(-15.0 / SMOOTHING_S)) * (new - cpu)

    assert played((0.0, 100.0), *pairs).cpu_milli == pytest.approx(cpu)


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=30))
def test_the_smoothed_value_stays_between_the_extremes(figures: list[float]) -> None:
    page = played(*((15.0 * index, cpu) for index, cpu in enumerate(figures)))

    assert min(figures) - 1e-6 <= page.cpu_milli <= max(figures) + 1e-6
    assert page.cpu_last_milli == figures[-1]


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


def test_history_is_forgotten_when_the_pod_goes(world: LoadWorld) -> None:
    world.pod("p", uid="same")
    world.measure({"n1": (900.0, 900.0)}, {"p": (900.0, 900.0)})
    world.leave("p")
    world.pass_time(15.0)
    world.measure({"n1": (100.0, 100.0)})
    world.pod("p", uid="same")

    assert world.pod_load("p").basis is Basis.SPEC


def test_history_does_not_belong_to_the_node(world: LoadWorld) -> None:
    world.measure({"n1": (5000.0, 5000.0)}, {"p": (5000.0, 5000.0)})
    world.pass_time(60.0)
    world.measure({"n1": (5000.0, 5000.0)}, {"p": (5000.0, 5000.0)})
    world.leave("p")

    assert world.load().cpu_milli == 0.0
