# SPDX-License-Identifier: Apache-2.0
"""Where nothing measures, load is what pods ask for."""

from __future__ import annotations

import pytest

from common.load import Basis, Unknown
from common.usage import NOTHING_MEASURED
from common.usage.requests import RequestsSource
from tests.support.worlds.load import MIB, LoadWorld


@pytest.fixture
def world() -> LoadWorld:
    made = LoadWorld(from_requests=True)
    made.node("n1")
    made.pod("a", requests=("1", "1Gi"), limits=("4", "4Gi"))
    made.pod("b", requests=("500m", None))
    return made


def test_every_node_is_known_and_its_load_is_the_sum_of_requests(world: LoadWorld) -> None:
    load = world.load()

    assert load.known
    assert (load.cpu_milli, load.mem_bytes) == (1500.0, 1024.0 * MIB)
    assert load.cpu_percent == pytest.approx(18.75)
    assert (load.estimated_pods, load.sample_end_s) == (0, None)


def test_a_pod_uses_exactly_what_it_asks_for(world: LoadWorld) -> None:
    assert world.pod_load("a").cpu_milli == 1000.0
    assert world.pod_load("b").mem_bytes == 0.0
    assert world.pod_load("b").basis is Basis.REQUESTS


def test_a_pod_counts_for_no_more_than_its_node_has(world: LoadWorld) -> None:
    world.pod("huge", requests=("4000000000000", "1Gi"), deleted_s=world.now_s + 60.0)

    assert world.pod_load("huge").cpu_milli == 8000.0
    assert (world.load().cpu_milli, world.load().settled.cpu_milli) == (9500.0, 1500.0)
    assert world.load().mem_bytes == 2048.0 * MIB


def test_no_time_makes_it_stale_and_no_sample_changes_it(world: LoadWorld) -> None:
    world.measure({"n1": (7000.0, 7000.0)}, {"a": (6000.0, 6000.0)})
    world.pass_time(1e6)

    assert world.load().known
    assert world.load().cpu_milli == 1500.0
    assert world.pod_load("a").basis is Basis.REQUESTS


def test_a_change_of_pods_is_seen(world: LoadWorld) -> None:
    before = world.load().cpu_milli
    world.leave("b")

    assert (before, world.load().cpu_milli) == (1500.0, 1000.0)


def test_a_node_without_allocatable_is_unknown_all_the_same(world: LoadWorld) -> None:
    world.node("n2", cpu="0")

    assert world.load("n2").why is Unknown.NO_ALLOCATABLE


async def test_the_source_has_nothing_to_say() -> None:
    source = RequestsSource()

    assert source.name == "requests"
    assert await source.sample() is NOTHING_MEASURED
