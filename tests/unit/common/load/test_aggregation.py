# SPDX-License-Identifier: Apache-2.0
"""Figures over a window count the pods that a node has now, and no pod that has left."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.config import LoadSettings
from common.load import Load
from common.load.aggregation import MOST_SLOTS
from tests.support.worlds.load import MIB, LoadWorld

MINUTE_S = 60.0
Curve = Callable[[int], float]


def settings(ceilings: str = "last", targets: str = "last") -> LoadSettings:
    def block(text: str) -> dict[str, str]:
        kind, _, window = text.partition(":")
        return {"type": kind, **({"window": window} if window else {})}

    aggregation = {"ceilings": block(ceilings), "targets": block(targets)}
    return LoadSettings.model_validate({"load": {"aggregation": aggregation}})


def world_with(
    curves: Mapping[str, Curve],
    minutes: int,
    *,
    overhead: float = 0.0,
    ceilings: str = "last",
    targets: str = "last",
) -> LoadWorld:
    """Return n1 after so many samples, a minute apart, of pods that were there all the time."""
    world = LoadWorld(settings(ceilings, targets))
    world.node("n1", cpu="10")
    for name in curves:
        world.pod(name, requests=("100m", "64Mi"))
    for minute in range(minutes):
        sampled(world, {name: curve(minute) for name, curve in curves.items()}, overhead)
    return world


def sampled(world: LoadWorld, pods: Mapping[str, float], overhead: float = 0.0) -> None:
    world.pass_time(MINUTE_S)
    total = sum(pods.values()) + overhead
    world.measure({"n1": (total, total)}, {name: (used, used) for name, used in pods.items()})


def burst(minute: int) -> float:
    """Six cores in the first ten minutes, one afterwards."""
    return 6000.0 if minute < 10 else 1000.0


def steady(_: int) -> float:
    return 3000.0


def test_the_last_sample_is_the_default_and_keeps_no_past() -> None:
    load = world_with({"a": burst, "b": steady}, 15).load()
    assert load.settled == Load(4000.0, 4000.0 * MIB)
    assert load.room == load.settled


@pytest.mark.parametrize(
    ("ceilings", "expected"),
    [
        ("mean:15m", (10 * 9000.0 + 5 * 4000.0) / 15),
        ("mean:5m", 4000.0),
        ("p90:15m", 9000.0),
        ("p99:15m", 9000.0),
    ],
)
def test_ceilings_and_targets_have_figures_of_their_own(ceilings: str, expected: float) -> None:
    curves = {"a": burst, "b": steady}
    load = world_with(curves, 15, overhead=200.0, ceilings=ceilings).load()
    assert load.cpu_milli == pytest.approx(4200.0)
    assert load.settled.cpu_milli == pytest.approx(expected + 200.0)
    assert load.settled.mem_bytes == pytest.approx((expected + 200.0) * MIB, rel=1e-5)
    # A target is not filled above what goals are judged by.
    assert load.room.cpu_milli == pytest.approx(max(4200.0, expected + 200.0))
    other = world_with(curves, 15, overhead=200.0, targets=ceilings).load()
    assert other.settled.cpu_milli == pytest.approx(4200.0)
    assert other.room.cpu_milli == pytest.approx(max(4200.0, expected + 200.0))


@pytest.mark.parametrize("ceilings", ["mean:15m", "p90:15m", "p95:15m", "p99:15m"])
def test_a_pod_that_left_takes_its_past_along_at_once(ceilings: str) -> None:
    """Before the next sample, and after it: the burst was the pod's, not the node's."""
    world = world_with({"a": burst, "b": steady}, 15, overhead=200.0, ceilings=ceilings)
    assert world.load().settled.cpu_milli > 7000.0
    world.leave("a")
    world.pass_time(1.0)
    assert world.load().settled.cpu_milli == pytest.approx(3200.0)
    sampled(world, {"b": 3000.0}, overhead=200.0)
    sampled(world, {"b": 3000.0}, overhead=200.0)
    assert world.load().settled.cpu_milli == pytest.approx(3200.0)


def test_a_terminating_pod_has_left_for_goals_and_is_there_for_room() -> None:
    world = world_with({"a": burst, "b": steady}, 15, ceilings="mean:15m", targets="mean:15m")
    world.pod("a", requests=("100m", "64Mi"), deleted_s=world.now_s + 7200.0)
    for _ in range(5):  # it drains, and is measured meanwhile
        load = world.load()
        assert load.settled.cpu_milli == pytest.approx(3000.0)
        assert load.room.cpu_milli > 4500.0
        sampled(world, {"a": 1000.0, "b": 3000.0})


def test_a_pod_that_came_counts_with_what_it_uses_until_it_has_a_past() -> None:
    world = world_with({"b": steady}, 15, ceilings="mean:15m", targets="p95:15m")
    world.pod("new", scheduled_s=world.now_s, requests=("2", "1Gi"))
    assert world.load().settled.cpu_milli == pytest.approx(3000.0 + 0.85 * 2000.0)
    for _ in range(3):
        sampled(world, {"b": 3000.0, "new": 2500.0})
    load = world.load()
    assert load.settled.cpu_milli == pytest.approx(5500.0)
    assert load.room.cpu_milli == pytest.approx(5500.0)


@pytest.mark.parametrize("ceilings", ["mean:15m", "p95:15m", "p90:30m"])
def test_the_loads_of_pods_add_up_to_the_figure(ceilings: str) -> None:
    """What a plan takes off a node is what its figure loses."""
    world = world_with({"a": burst, "b": steady}, 15, overhead=200.0, ceilings=ceilings)
    shares = world.pod_load("a").cpu_milli + world.pod_load("b").cpu_milli
    assert shares + 200.0 == pytest.approx(world.load().settled.cpu_milli)


def test_a_move_under_way_takes_off_what_the_figure_will_lose() -> None:
    """Taking off only what the pod uses now would leave its burst, and call for another pod."""
    world = world_with({"a": burst, "b": steady}, 15, ceilings="mean:15m")
    load, pod = world.load(), world.pod_load("a")
    assert load.with_leaving(pod).settled.cpu_milli == pytest.approx(3000.0)
    assert load.with_pod(pod, sign=-1).settled.cpu_milli == pytest.approx(3000.0)


def test_a_pod_may_have_used_more_than_all_pods_use_now() -> None:
    curves = {"a": lambda minute: 9000.0 if minute < 14 else 100.0, "b": lambda _: 100.0}
    load = world_with(curves, 15, ceilings="mean:15m").load()
    pod = world_with(curves, 15, ceilings="mean:15m").pod_load("a")
    assert pod.cpu_milli > load.cpu_milli
    assert load.with_pod(pod, sign=-1).settled.cpu_milli == pytest.approx(100.0)
    assert load.with_leaving(pod).settled.cpu_milli == pytest.approx(100.0)


def test_what_is_older_than_the_window_is_forgotten() -> None:
    world = world_with({"a": burst}, 60, ceilings="p99:5m")
    assert world.load().settled.cpu_milli == pytest.approx(1000.0)


def test_a_clock_that_was_set_back_starts_over() -> None:
    world = world_with({"a": burst}, 12, ceilings="p99:60m")
    assert world.load().settled.cpu_milli > 5000.0
    world.pass_time(-7200.0)
    world.pod("a", requests=("100m", "64Mi"))
    for _ in range(3):
        sampled(world, {"a": 500.0})
    assert world.load().settled.cpu_milli == pytest.approx(500.0)


def test_a_new_node_of_the_same_name_has_no_past() -> None:
    world = world_with({"a": steady}, 15, overhead=4000.0, ceilings="mean:15m")
    world.leave("a")
    world.node("n1", cpu="10", uid="another")
    world.pod("b")
    for _ in range(2):
        sampled(world, {"b": 1000.0})
    assert world.load().settled.cpu_milli == pytest.approx(1000.0)


def test_node_noise_that_no_pod_explains_is_averaged_too() -> None:
    """The windows of nodes and pods differ, so what is left over jumps from sample to sample."""
    world = LoadWorld(settings("mean:30m"))
    world.node("n1", cpu="10")
    world.pod("a")
    rng = np.random.default_rng(1)
    figures = []
    for _ in range(60):
        world.pass_time(MINUTE_S)
        node = 5000.0 + float(rng.normal(0.0, 800.0))
        world.measure({"n1": (node, 5000.0)}, {"a": (4500.0, 4500.0)})
        figures.append(world.load().settled.cpu_milli)
    assert np.std(figures[30:]) < 300.0


@given(
    curves=st.lists(
        st.lists(st.integers(0, 4000), min_size=20, max_size=20), min_size=2, max_size=5
    ),
    leaves=st.integers(0, 1),
    kind=st.sampled_from(["mean", "p90", "p95", "p99"]),
)
def test_a_figure_is_that_of_the_sum_of_the_pods_that_are_there(
    curves: list[list[int]], leaves: int, kind: str
) -> None:
    """Whatever pods did, and whichever left: as if only the others had ever been there."""
    named = {f"p{number}": curve for number, curve in enumerate(curves)}
    world = LoadWorld(settings(f"{kind}:15m"))
    world.node("n1", cpu="10")
    for name in named:
        world.pod(name)
    for minute in range(20):
        sampled(world, {name: float(curve[minute]) for name, curve in named.items()})
    world.leave(f"p{leaves}")
    del named[f"p{leaves}"]
    world.pass_time(1.0)
    past = np.sum([curve[5:] for curve in named.values()], axis=0)
    expected = past.mean() if kind == "mean" else np.percentile(past, float(kind[1:]))
    assert world.load().settled.cpu_milli == pytest.approx(expected, abs=1.0)


def test_memory_does_not_depend_on_how_often_usage_is_read() -> None:
    world = LoadWorld(settings("p95:60m"))
    world.node("n1", cpu="10")
    world.pod("a")
    for _ in range(250):
        world.pass_time(15.0)
        world.measure({"n1": (1000.0, 10.0)}, {"a": (1000.0, 10.0)}, window_s=15.0)
    past = world.tracker._past
    assert past is not None
    assert past._pods.shape == (2, MOST_SLOTS, 1)


def test_memory_does_not_grow_with_pods_that_come_and_go() -> None:
    world = LoadWorld(settings("p95:60m"))
    world.node("n1", cpu="10")
    for number in range(100):
        world.pod(f"p{number}")
        if number >= 3:
            world.leave(f"p{number - 3}")
        there = [f"p{each}" for each in range(max(0, number - 2), number + 1)]
        sampled(world, dict.fromkeys(there, 1000.0))
    past = world.tracker._past
    assert past is not None
    assert past._pods.shape == (2, MOST_SLOTS, 3)
