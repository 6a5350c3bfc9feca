# SPDX-License-Identifier: Apache-2.0
"""What is believed of pods that no one has measured."""

from __future__ import annotations

import pytest

from common.config import Estimates, LoadSettings
from common.load import Basis, Load
from tests.support.worlds.load import MIB, LoadWorld


@pytest.fixture
def world() -> LoadWorld:
    made = LoadWorld()
    made.node("n1")
    made.node("n2")
    return made


@pytest.mark.parametrize(
    ("requests", "limits", "cpu_milli", "mib"),
    [
        pytest.param(("1", "1Gi"), (None, None), 850.0, 0.7 * 1024, id="requests"),
        pytest.param(("1", "1Gi"), ("4", "4Gi"), 850.0, 0.7 * 1024, id="requests before limits"),
        pytest.param((None, None), ("2", "2Gi"), 2000.0, 2048.0, id="limits"),
        pytest.param((None, None), (None, None), 250.0, 200.0, id="neither"),
        pytest.param(("1", None), (None, None), 850.0, 200.0, id="only a CPU request"),
        pytest.param((None, "1Gi"), ("2", None), 2000.0, 0.7 * 1024, id="each on its own"),
        pytest.param((None, None), (None, "1Gi"), 250.0, 1024.0, id="only a memory limit"),
    ],
)
def test_an_estimate_follows_from_the_spec_per_resource(
    world: LoadWorld,
    requests: tuple[str | None, str | None],
    limits: tuple[str | None, str | None],
    cpu_milli: float,
    mib: float,
) -> None:
    world.pod("p", requests=requests, limits=limits)

    load = world.pod_load("p")

    assert load.basis is Basis.SPEC
    assert load.cpu_milli == pytest.approx(cpu_milli)
    assert load.mem_bytes == pytest.approx(mib * MIB)


def test_factors_and_defaults_are_settings() -> None:
    estimates = Estimates(cpu_of_request=0.5, memory_of_request=1.0, cpu="10m", memory="1Mi")
    world = LoadWorld(LoadSettings(estimates=estimates))
    world.node("n1")
    world.pod("asks", requests=("1", "1Gi"))
    world.pod("silent")

    assert world.pod_load("asks").cpu_milli == 500.0
    assert world.pod_load("asks").mem_bytes == 1024 * MIB
    assert world.pod_load("silent").cpu_milli == 10.0
    assert world.pod_load("silent").mem_bytes == MIB


def test_a_new_replica_uses_what_the_median_sibling_uses(world: LoadWorld) -> None:
    for index in range(3):
        world.pod(f"web-{index}", "n2", owner="web")
    world.measure(
        {"n2": (2000.0, 2000.0)},
        {"web-0": (100.0, 900.0), "web-1": (300.0, 100.0), "web-2": (5000.0, 200.0)},
    )
    world.pod("web-new", "n1", owner="web", scheduled_s=world.now_s, requests=("4", "8Gi"))

    load = world.pod_load("web-new")

    assert load.basis is Basis.SIBLINGS
    assert (load.cpu_milli, load.mem_bytes) == (300.0, 200.0 * MIB)


def test_pods_of_another_workload_are_no_siblings(world: LoadWorld) -> None:
    world.pod("api-0", "n2", owner="api")
    world.measure({"n2": (2000.0, 2000.0)}, {"api-0": (1500.0, 1500.0)})
    world.pod("web-0", "n1", owner="web", scheduled_s=world.now_s, requests=("1", "1Gi"))

    assert world.pod_load("web-0").basis is Basis.SPEC


def test_the_uid_of_another_kind_makes_no_sibling(world: LoadWorld) -> None:
    world.pod("forged", "n2", owner="web", owner_kind="StatefulSet")
    world.measure({"n2": (2000.0, 2000.0)}, {"forged": (1500.0, 1500.0)})
    world.pod("web-0", "n1", owner="web", scheduled_s=world.now_s, requests=("1", "1Gi"))

    assert world.pod_load("web-0").basis is Basis.SPEC


def test_static_pods_of_one_node_are_no_siblings(world: LoadWorld) -> None:
    world.pod("etcd", owner="n1", owner_kind="Node")
    world.measure({"n1": (2000.0, 2000.0)}, {"etcd": (1500.0, 1500.0)})
    world.pod(
        "proxy", owner="n1", owner_kind="Node", scheduled_s=world.now_s, requests=("100m", None)
    )

    assert world.pod_load("proxy").cpu_milli == 85.0


def test_siblings_whose_samples_are_too_old_do_not_count(world: LoadWorld) -> None:
    world.pod("web-0", "n2", owner="web")
    world.measure({"n2": (2000.0, 2000.0)}, {"web-0": (1500.0, 1500.0)})
    world.pod("web-1", "n1", owner="web", scheduled_s=world.now_s, requests=("1", "1Gi"))
    fresh = world.pod_load("web-1")
    world.pass_time(181.0)
    stale = world.pod_load("web-1")

    assert fresh.basis is Basis.SIBLINGS
    assert stale.basis is Basis.SPEC
    assert world.load("n1").cpu_milli == 850.0


def test_a_siblings_first_sample_changes_the_load_of_a_node_that_it_is_not_on(
    world: LoadWorld,
) -> None:
    world.pod("web-0", "n2", owner="web")
    world.pod("web-1", "n1", owner="web", scheduled_s=world.now_s, requests=("1", "1Gi"))
    world.measure({"n1": (100.0, 100.0)})
    before = world.load("n1").cpu_milli
    world.pass_time(30.0)
    world.measure({"n2": (2000.0, 2000.0)}, {"web-0": (1500.0, 1500.0)})
    after = world.load("n1").cpu_milli

    assert (before, after) == (950.0, 1600.0)


def test_what_the_predecessor_used_comes_before_siblings_and_spec(world: LoadWorld) -> None:
    world.pod("web-0", "n2", owner="web")
    world.measure({"n2": (2000.0, 2000.0)}, {"web-0": (1500.0, 1500.0)})
    uid = world.pod("web-1", "n1", owner="web", scheduled_s=world.now_s, requests=("1", "1Gi"))

    view = world.view({uid: Load(700.0, 70.0)})

    assert view.pod_load(uid).basis is Basis.PREDECESSOR
    assert view.pod_load(uid).cpu_milli == 700.0
    assert world.view({uid: Load(700.0, 70.0)}) is view
    assert [n.cpu_milli for n in view.nodes.values() if n.name == "n1"] == [700.0]
    assert world.view({uid: Load(900.0, 70.0)}).pod_load(uid).cpu_milli == 900.0
    assert world.view().pod_load(uid).basis is Basis.SIBLINGS


def test_its_own_measurement_comes_before_what_the_predecessor_used(world: LoadWorld) -> None:
    uid = world.pod("web-0")
    world.measure({"n1": (2000.0, 2000.0)}, {"web-0": (1500.0, 1500.0)})

    assert world.view({uid: Load(700.0, 70.0)}).pod_load(uid).basis is Basis.MEASURED


def test_a_pod_that_is_not_in_the_snapshot_yet_can_be_asked_for(world: LoadWorld) -> None:
    world.pod("web-0", "n2", owner="web")
    world.measure({"n2": (2000.0, 2000.0)}, {"web-0": (1500.0, 1500.0)})
    view = world.view()
    world.pod("web-1", None, owner="web", requests=("1", "1Gi"), phase="Pending")
    coming = world.state.snapshot().pods_by_name["default/web-1"]

    assert view.load_of(coming).cpu_milli == 1500.0
    with pytest.raises(KeyError):
        view.pod_load(coming.uid)
