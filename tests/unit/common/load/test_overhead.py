# SPDX-License-Identifier: Apache-2.0
"""What a node uses beside its pods, learned only from windows that can tell."""

from __future__ import annotations

import pytest

from common.load.overhead import Overhead
from common.load.values import Load
from tests.support.worlds.load import MIB, LoadWorld, usage, waiting


@pytest.mark.parametrize(
    ("residuals", "expected"),
    [
        pytest.param([300], 300.0, id="one"),
        pytest.param([300, 100, 200], 200.0, id="median"),
        pytest.param([900, 100, 200, 300, 400, 500], 300.0, id="last five"),
        pytest.param([-50, 60], 5.0, id="clipped after the median"),
        pytest.param([-50, -60], 0.0, id="never below zero"),
    ],
)
def test_overhead_follows_from_residuals(residuals: list[float], expected: float) -> None:
    overhead = Overhead()
    for amount in residuals:
        overhead.add(Load(amount, 2 * amount))

    assert overhead.value == Load(expected, 2 * expected)


def test_nothing_is_said_before_a_window_could_tell() -> None:
    assert Overhead().value is None


@pytest.fixture
def world() -> LoadWorld:
    """A node on which only the next windows can be quiet."""
    made = LoadWorld()
    made.node("n1")
    made.pod("p")
    made.measure({"n1": (5000.0, 5000.0)}, {"p": (1000.0, 1000.0)})
    made.pass_time(60.0)
    return made


def overhead(world: LoadWorld) -> float:
    return world.load().overhead.cpu_milli


def test_the_first_window_may_have_seen_a_pod_leave_and_tells_nothing(world: LoadWorld) -> None:
    assert overhead(world) == 0.0
    world.measure({"n1": (1200.0, 1200.0)}, {"p": (1000.0, 1000.0)})
    assert overhead(world) == 200.0


def test_cpu_and_memory_have_overheads_of_their_own(world: LoadWorld) -> None:
    world.measure({"n1": (1200.0, 1700.0)}, {"p": (1000.0, 1000.0)})

    assert world.load().overhead == Load(200.0, 700.0 * MIB)


def test_a_window_in_which_a_pod_started_tells_nothing(world: LoadWorld) -> None:
    world.measure({"n1": (1200.0, 1200.0)}, {"p": (1000.0, 1000.0)})
    world.pod("new", scheduled_s=world.now_s + 20.0)
    world.pass_time(60.0)
    world.measure({"n1": (3000.0, 3000.0)}, {"p": (1000.0, 1000.0), "new": (700.0, 700.0)})

    assert overhead(world) == 200.0


def test_the_window_after_the_one_in_which_a_pod_left_tells_again(world: LoadWorld) -> None:
    world.pod("old")
    figures = {"p": (1000.0, 1000.0), "old": (2000.0, 2000.0)}
    world.measure({"n1": (3200.0, 3200.0)}, figures)
    world.leave("old")
    world.pass_time(60.0)
    world.measure({"n1": (2200.0, 2200.0)}, {"p": (1000.0, 1000.0)})
    assert overhead(world) == 200.0
    world.pass_time(60.0)
    world.measure({"n1": (1600.0, 1600.0)}, {"p": (1000.0, 1000.0)})

    assert overhead(world) == 400.0  # the median of 200 and 600


def test_the_same_measurement_is_not_counted_twice(world: LoadWorld) -> None:
    world.measure({"n1": (1200.0, 1200.0)}, {"p": (1000.0, 1000.0)})
    for _ in range(5):
        world.measure({"n1": (1900.0, 1900.0)}, {"p": (1000.0, 1000.0)})
    world.pass_time(60.0)
    world.measure({"n1": (1300.0, 1300.0)}, {"p": (1000.0, 1000.0)})

    assert overhead(world) == 250.0


@pytest.mark.parametrize(
    ("pod_end_s", "pod_window_s", "counts"),
    [
        pytest.param(0.0, 10.0, True, id="the same window"),
        pytest.param(-17.0, 6.0, True, id="nothing in common, as on real kubelets"),
        pytest.param(9.0, 30.0, True, id="later and longer, as on real kubelets"),
        pytest.param(-41.0, 6.0, False, id="of another time"),
    ],
)
def test_windows_of_nodes_and_pods_need_not_overlap(
    world: LoadWorld, pod_end_s: float, pod_window_s: float, counts: bool
) -> None:
    world.measure({"n1": (1200.0, 1200.0)}, {"p": (1000.0, 1000.0)})
    world.pass_time(120.0)
    world.observe(
        {"n1": usage(1400.0, 1400.0, world.now_s, 10.0)},
        {"p": usage(1000.0, 1000.0, world.now_s + pod_end_s, pod_window_s)},
    )

    assert overhead(world) == (300.0 if counts else 200.0)


def test_a_pod_that_runs_and_was_not_measured_makes_no_overhead(world: LoadWorld) -> None:
    world.measure({"n1": (1200.0, 1200.0)}, {"p": (1000.0, 1000.0)})
    for _ in range(20):
        world.pass_time(60.0)
        world.measure({"n1": (5000.0, 5000.0)})

    assert overhead(world) == 200.0


@pytest.mark.parametrize("reason", ["CrashLoopBackOff", "ImagePullBackOff", "Error"])
def test_a_pod_whose_containers_do_not_run_does_not_hinder(world: LoadWorld, reason: str) -> None:
    world.pod("broken", state=waiting(reason), requests=("4", "4Gi"))
    world.measure({"n1": (1200.0, 1200.0)}, {"p": (1000.0, 1000.0)})

    assert overhead(world) == 200.0


def test_an_empty_node_is_all_overhead() -> None:
    world = LoadWorld()
    world.node("n1")
    world.measure({"n1": (150.0, 900.0)})
    world.pass_time(60.0)
    world.measure({"n1": (150.0, 900.0)})

    assert world.load().overhead == Load(150.0, 900.0 * MIB)
