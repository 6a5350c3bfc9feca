"""What a node uses beside its pods, learnt only from windows that can tell."""

from __future__ import annotations

import pytest

from common.load.overhead import Overhead, Residual
from common.usage.source import Usage
from tests.support.load_world import MIB, START_S, LoadWorld, usage


def learn(*residuals: tuple[float, float, bool]) -> float:
    """Return the CPU overhead after (minute, residual, quiet) in turn; memory goes along."""
    overhead = Overhead()
    for minute, amount, quiet in residuals:
        overhead.add(Residual(amount, amount, 60.0 * minute, quiet))
    assert overhead.value.mem_bytes == overhead.value.cpu_milli
    return overhead.value.cpu_milli


@pytest.mark.parametrize(
    ("residuals", "expected"),
    [
        pytest.param([], 0.0, id="nothing is known"),
        pytest.param([(0, 300, True)], 300.0, id="one quiet window"),
        pytest.param([(0, 300, True), (1, 100, True), (2, 200, True)], 200.0, id="median"),
        pytest.param(
            [(0, 900, True), *((m, 100 * m, True) for m in range(1, 6))], 300.0, id="last five"
        ),
        pytest.param([(0, -50, True), (1, 60, True)], 5.0, id="clipped after the median"),
        pytest.param([(0, -50, True), (1, -60, True)], 0.0, id="never below zero"),
        pytest.param([(0, 300, True), (1, 50, False)], 300.0, id="others keep the old value"),
        pytest.param([(0, 300, True), (10, 50, False)], 300.0, id="for ten minutes"),
        pytest.param(
            [(0, 300, True), (5, 800, False), (11, 900, False)], 800.0, id="then the smallest"
        ),
        pytest.param(
            [(0, 300, True), (11, 900, False), (12, 200, True)], 250.0, id="until it is quiet again"
        ),
        pytest.param([(0, 700, False)], 700.0, id="the only one there is"),
        pytest.param([(0, 700, False), (1, 400, False), (2, 900, False)], 400.0, id="the smallest"),
        pytest.param(
            [(0, 400, False), (6, 700, False), (11, 900, False)], 700.0, id="of ten minutes"
        ),
        pytest.param([(0, -20, False), (1, 70, False)], 0.0, id="the smallest, never below zero"),
    ],
)
def test_overhead_follows_from_residuals(
    residuals: list[tuple[float, float, bool]], expected: float
) -> None:
    assert learn(*residuals) == expected


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
    return world.load().overhead_cpu_milli


def test_the_first_window_may_have_seen_somebody_leave_and_is_not_quiet(world: LoadWorld) -> None:
    assert overhead(world) == 4000.0
    world.measure({"n1": (1200.0, 1200.0)}, {"p": (1000.0, 1000.0)})
    assert overhead(world) == 200.0


def test_cpu_and_memory_have_overheads_of_their_own(world: LoadWorld) -> None:
    world.measure({"n1": (1200.0, 1700.0)}, {"p": (1000.0, 1000.0)})

    assert world.load().overhead_cpu_milli == 200.0
    assert world.load().overhead_mem_bytes == 700.0 * MIB
    assert world.load().cpu_milli == pytest.approx(1200.0)
    assert world.load().mem_bytes == pytest.approx(1700.0 * MIB)


def test_a_window_in_which_a_pod_started_is_not_quiet(world: LoadWorld) -> None:
    world.measure({"n1": (1200.0, 1200.0)}, {"p": (1000.0, 1000.0)})
    world.pod("new", scheduled_s=world.now_s + 20.0)
    world.pass_time(60.0)
    world.measure({"n1": (3000.0, 3000.0)}, {"p": (1000.0, 1000.0), "new": (700.0, 700.0)})

    assert overhead(world) == 200.0


def test_a_window_in_which_a_pod_ended_is_not_quiet(world: LoadWorld) -> None:
    world.pod("old")
    figures = {"p": (1000.0, 1000.0), "old": (2000.0, 2000.0)}
    world.measure({"n1": (3200.0, 3200.0)}, figures)
    world.leave("old")
    world.pass_time(60.0)
    world.measure({"n1": (2200.0, 2200.0)}, {"p": (1000.0, 1000.0)})

    assert overhead(world) == 200.0


def test_the_window_after_the_one_in_which_a_pod_left_is_quiet_again(world: LoadWorld) -> None:
    world.pod("old")
    figures = {"p": (1000.0, 1000.0), "old": (2000.0, 2000.0)}
    world.measure({"n1": (3200.0, 3200.0)}, figures)
    world.leave("old")
    world.pass_time(60.0)
    world.measure({"n1": (2200.0, 2200.0)}, {"p": (1000.0, 1000.0)})
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
        pytest.param(0.0, 60.0, True, id="the same window"),
        pytest.param(-12.0, 60.0, True, id="80 % in common"),
        pytest.param(-13.0, 60.0, False, id="less, the pod's was earlier"),
        pytest.param(13.0, 60.0, False, id="less, the pod's was later"),
        pytest.param(0.0, 48.0, True, id="shorter, but 80 %"),
        pytest.param(0.0, 40.0, False, id="too short"),
        pytest.param(0.0, 75.0, True, id="longer, but 80 %"),
        pytest.param(0.0, 80.0, False, id="too long"),
        pytest.param(-90.0, 60.0, False, id="nothing in common"),
    ],
)
def test_a_residual_needs_windows_that_overlap(
    world: LoadWorld, pod_end_s: float, pod_window_s: float, counts: bool
) -> None:
    world.measure({"n1": (1200.0, 1200.0)}, {"p": (1000.0, 1000.0)})
    world.pass_time(120.0)
    world.observe(
        {"n1": usage(1400.0, 1400.0, world.now_s)},
        {"p": usage(1000.0, 1000.0, world.now_s + pod_end_s, pod_window_s)},
    )

    assert overhead(world) == (300.0 if counts else 200.0)


def test_windows_that_scatter_around_the_nodes_compare_in_the_mean(world: LoadWorld) -> None:
    names = ["p", *(f"p{index}" for index in range(4))]
    for name in names:
        world.pod(name)
    world.pass_time(60.0)
    scattered = {
        name: usage(200.0, 200.0, world.now_s + offset_s, 15.0)
        for name, offset_s in zip(names, (-8.0, -4.0, 0.0, 4.0, 8.0), strict=True)
    }
    world.observe({"n1": usage(1100.0, 1100.0, world.now_s, 15.0)}, scattered)

    assert overhead(world) == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("late", "counts"),
    [pytest.param("light", True, id="light"), pytest.param("heavy", False, id="heavy")],
)
def test_a_pod_weighs_in_the_mean_what_it_uses(world: LoadWorld, late: str, counts: bool) -> None:
    world.measure({"n1": (1200.0, 1200.0)}, {"p": (1000.0, 1000.0)})
    figures = {"p": 100.0, "light": 100.0, "heavy": 3000.0}
    for name in figures:
        world.pod(name)
    world.pass_time(60.0)
    world.observe(
        {"n1": usage(3600.0, 3600.0, world.now_s)},
        {
            name: usage(cpu, cpu, world.now_s - (25.0 if name == late else 0.0))
            for name, cpu in figures.items()
        },
    )

    assert overhead(world) == (300.0 if counts else 200.0)


def test_even_a_light_pod_must_have_been_measured_at_the_time(world: LoadWorld) -> None:
    world.measure({"n1": (1200.0, 1200.0)}, {"p": (1000.0, 1000.0)})
    world.pod("light")
    world.pass_time(60.0)
    world.observe(
        {"n1": usage(1500.0, 1500.0, world.now_s)},
        {
            "p": usage(1000.0, 1000.0, world.now_s),
            "light": usage(1.0, 1.0, world.now_s - 61.0),
        },
    )

    assert overhead(world) == 200.0


def test_a_pod_that_ran_but_was_not_measured_makes_no_overhead(world: LoadWorld) -> None:
    world.measure({"n1": (1200.0, 1200.0)}, {"p": (1000.0, 1000.0)})
    for _ in range(20):
        world.pass_time(60.0)
        world.measure({"n1": (5000.0, 5000.0)})

    assert overhead(world) == 200.0


def test_a_pod_that_never_started_does_not_hinder(world: LoadWorld) -> None:
    world.pod("no-such-image", phase="Pending")
    world.measure({"n1": (1200.0, 1200.0)}, {"p": (1000.0, 1000.0)})

    assert overhead(world) == 200.0


def test_a_pod_of_the_same_name_that_ended_before_is_not_subtracted(world: LoadWorld) -> None:
    world.pod("db-0", uid="new", scheduled_s=world.now_s)
    world.observe(
        {"n1": usage(1200.0, 1200.0, world.now_s)},
        {
            "p": usage(1000.0, 1000.0, world.now_s),
            "db-0": usage(900.0, 900.0, world.now_s - 30.0),
        },
    )

    assert overhead(world) == 200.0


def test_an_empty_node_is_all_overhead() -> None:
    world = LoadWorld()
    world.node("n1")
    world.measure({"n1": (150.0, 900.0)})

    assert world.load().cpu_milli == 150.0
    assert world.load().mem_bytes == 900.0 * MIB


def test_node_measurements_enter_only_as_overhead(world: LoadWorld) -> None:
    world.measure({"n1": (1200.0, 1200.0)}, {"p": (1000.0, 1000.0)})
    world.pod("late", scheduled_s=world.now_s)
    world.pass_time(15.0)
    figures = {"p": usage(1000.0, 1000.0, world.now_s, 60.0)}
    before = world.load().cpu_milli
    world.observe({"n1": Usage(7999.0, 1.0, world.now_s, 60.0)}, figures)

    assert world.load().cpu_milli == pytest.approx(before)
    assert world.load().sample_end_s == world.now_s == START_S + 75.0
