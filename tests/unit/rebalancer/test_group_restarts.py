# SPDX-License-Identifier: Apache-2.0
"""Groups leave drained nodes as a whole, all or none: where, when, and why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rebalancer.group_restarts import group_restarts
from rebalancer.removals import Removals
from tests.support.worlds.planner import PlannerWorld

GANG: dict[str, Any] = {"schedulingGroup": {"podGroupName": "train"}}
SETTINGS: dict[str, Any] = {
    "enabledStrategies": ["NodeMaintenance"],
    "mode": "act",
    "groups": "restart",
    "workloadCooldown": "5m",
}


def world(
    *,
    room: int = 3,
    minimum: int = 3,
    labels: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    **spec: Any,
) -> PlannerWorld:
    """Return a gang of three on a drained node, and others with room for so many of its pods."""
    found = PlannerWorld(config={**SETTINGS, **(settings or {})})
    found.node("a", maintenance=True)
    for number in range(1, 4):
        found.node(f"n{number}", labels=labels)
        used = 60.0 if number > room else 10.0
        found.pod(f"other-{number}", f"n{number}", 1.0, asks=used, owner=f"other-{number}")
    for number in range(3):
        found.pod(f"train-{number}", "a", 1.0, asks=50.0, owner="train", spec=GANG)
    found.gang("train", minimum, **spec)
    return found


def restarted(found: PlannerWorld) -> Removals:
    return group_restarts(found.demand())


def names(found: Removals) -> list[str]:
    return [each.name for each in found.listed if not each.deferred_by]


ALL = ["train-0", "train-1", "train-2"]


def test_a_gang_without_a_pod_to_spare_is_restarted_where_all_of_it_fits() -> None:
    found = restarted(world())
    assert sorted(names(found)) == ALL
    assert {(each.group, each.node, each.strategy) for each in found.listed} == {
        ("default/train", "a", "NodeMaintenance")
    }
    assert found.listed[0].message == (
        "PodGroup default/train is restarted with all of its 3 pods, because a is under maintenance"
    )


def test_pods_on_nodes_that_stay_are_restarted_with_the_others() -> None:
    found = world(room=2, minimum=4)
    found.pod("train-3", "n3", 1.0, asks=30.0, owner="train", spec=GANG)
    found.node("n4")
    assert sorted(names(restarted(found))) == [*ALL, "train-3"]


def test_none_is_evicted_where_one_has_no_place() -> None:
    found = restarted(world(room=2))
    assert found.listed == ()
    [note] = found.notes
    assert note.startswith("PodGroup default/train is not restarted: its 3 pods do not fit at once")


def test_places_of_the_group_itself_count_as_free() -> None:
    found = PlannerWorld(config=SETTINGS)
    found.node("a", maintenance=True)
    for name in ("b", "c"):
        found.node(name)
        found.pod(f"train-{name}", name, 1.0, asks=80.0, owner="train", spec=GANG)
    found.node("d")
    found.pod("train-a", "a", 1.0, asks=80.0, owner="train", spec=GANG)
    found.gang("train", 3)
    assert sorted(names(restarted(found))) == ["train-a", "train-b", "train-c"]


@pytest.mark.parametrize("settings", [{"groups": "refuse"}, {"enabledStrategies": []}])
def test_nothing_is_restarted_unless_both_are_asked_for(settings: dict[str, Any]) -> None:
    assert restarted(world(settings=settings)) == Removals()


def test_nothing_is_restarted_without_a_drain() -> None:
    found = world()
    found.node("a")
    assert restarted(found) == Removals()


def test_a_gang_with_pods_to_spare_leaves_one_by_one() -> None:
    assert restarted(world(minimum=2)) == Removals()


def test_a_group_that_is_disrupted_as_a_whole_is_restarted_although_it_has_pods_to_spare() -> None:
    assert sorted(names(restarted(world(minimum=1, disruptionMode="PodGroup")))) == ALL


def test_a_group_of_one_domain_needs_room_in_one() -> None:
    topology: dict[str, Any] = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
    assert sorted(names(restarted(world(labels={"rack": "r1"}, **topology)))) == ALL
    apart = world(**topology)
    [note] = restarted(apart).notes
    assert note.endswith("no node has the labels of its topology constraint.")
    for number in range(1, 4):
        apart.node(f"n{number}", labels={"rack": f"r{number}"})
    assert "do not fit at once" in restarted(apart).notes[0]


def test_budgets_have_to_allow_all_of_it() -> None:
    allowed = world()
    allowed.pdb("train", {"app": "train"}, allowed=3)
    assert sorted(names(restarted(allowed))) == ALL
    refused = world()
    refused.pdb("train", {"app": "train"}, allowed=2)
    found = restarted(refused)
    assert found.listed == ()
    assert "train" in found.notes[0]


def test_gates_hold_for_every_pod() -> None:
    found = world()
    safe = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    found.pod("train-2", "a", 1.0, asks=50.0, owner="train", spec=GANG, annotations=safe)
    assert "default/train-2 stays, because" in restarted(found).notes[0]


def test_a_group_that_does_not_run_whole_is_left_alone() -> None:
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
    found = world(minimum=1, disruptionMode="PodGroup")
    found.pod("train-2", "a", 1.0, asks=50.0, owner="train", spec=GANG, status=status)
    assert "default/train-2 is not Ready" in restarted(found).notes[0]


def test_a_group_that_has_just_started_is_not_restarted_again() -> None:
    found = world()
    demand = found.demand()
    youngest = max(pod.created_s for pod in demand.cluster.snapshot.pods.values())
    early = replace(demand, cluster=replace(demand.cluster, now_s=youngest + 60.0))
    assert "is younger than workloadCooldown" in group_restarts(early).notes[0]


def test_ceilings_hold_for_the_nodes_that_take_it() -> None:
    found = world()
    for number in range(1, 4):
        found.pod(f"other-{number}", f"n{number}", 79.5, asks=10.0, owner=f"other-{number}")
    assert "do not fit at once" in restarted(found).notes[0]


def test_in_observe_mode_it_is_only_shown() -> None:
    found = restarted(world(settings={"modes": {"NodeMaintenance": "observe"}}))
    assert len(found.listed) == 3
    assert names(found) == []
    assert all(each.deferred_by for each in found.listed)
