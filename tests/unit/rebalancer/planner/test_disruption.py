# SPDX-License-Identifier: Apache-2.0
"""Of pods that do equally well, the one whose move disturbs least."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from common.api.migrations import Migration
from common.cluster.interning import Interner
from common.cluster.migrations import migration_record
from rebalancer.planner import make_plan
from rebalancer.planner.problem import Problem
from tests.support.worlds.planner import PlannerWorld, demand_of, everything_moves, view_of
from tests.support.worlds.wire import stamped, wire

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
COST = "controller.kubernetes.io/pod-deletion-cost"


def prefers_disk(disk: str) -> dict[str, Any]:
    wanted = {"key": "disk", "operator": "In", "values": [disk]}
    term = {"weight": 50, "preference": {"matchExpressions": [wanted]}}
    return {"affinity": {"nodeAffinity": {PREFERRED: [term]}}}


def prefers_company(app: str) -> dict[str, Any]:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    return {"affinity": {"podAffinity": {PREFERRED: [{"weight": 50, "podAffinityTerm": term}]}}}


LADDER: list[tuple[str, dict[str, Any]]] = [
    ("priority", {"spec": {"priority": 10}}),
    ("state", {"kind": "StatefulSet"}),
    ("deletion cost", {"annotations": {COST: "5"}}),
    ("preferred node", {"spec": prefers_disk("ssd")}),
]


def hot_world(*pods: dict[str, Any]) -> PlannerWorld:
    """Return a node of which one of the pods has to go, and an empty one."""
    world = PlannerWorld(config={"enabledStrategies": ["ResourceOptimization"]})
    world.node("n1", labels={"disk": "ssd"})
    world.node("n2")
    world.pod("rooted", "n1", 45.0, spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    for number, given in enumerate(pods):
        world.pod(f"p{number}", "n1", 20.0, **given)
    return world


def who_goes(*given: dict[str, Any]) -> list[str]:
    """Return which of two pods goes, whichever of them is listed first."""
    there = hot_world(*given).plan(judged=everything_moves)
    back = hot_world(*reversed(given)).plan(judged=everything_moves)
    names = {"default/p0": 0, "default/p1": 1}
    found = [names[m.pod] for m in there.moves], [1 - names[m.pod] for m in back.moves]
    assert found[0] == found[1]
    return ["first" if number == 0 else "second" for number in found[0]]


@pytest.mark.parametrize("place", range(len(LADDER)), ids=[name for name, _ in LADDER])
def test_whoever_has_less_to_lose_goes(place: int) -> None:
    assert who_goes(LADDER[place][1], {}) == ["second"]


@pytest.mark.parametrize("place", range(len(LADDER) - 1), ids=[name for name, _ in LADDER[:-1]])
def test_the_weightier_reason_decides(place: int) -> None:
    assert who_goes(LADDER[place][1], LADDER[place + 1][1]) == ["second"]


def test_a_preference_that_is_not_met_is_not_lost() -> None:
    assert who_goes({"spec": prefers_disk("hdd")}, {"spec": prefers_disk("ssd")}) == ["first"]


def test_company_on_the_same_node_is_kept() -> None:
    given = {"spec": prefers_company("rooted")}, {"spec": prefers_company("no-one")}
    assert who_goes(*given) == ["second"]


def test_who_was_moved_lately_stays() -> None:
    cluster = hot_world({}, {}).cluster()
    moved = next(pod for pod in cluster.snapshot.pods.values() if pod.name == "p0")
    snapshot = msgspec.structs.replace(cluster.snapshot, migrations={"m": finished(moved.uid)})
    again = view_of(snapshot, cluster.load, cluster.config)
    demand = demand_of(again, judged=everything_moves)
    costs = {m.pod.name: m.cost for m in Problem(demand).movables(0)}
    assert costs["p0"] > costs["p1"]
    assert [move.pod for move in make_plan(demand).moves] == ["default/p1"]


def finished(uid: str) -> Any:
    spec = {
        "pod": {"namespace": "default", "name": "before", "uid": "u-before"},
        "controller": {"kind": "ReplicaSet", "name": "p0", "uid": "u-rs"},
        "source": "n2",
        "target": "n1",
        "strategy": "LoadBalancing",
        "reason": "Spread",
        "deadline": "2026-11-16T08:05:00Z",
    }
    status = {
        "phase": "Completed",
        "replacement": {"name": "p0", "uid": uid, "node": "n1"},
        "finishedAt": "2026-11-16T08:03:00Z",
    }
    made = {"kind": "Migration", "metadata": {"name": "m"}, "spec": spec, "status": status}
    return migration_record(wire(Migration, stamped(made)), Interner())
