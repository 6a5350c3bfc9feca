# SPDX-License-Identifier: Apache-2.0
"""Pods are spread over the domains of their constraints, counted as the scheduler counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from common.config import Strategy
from rebalancer.planner import Plan
from tests.support.worlds.planner import PlannerWorld

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
KEPT = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}


def constraint(key: str = ZONE, skew: int = 1, *, hard: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **more,
    }


def cluster(zones: Mapping[str, int], **config: Any) -> PlannerWorld:
    """Return zones with so many nodes each."""
    settings = {"enabledStrategies": ["TopologySpread"], "maxReschedulePods": 100, **config}
    world = PlannerWorld(config=settings)
    for zone, nodes in zones.items():
        for number in range(nodes):
            name = f"{zone}{number}"
            world.node(name, labels={ZONE: zone, HOST: name})
    return world


def web(
    world: PlannerWorld,
    homes: Sequence[str],
    *constraints: Mapping[str, Any],
    first: int = 0,
    **more: Any,
) -> None:
    spec = {"topologySpreadConstraints": list(constraints)} if constraints else None
    for number, home in enumerate(homes, first):
        given = {"owner": "web", "replicas": len(homes), "spec": spec, **more}
        world.pod(f"web-{number}", home, 1.0, **given)


def places(world: PlannerWorld, plan: Plan) -> Counter[str]:
    """Return the pods by node after a plan."""
    return Counter(str(given["node"]) for given in world.after(plan).made_pods.values())


def test_a_zone_that_has_come_back_gets_its_share_with_the_fewest_moves() -> None:
    world = cluster({"a": 1, "b": 1, "c": 1})
    web(world, ["a0"] * 3 + ["b0"] * 3, constraint())
    plan = world.plan()
    assert places(world, plan) == {"a0": 2, "b0": 2, "c0": 2}
    assert (plan.lower_bound.evictions, plan.lower_bound.proof) == (2, "topology")
    assert plan.lower_bound.message == (
        "whatever domains they go to, at least 2 pods have to move for a topology spread constraint"
    )
    assert plan.goals == (f"Deployment default/web within 1 per {ZONE}",)
    assert {(m.strategy, m.reason) for m in plan.moves} == {
        (Strategy.TOPOLOGY_SPREAD, "TopologySpread")
    }
    assert plan.moves[0].message == (
        f"Deployment default/web has 3 pods in {ZONE}=a and 0 in c, "
        "and its DoNotSchedule constraint allows a difference of 1"
    )
    assert world.after(plan).plan().goals == ()


@pytest.mark.parametrize("hard", [True, False])
def test_a_rack_that_was_restarted_takes_sixteen_moves(hard: bool) -> None:
    """Of 64 pods on 16 nodes, with constraints for racks and for hosts."""
    world = cluster(dict.fromkeys("abcd", 4))
    held = [6, 6, 5, 4, 6, 5, 5, 5, 0, 0, 0, 0, 6, 6, 5, 5]
    names = [f"{zone}{number}" for zone in "abcd" for number in range(4)]
    homes = [name for name, count in zip(names, held, strict=True) for _ in range(count)]
    web(world, homes, constraint(hard=hard), constraint(HOST, hard=hard))
    plan = world.plan()
    assert len(plan.moves) == plan.lower_bound.evictions == 16
    assert set(places(world, plan).values()) == {4}
    assert world.after(plan).plan().moves == ()


def test_what_is_within_the_skew_is_left_alone() -> None:
    world = cluster({"a": 1, "b": 1})
    web(world, ["a0", "a0", "a0", "b0"], constraint(skew=2))
    assert world.plan().goals == ()


def test_off_unless_it_is_enabled() -> None:
    world = cluster({"a": 1, "b": 1}, enabledStrategies=["LoadBalancing"])
    web(world, ["a0"] * 4, constraint())
    assert world.plan().goals == ()


def test_soft_constraints_are_brought_within_their_skew() -> None:
    world = cluster({"a": 1, "b": 1})
    web(world, ["a0"] * 4, constraint(hard=False))
    plan = world.plan()
    assert len(plan.moves) == 2
    assert "its ScheduleAnyway constraint allows" in plan.moves[0].message


def test_without_constraints_those_of_the_scheduler_hold() -> None:
    world = cluster({"a": 2, "b": 1})
    web(world, ["a0"] * 6 + ["a1"] * 2)
    plan = world.plan()
    # At most 3 between hosts, and 5 between zones.
    assert len(plan.moves) == plan.lower_bound.evictions == 2
    assert max(places(world, plan).values()) - min(places(world, plan).values()) <= 3
    assert "kube-scheduler's default constraint allows a difference of 3" in plan.moves[0].message
    small = cluster({"a": 2, "b": 1})
    web(small, ["a0"] * 3)
    assert small.plan().goals == ()


def test_missing_domains_count_as_empty() -> None:
    world = cluster({"a": 1, "b": 1})
    web(world, ["a0", "a0", "b0"], constraint(minDomains=3))
    plan = world.plan()
    assert plan.moves == ()
    [unmet] = plan.unmet
    assert unmet.why.name == "DomainsTooFew"
    assert unmet.why.message == "there are 2 domains, minDomains asks for 3, and 3 pods count"


def test_fewer_domains_than_wanted_hold_what_the_skew_allows() -> None:
    world = cluster({"a": 1, "b": 1})
    web(world, ["a0", "a0"], constraint(minDomains=3))
    [move] = world.plan().moves
    assert move.target == "b0"
    assert move.message == (
        f"Deployment default/web has 2 pods in {ZONE}=a, and its DoNotSchedule constraint "
        "allows 1 while there are fewer than 3 domains"
    )


TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


@pytest.mark.parametrize(("policy", "counts"), [("Honor", False), ("Ignore", True)])
def test_the_taints_policy_says_whether_a_tainted_zone_counts(policy: str, counts: bool) -> None:
    world = cluster({"a": 1, "b": 1})
    world.node("c0", labels={ZONE: "c", HOST: "c0"}, taints=[TAINT])
    web(world, ["a0", "a0", "b0", "b0"], constraint(nodeTaintsPolicy=policy))
    plan = world.plan()
    # Where it counts it is the emptiest, and nothing can be done about it.
    assert (len(plan.goals), plan.moves, len(plan.unmet)) == (counts, (), counts)


def test_a_soft_constraint_does_not_count_a_zone_that_takes_no_such_pod() -> None:
    world = cluster({"a": 1, "b": 1})
    world.node("c0", labels={ZONE: "c", HOST: "c0"}, taints=[TAINT])
    web(world, ["a0", "a0", "b0", "b0"], constraint(hard=False))
    assert world.plan().goals == ()


@pytest.mark.parametrize(("policy", "goals"), [("Honor", 0), ("Ignore", 1)])
def test_the_affinity_policy_says_whether_nodes_that_are_not_selected_count(
    policy: str, goals: int
) -> None:
    world = cluster({"a": 1, "b": 1}, singleReplica="allow")
    world.node("c0", labels={ZONE: "c", HOST: "c0", "disk": "hdd"})
    for name in ("d0", "e0"):
        world.node(name, labels={ZONE: name, HOST: name, "disk": "ssd"})
    spec = {
        "topologySpreadConstraints": [constraint(nodeAffinityPolicy=policy)],
        "nodeSelector": {"disk": "ssd"},
    }
    for number, home in enumerate(["d0", "d0", "e0", "e0"]):
        world.pod(f"web-{number}", home, 1.0, owner="web", replicas=4, spec=spec)
    assert len(world.plan().goals) == goals


def test_revisions_are_counted_apart_where_the_constraint_says_so() -> None:
    each = constraint(matchLabelKeys=["pod-template-hash"])
    world = cluster({"a": 1, "b": 1})
    web(world, ["a0", "a0"], each, owner="web-1", labels={"app": "web", "pod-template-hash": "1"})
    more = {"owner": "web-2", "labels": {"app": "web", "pod-template-hash": "2"}}
    web(world, ["b0", "b0"], each, first=2, **more)
    plan = world.plan()
    assert {m.pod: m.target for m in plan.moves}.keys() & {"default/web-0", "default/web-1"}
    assert len(plan.moves) == 2
    whole = cluster({"a": 1, "b": 1})
    web(whole, ["a0", "a0"], constraint(), owner="web-1", labels={"app": "web"})
    web(whole, ["b0", "b0"], constraint(), first=2, owner="web-2", labels={"app": "web"})
    assert whole.plan().goals == ()


def test_pods_that_may_not_be_moved_count_where_they_are() -> None:
    world = cluster({"a": 1, "b": 1})
    web(world, ["a0"] * 2, constraint(), owner="kept", labels={"app": "web"}, annotations=KEPT)
    web(world, ["a0"] * 2, constraint(), first=2)
    plan = world.plan()
    assert {move.pod for move in plan.moves} == {"default/web-2", "default/web-3"}


def test_where_none_may_be_moved_there_is_no_goal_but_a_note() -> None:
    world = cluster({"a": 1, "b": 1})
    web(world, ["a0"] * 4, constraint(), annotations=KEPT)
    plan = world.plan()
    assert plan.goals == ()
    assert plan.notes == (
        "Deployment default/web breaks a topology spread constraint, "
        "but none of the pods may be moved.",
    )


def test_ceilings_hold_and_the_goal_is_approached_as_far_as_they_allow() -> None:
    world = cluster({"a": 1, "b": 1})
    for number in range(6):
        spec = {"topologySpreadConstraints": [constraint()]}
        world.pod(f"web-{number}", "a0", 10.0, owner="web", replicas=6, spec=spec)
    world.pod("other-0", "b0", 65.0, owner="other")
    plan = world.plan()
    assert places(world, plan) == {"a0": 5, "b0": 2}
    [unmet] = plan.unmet
    assert unmet.why.message.startswith("a keeps 5 of the pods and b has 1: no node is left for")
    assert "ceiling" in unmet.why.message
    assert world.after(plan).plan().moves == ()


def test_a_move_for_load_does_not_break_what_is_spread_by_default() -> None:
    """Without the guard the load of a0 would be leveled with pods that then come back."""
    world = cluster({"a": 1, "b": 1, "c": 1}, enabledStrategies=["TopologySpread", "LoadBalancing"])
    for number, home in enumerate(["a0"] * 4 + ["b0"] * 2 + ["c0"]):
        world.pod(f"web-{number}", home, 12.0, owner="web", replicas=7)
    world.pod("big-0", "c0", 40.0, owner="big")
    plan = world.plan()
    assert world.after(plan).plan().moves == ()
    held = places(world, plan)
    assert max(held[n] - (n == "c0") for n in held) - min(held[n] - (n == "c0") for n in held) <= 3


def test_a_hot_node_gives_the_pod_that_is_to_move_anyway() -> None:
    world = cluster({"a": 2, "b": 1}, enabledStrategies=["TopologySpread", "ResourceOptimization"])
    spec = {"topologySpreadConstraints": [constraint()]}
    for number, home in enumerate(["a0", "a1", "a1"]):
        world.pod(f"web-{number}", home, 20.0, owner="web", replicas=3, spec=spec)
    world.pod("hot-0", "a0", 65.0, owner="hot")
    [move] = world.plan().moves
    assert (move.pod, move.target) == ("default/web-0", "b0")


def test_a_constraint_that_does_not_count_the_pod_itself_asks_nothing() -> None:
    world = cluster({"a": 1, "b": 1})
    spec = {"topologySpreadConstraints": [constraint()]}
    for number in range(3):
        world.pod(f"api-{number}", "a0", 1.0, owner="api", spec=spec)
        world.pod(f"web-{number}", "a0", 1.0, owner="web")
    assert world.plan().goals == ()


def test_only_pools_with_the_strategy_give_pods() -> None:
    pools = [{"name": "b", "nodeSelector": f"{ZONE}=b", "enabledStrategies": ["TopologySpread"]}]
    world = cluster({"a": 1, "b": 1}, enabledStrategies=["LoadBalancing"], pools=pools)
    web(world, ["a0"] * 4, constraint())
    assert world.plan().goals == ()
