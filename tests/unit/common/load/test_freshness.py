# SPDX-License-Identifier: Apache-2.0
"""A node whose measurement is missing, old or impossible is unknown, and only that node."""

from __future__ import annotations

from math import inf, isnan, nan

import pytest

from common.cluster.records import NodeName
from common.config import Duration, LoadSettings
from common.load import Basis, Unknown, why_no_pods
from common.usage.source import Sample
from tests.support.worlds.load import LoadWorld, usage


@pytest.fixture
def world() -> LoadWorld:
    made = LoadWorld()
    made.node("n1")
    made.pod("p")
    return made


@pytest.mark.parametrize(
    ("age_s", "why"),
    [
        pytest.param(0.0, None, id="new"),
        pytest.param(180.0, None, id="just fresh"),
        pytest.param(181.0, Unknown.STALE_SAMPLE, id="too old"),
        pytest.param(-30.0, None, id="a clock that is a little ahead"),
        pytest.param(-31.0, Unknown.FUTURE_SAMPLE, id="a clock that is wrong"),
    ],
)
def test_freshness_is_the_age_of_the_nodes_sample(
    world: LoadWorld, age_s: float, why: Unknown | None
) -> None:
    world.measure({"n1": (1000.0, 1000.0)}, {"p": (500.0, 500.0)}, end_s=world.now_s - age_s)

    assert world.load().why is why
    assert world.load().known is (why is None)


def test_a_node_without_any_sample_is_unknown_and_says_so(world: LoadWorld) -> None:
    assert world.load().why is Unknown.NO_SAMPLE
    assert world.load().sample_end_s is None
    world.measure({"another": (1000.0, 1000.0)}, {"p": (500.0, 500.0)})
    assert world.load().why is Unknown.NO_SAMPLE


@pytest.mark.parametrize("hint", ["", "no job is believed"])
def test_a_source_that_measures_no_pod_has_lost_them_and_says_what_it_knows(
    world: LoadWorld, hint: str
) -> None:
    nodes = {NodeName("n1"): usage(1000.0, 1000.0, world.now_s)}
    found = why_no_pods(
        Sample(nodes=nodes, pods={}, no_pods=hint), world.state.snapshot(), world.now_s
    )

    words = "no sample of any pod, although 1 run for longer than two windows"
    assert found == (f"{words}: {hint}" if hint else words)


def test_time_alone_makes_a_node_unknown_and_a_sample_makes_it_known_again(
    world: LoadWorld,
) -> None:
    world.measure({"n1": (1000.0, 1000.0)}, {"p": (500.0, 500.0)})
    assert world.load().known
    world.pass_time(180.0)
    assert world.load().known
    world.pass_time(0.5)
    assert world.load().why is Unknown.STALE_SAMPLE
    world.measure({"n1": (1000.0, 1000.0)}, {"p": (500.0, 500.0)})
    assert world.load().known


def test_the_expiry_is_a_setting() -> None:
    world = LoadWorld(LoadSettings(metric_expiry=Duration(20.0)))
    world.node("n1")
    world.measure({"n1": (1000.0, 1000.0)})
    world.pass_time(21.0)

    assert world.load().why is Unknown.STALE_SAMPLE


@pytest.mark.parametrize(
    ("cpu", "mib", "window_s"),
    [
        pytest.param(-1.0, 100.0, 60.0, id="negative CPU"),
        pytest.param(100.0, -1.0, 60.0, id="negative memory"),
        pytest.param(nan, 100.0, 60.0, id="CPU is not a number"),
        pytest.param(100.0, nan, 60.0, id="memory is not a number"),
        pytest.param(inf, 100.0, 60.0, id="endless CPU"),
        pytest.param(100.0, inf, 60.0, id="endless memory"),
        pytest.param(33_000.0, 100.0, 60.0, id="four times its CPU and more"),
        pytest.param(100.0, 132_000.0, 60.0, id="four times its memory and more"),
        pytest.param(100.0, 100.0, -1.0, id="a negative window"),
        pytest.param(100.0, 100.0, nan, id="a window of no length"),
    ],
)
def test_an_impossible_sample_makes_its_node_unknown_at_once(
    world: LoadWorld, cpu: float, mib: float, window_s: float
) -> None:
    world.measure({"n1": (1000.0, 1000.0)}, {"p": (500.0, 500.0)})
    known = world.load().known
    world.pass_time(15.0)
    world.observe({"n1": usage(cpu, mib, world.now_s, window_s)}, {})

    assert known
    assert world.load().why is Unknown.ABSURD_SAMPLE
    world.measure({"n1": (1000.0, 1000.0)})
    assert world.load().known


@pytest.mark.parametrize("cpu", [-1.0, nan, inf, 33_000.0])
def test_an_impossible_sample_of_a_pod_is_not_used(world: LoadWorld, cpu: float) -> None:
    world.measure({"n1": (1000.0, 1000.0)}, {"p": (cpu, 100.0)})

    assert world.load().known
    assert world.pod_load("p").basis is Basis.SPEC


def test_a_sample_without_a_time_is_not_used(world: LoadWorld) -> None:
    for end_s in (nan, -inf, 0.0):
        world.observe({"n1": usage(1.0, 1.0, end_s)}, {"p": usage(1.0, 1.0, end_s)})
        assert world.load().why is Unknown.ABSURD_SAMPLE
        assert world.pod_load("p").basis is Basis.SPEC


def test_a_node_may_use_more_than_its_allocatable(world: LoadWorld) -> None:
    world.node("small", cpu="940m", memory="1400Mi")
    world.measure({"small": (2000.0, 2000.0)})

    assert world.load("small").known


@pytest.mark.parametrize(("cpu", "memory"), [("0", "32Gi"), ("8", "0"), ("0", "0")])
def test_a_node_that_does_not_say_what_it_has_is_unknown(cpu: str, memory: str) -> None:
    world = LoadWorld()
    world.node("n1", cpu=cpu, memory=memory)
    world.pod("p")
    world.measure({"n1": (1000.0, 1000.0)}, {"p": (500.0, 500.0)})

    assert world.load().why is Unknown.NO_ALLOCATABLE
    assert isnan(world.load().cpu_percent) is (cpu == "0")
    assert isnan(world.load().mem_percent) is (memory == "0")
    assert world.pod_load("p").basis is Basis.MEASURED


def test_one_node_without_metrics_leaves_the_others_known(world: LoadWorld) -> None:
    world.node("n2")
    world.measure({"n2": (1000.0, 1000.0)})

    assert world.load("n1").why is Unknown.NO_SAMPLE
    assert world.load("n2").known


@pytest.mark.parametrize(
    ("nodes", "unknown", "resting"),
    [(3, 0, False), (3, 1, False), (3, 2, True), (10, 3, False), (10, 4, True), (1, 1, True)],
)
def test_load_strategies_rest_when_more_than_a_third_of_the_nodes_are_unknown(
    nodes: int, unknown: int, resting: bool
) -> None:
    world = LoadWorld()
    for index in range(nodes):
        world.node(f"n{index}")
    world.measure({f"n{index}": (1000.0, 1000.0) for index in range(unknown, nodes)})

    assert world.view().unknown == unknown
    assert world.view().resting is resting


def test_an_empty_cluster_is_not_resting() -> None:
    assert not LoadWorld().view().resting


def test_a_pods_sample_that_is_too_old_gives_way_to_an_estimate(world: LoadWorld) -> None:
    world.measure({"n1": (1000.0, 1000.0)}, {"p": (500.0, 500.0)})
    world.pass_time(120.0)
    world.measure({"n1": (1000.0, 1000.0)})
    assert world.pod_load("p").basis is Basis.MEASURED
    world.pass_time(70.0)
    assert world.load().known
    assert world.pod_load("p").basis is Basis.SPEC
    assert world.load().cpu_milli == 1000.0


def test_a_source_that_fails_makes_every_node_unknown_in_time(world: LoadWorld) -> None:
    world.node("n2")
    world.measure({"n1": (1000.0, 1000.0), "n2": (1000.0, 1000.0)})
    world.pass_time(3600.0)

    assert {load.why for load in world.view().nodes.values()} == {Unknown.STALE_SAMPLE}
    assert world.view().resting


def test_a_node_that_was_made_anew_under_its_name_has_not_been_measured(world: LoadWorld) -> None:
    world.measure({"n1": (1000.0, 1000.0)}, {"p": (500.0, 500.0)})
    world.node("n1", uid="another machine")

    assert world.load().why is Unknown.NO_SAMPLE
    assert world.load().overhead.cpu_milli == 0.0
    world.measure({}, {"p": (500.0, 500.0)})
    assert world.load().why is Unknown.NO_SAMPLE
    assert world.load().overhead.cpu_milli == 0.0
    world.measure({"n1": (700.0, 700.0)}, {"p": (500.0, 500.0)})
    assert world.load().known
    assert world.load().cpu_milli == 700.0


def test_what_a_wrong_clock_made_unknown_is_known_again_when_it_is_right(world: LoadWorld) -> None:
    world.measure({"n1": (1000.0, 1000.0)}, {"p": (500.0, 500.0)})
    seen = []
    for jump_s in (0.0, 3600.0, -3600.0, -3600.0, 3600.0):
        world.pass_time(jump_s)
        seen.append((world.load().why, world.pod_load("p").basis))

    fine = (None, Basis.MEASURED)
    stale = (Unknown.STALE_SAMPLE, Basis.SPEC)
    future = (Unknown.FUTURE_SAMPLE, Basis.SPEC)
    assert seen == [fine, stale, fine, future, fine]


def test_a_clock_that_was_set_back_does_not_lock_new_samples_out(world: LoadWorld) -> None:
    world.measure({"n1": (1000.0, 1000.0)}, {"p": (500.0, 500.0)})
    world.pass_time(-3600.0)
    assert world.load().why is Unknown.FUTURE_SAMPLE
    world.pod("p", scheduled_s=world.now_s - 600.0)
    world.measure({"n1": (1000.0, 1000.0)}, {"p": (100.0, 100.0)})

    assert world.load().known
    assert world.pod_load("p").cpu_milli == 100.0


def test_a_sample_from_the_future_does_not_lock_the_present_out(world: LoadWorld) -> None:
    world.measure({"n1": (1.0, 1.0)}, {"p": (1.0, 1.0)}, end_s=world.now_s + 1e6)
    world.pass_time(15.0)
    world.measure({"n1": (1000.0, 1000.0)}, {"p": (500.0, 500.0)})

    assert world.load().known
    assert world.pod_load("p").cpu_milli == 500.0


def test_a_view_names_every_node_of_the_snapshot(world: LoadWorld) -> None:
    world.node("n2")

    assert set(world.view().nodes) == {NodeName("n1"), NodeName("n2")}


def test_percentages_are_of_allocatable(world: LoadWorld) -> None:
    world.measure({"n1": (2000.0, 8192.0)}, {"p": (2000.0, 8192.0)})

    assert world.load().cpu_percent == pytest.approx(25.0)
    assert world.load().mem_percent == pytest.approx(25.0)
