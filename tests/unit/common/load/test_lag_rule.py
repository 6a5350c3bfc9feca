# SPDX-License-Identifier: Apache-2.0
"""A sample that cannot know a pod does not speak for it."""

from __future__ import annotations

import pytest

from common.load import Basis
from tests.support.worlds.load import MIB, START_S, LoadWorld, usage


@pytest.fixture
def world() -> LoadWorld:
    made = LoadWorld()
    made.node("n1")
    return made


@pytest.mark.parametrize(
    ("scheduled_before_window_s", "basis"),
    [
        pytest.param(3600.0, Basis.MEASURED, id="long before"),
        pytest.param(1.0, Basis.MEASURED, id="a second before: certainly there"),
        pytest.param(0.0, Basis.SPEC, id="in the same second: perhaps after"),
        pytest.param(-30.0, Basis.SPEC, id="in the middle of the window"),
        pytest.param(-60.0, Basis.SPEC, id="at its end"),
        pytest.param(-90.0, Basis.SPEC, id="after it"),
    ],
)
def test_a_pod_is_measured_only_by_a_window_that_began_after_it_was_scheduled(
    world: LoadWorld, scheduled_before_window_s: float, basis: Basis
) -> None:
    world.pod("p", scheduled_s=START_S - 60.0 - scheduled_before_window_s, requests=("1", "1Gi"))
    world.pass_time(120.0)

    world.measure({"n1": (500.0, 500.0)}, {"p": (40.0, 40.0)}, end_s=START_S)

    assert world.pod_load("p").basis is basis


def test_a_pod_without_a_sample_is_estimated(world: LoadWorld) -> None:
    world.pod("p", requests=("1", "1Gi"))
    world.measure({"n1": (500.0, 500.0)})

    assert world.pod_load("p").basis is Basis.SPEC


def test_a_pod_that_the_sample_of_its_node_contains_is_not_added_to_it(world: LoadWorld) -> None:
    world.pod("p", requests=("1", "1Gi"))
    world.measure({"n1": (500.0, 500.0)})

    assert world.load().cpu_milli == 500.0
    assert world.load().differences == ()


def test_a_pod_that_no_kubelet_has_acknowledged_is_estimated(world: LoadWorld) -> None:
    world.pod("p", unscheduled=True, requests=("1", "1Gi"))
    world.measure({"n1": (500.0, 500.0)}, {"p": (40.0, 40.0)})

    assert world.pod_load("p").basis is Basis.SPEC


def test_ten_pods_in_a_row_do_not_find_the_node_idle(world: LoadWorld) -> None:
    world.measure({"n1": (100.0, 100.0)})
    world.pass_time(20.0)
    loads = []
    for index in range(10):
        world.pod(f"p{index}", scheduled_s=world.now_s, requests=("500m", "1Gi"))
        loads.append(world.load().cpu_milli)

    assert loads == pytest.approx([100.0 + 425.0 * (index + 1) for index in range(10)])


def test_the_measurement_takes_over_once_a_window_covers_the_pod(world: LoadWorld) -> None:
    world.pod("p", scheduled_s=world.now_s, requests=("1", "1Gi"))
    world.pass_time(30.0)
    world.measure({"n1": (200.0, 300.0)}, {"p": (40.0, 50.0)})
    before = world.pod_load("p")
    world.pass_time(60.0)
    world.measure({"n1": (200.0, 300.0)}, {"p": (90.0, 60.0)})
    after = world.pod_load("p")

    assert before.cpu_milli == 850.0
    assert (after.cpu_milli, after.mem_bytes, after.basis) == (90.0, 60.0 * MIB, Basis.MEASURED)


def test_a_stateful_pod_of_the_same_name_does_not_inherit_the_sample(world: LoadWorld) -> None:
    world.pod("db-0", uid="old")
    world.measure({"n1": (4000.0, 4000.0)}, {"db-0": (3900.0, 3900.0)})
    world.leave("db-0")
    world.pass_time(5.0)
    world.pod("db-0", uid="new", scheduled_s=world.now_s, requests=("1", "1Gi"))
    world.pass_time(5.0)
    world.observe(
        {"n1": usage(3500.0, 3500.0, world.now_s)}, {"db-0": usage(3500.0, 3500.0, world.now_s)}
    )

    assert world.pod_load("db-0").basis is Basis.SPEC


def test_a_stateful_pod_of_the_same_name_starts_its_history_anew(world: LoadWorld) -> None:
    world.pod("db-0", uid="old")
    world.measure({"n1": (4000.0, 4000.0)}, {"db-0": (3900.0, 3900.0)})
    world.leave("db-0")
    world.pod("db-0", uid="new", scheduled_s=world.now_s)
    world.pass_time(65.0)
    world.measure({"n1": (300.0, 300.0)}, {"db-0": (100.0, 100.0)})

    assert world.pod_load("db-0").cpu_milli == 100.0
