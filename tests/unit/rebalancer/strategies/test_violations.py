# SPDX-License-Identifier: Apache-2.0
"""Pods leave nodes that no longer fit them, and only those that must."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.cluster.records import PodUid
from common.config import Strategy
from rebalancer.strategies.conflicts import Conflicts, fewest
from tests.support.worlds.planner import PlannerWorld

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


def cluster(**config: Any) -> PlannerWorld:
    return PlannerWorld(config={"enabledStrategies": ["Violations"], **config})


def selecting(key: str, value: str) -> dict[str, Any]:
    expression = {"key": key, "operator": "In", "values": [value]}
    terms = [{"matchExpressions": [expression]}]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


def apart(app: str, key: str = HOST) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}


def test_a_pod_whose_affinity_does_not_select_its_node_goes_where_it_does() -> None:
    world = cluster()
    world.node("old", labels={"disk": "hdd"})
    world.node("other", labels={"disk": "hdd"})
    world.node("new", labels={"disk": "ssd"})
    world.pod("db-0", "old", 10.0, owner="db", spec=selecting("disk", "ssd"))
    world.pod("web-0", "old", 10.0, owner="web")
    plan = world.plan()
    [move] = plan.moves
    assert (move.pod, move.target, move.strategy) == ("default/db-0", "new", Strategy.VIOLATIONS)
    assert move.reason == "Violation"
    assert move.message == (
        "default/db-0 violates its rules on old: "
        "its node selector or required node affinity does not select the node"
    )
    assert plan.goals == ("default/db-0 away from old",)
    assert (plan.lower_bound.evictions, plan.lower_bound.proof) == (1, "relocate")
    assert plan.lower_bound.message == "1 pod has to leave the node where it is"
    assert plan.unmet == ()
    assert world.after(plan).plan().moves == ()


def test_a_node_selector_counts_as_well() -> None:
    world = cluster()
    world.node("old")
    world.node("new", labels={"disk": "ssd"})
    world.pod("db-0", "old", 10.0, owner="db", spec={"nodeSelector": {"disk": "ssd"}})
    assert [move.target for move in world.plan().moves] == ["new"]


def test_pods_that_do_not_tolerate_a_taint_leave() -> None:
    world = cluster()
    world.node("tainted", taints=[TAINT])
    world.node("free")
    tolerant = {"tolerations": [{"key": "team", "operator": "Exists"}]}
    world.pod("web-0", "tainted", 10.0, owner="web")
    world.pod("own-0", "tainted", 10.0, owner="own", spec=tolerant)
    [move] = world.plan().moves
    assert (move.pod, move.target) == ("default/web-0", "free")
    assert move.message.endswith("it does not tolerate the taint team=a:NoSchedule")


@pytest.mark.parametrize(
    "key",
    [
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/disk-pressure",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "ToBeDeletedByClusterAutoscaler",
    ],
)
def test_taints_that_say_something_for_a_while_are_no_reason(key: str) -> None:
    world = cluster()
    world.node("tainted", taints=[{"key": key, "effect": "NoSchedule"}])
    world.node("free")
    world.pod("web-0", "tainted", 10.0, owner="web")
    assert world.plan().goals == ()


def test_a_taint_that_only_asks_is_no_reason() -> None:
    world = cluster()
    world.node("tainted", taints=[{**TAINT, "effect": "PreferNoSchedule"}])
    world.node("free")
    world.pod("web-0", "tainted", 10.0, owner="web")
    assert world.plan().goals == ()


def test_of_replicas_that_anti_affinity_keeps_apart_one_stays() -> None:
    world = cluster()
    for name in ("a", "b", "c"):
        world.node(name)
    for number in range(3):
        world.pod(f"web-{number}", "a", 10.0, owner="web", spec=apart("web"))
    plan = world.plan()
    assert len(plan.moves) == plan.lower_bound.evictions == 2
    assert {move.target for move in plan.moves} == {"b", "c"}
    assert "required anti-affinity keeps it apart from default/web-" in plan.moves[0].message
    assert world.after(plan).plan().moves == ()


def test_anti_affinity_holds_in_both_directions_and_the_common_pod_leaves() -> None:
    """`noisy` has no term of its own; both others forbid it, and it alone has to go."""
    world = cluster()
    world.node("a")
    world.node("b")
    world.pod("noisy-0", "a", 10.0, owner="noisy")
    world.pod("one-0", "a", 10.0, owner="one", spec=apart("noisy"))
    world.pod("two-0", "a", 10.0, owner="two", spec=apart("noisy"))
    plan = world.plan()
    assert [(move.pod, move.target) for move in plan.moves] == [("default/noisy-0", "b")]


def test_while_a_pod_is_being_moved_no_other_has_to_leave() -> None:
    world = cluster()
    for name in ("a", "b", "c"):
        world.node(name)
    for number in range(2):
        world.pod(f"web-{number}", "a", 10.0, owner="web", spec=apart("web"))
    world.moving("web-1", "b")
    assert world.plan().goals == ()


def test_a_pod_that_may_not_leave_makes_the_other_one_leave() -> None:
    world = cluster()
    for name in ("a", "b", "c"):
        world.node(name)
    world.pod("bare", "a", 10.0, kind="none")
    for number in range(2):
        spec = apart("bare")
        world.pod(f"web-{number}", "a", 10.0, owner="web", spec=spec)
    assert {move.pod for move in world.plan().moves} == {"default/web-0", "default/web-1"}


def test_zones_count_where_the_term_names_them() -> None:
    world = cluster()
    for name, zone in (("a", "z1"), ("b", "z1"), ("c", "z2")):
        world.node(name, zone=zone)
    for number, node in enumerate(("a", "b")):
        world.pod(f"web-{number}", node, 10.0, owner="web", spec=apart("web", ZONE))
    assert [move.target for move in world.plan().moves] == ["c"]


def test_a_pod_that_may_not_be_moved_is_named_in_a_note() -> None:
    world = cluster()
    world.node("old")
    world.node("new", labels={"disk": "ssd"})
    world.pod("bare", "old", 10.0, kind="none", spec={"nodeSelector": {"disk": "ssd"}})
    plan = world.plan()
    assert not plan.goals
    assert not plan.moves
    assert "default/bare violates rules of where to run, but may not be moved." in plan.notes


def test_the_ceiling_of_the_only_node_that_fits_is_kept_and_said() -> None:
    world = cluster(cpuThreshold=50.0)
    world.node("old")
    world.node("new", labels={"disk": "ssd"})
    world.pod("busy-0", "new", 45.0, owner="busy")
    world.pod("db-0", "old", 10.0, owner="db", spec={"nodeSelector": {"disk": "ssd"}})
    plan = world.plan()
    assert plan.moves == ()
    [unmet] = plan.unmet
    assert unmet.goal == "default/db-0 away from old"
    assert unmet.why.name in ("AboveCeiling", "DoesNotFit")


def test_a_node_without_any_that_fits_says_why() -> None:
    world = cluster()
    world.node("old")
    world.node("other")
    world.pod("db-0", "old", 10.0, owner="db", spec={"nodeSelector": {"disk": "ssd"}})
    [unmet] = world.plan().unmet
    assert unmet.why.name == "DoesNotFit"
    assert "no node is left for it: " in unmet.why.message


def test_a_pool_that_would_become_uneven_is_named() -> None:
    world = cluster(enabledStrategies=["Violations", "LoadBalancing"], fillLowNodes="always")
    world.node("old")
    world.node("new", labels={"disk": "ssd"})
    world.pod("a", "old", 30.0, owner="a")
    world.pod("b", "new", 45.0, owner="b")
    world.pod("db-0", "old", 12.0, owner="db", spec={"nodeSelector": {"disk": "ssd"}})
    plan = world.plan()
    assert plan.moves == ()
    [unmet] = plan.unmet
    assert unmet.why.name == "LevelsLost"


def test_moving_it_saves_the_hot_node_another_eviction() -> None:
    world = cluster(enabledStrategies=["Violations", "ResourceOptimization"])
    world.node("hot")
    world.node("new", labels={"disk": "ssd"})
    world.pod("db-0", "hot", 20.0, owner="db", spec={"nodeSelector": {"disk": "ssd"}})
    for number in range(7):
        world.pod(f"web-{number}", "hot", 10.0, owner="web", replicas=7)
    plan = world.plan()
    assert [move.pod for move in plan.moves] == ["default/db-0"]
    assert plan.unmet == ()


def test_nothing_is_planned_unless_it_is_enabled() -> None:
    world = PlannerWorld()
    world.node("tainted", taints=[TAINT])
    world.node("free")
    world.pod("web-0", "tainted", 10.0, owner="web")
    assert world.plan().goals == ()


def test_a_pool_with_only_this_strategy_gives_the_pods_that_violate_rules() -> None:
    world = cluster(
        enabledStrategies=["ResourceOptimization"],
        pools=[{"name": "a", "nodeSelector": "pool=a", "enabledStrategies": ["Violations"]}],
    )
    world.node("tainted", taints=[TAINT], labels={"pool": "a"})
    world.node("free")
    tolerant = {"tolerations": [{"key": "team", "operator": "Exists"}]}
    world.pod("web-0", "tainted", 10.0, owner="web")
    world.pod("own-0", "tainted", 90.0, owner="own", spec=tolerant)
    assert [move.pod for move in world.plan().moves] == ["default/web-0"]


@given(st.integers(0, 10**6))
@settings(max_examples=200)
def test_the_fewest_pods_leave(seed: int) -> None:
    dice = random.Random(seed)
    pods = [PodUid(f"p{i}") for i in range(dice.randint(2, 9))]
    found: Conflicts = {}
    for one, other in combinations(pods, 2):
        if dice.random() < 0.4:
            found.setdefault(one, set()).add(other)
            found.setdefault(other, set()).add(one)
    free = {uid for uid in pods if dice.random() < 0.8}
    chosen = fewest(found, free.__contains__, lambda uid: (0.0, uid))
    edges = [(a, b) for a in found for b in found[a] if a < b and (a in free or b in free)]
    least = next(
        size
        for size in range(len(pods) + 1)
        if any(
            all(a in c or b in c for a, b in edges)
            for c in map(set, combinations(sorted(free), size))
        )
    )
    assert chosen <= free
    assert all(a in chosen or b in chosen for a, b in edges)
    assert len(chosen) == least


def test_replicas_of_a_large_workload_that_are_all_together_leave_but_one() -> None:
    pods = [PodUid(f"p{i:02}") for i in range(30)]
    found = {uid: set(pods) - {uid} for uid in pods}
    assert len(fewest(found, lambda _: True, lambda uid: (0.0, uid))) == 29
