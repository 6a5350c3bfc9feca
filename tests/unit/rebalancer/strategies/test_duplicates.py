# SPDX-License-Identifier: Apache-2.0
"""Replicas that share a host go to hosts that are free of their workload, and no more than must."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.cluster.records import NodeName, PodUid
from common.config import Strategy
from rebalancer.planner import Plan
from rebalancer.strategies.seats import Seats
from tests.support.worlds.planner import PlannerWorld

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HOST = "kubernetes.io/hostname"
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}


def cluster(*nodes: str, **config: Any) -> PlannerWorld:
    world = PlannerWorld(config={"enabledStrategies": ["Duplicates"], **config})
    for name in nodes:
        world.node(name)
    return world


def replicas(world: PlannerWorld, *hosts: str, load: float = 2.0, **given: Any) -> None:
    for number, host in enumerate(hosts):
        world.pod(f"web-{number}", host, load, owner="web", replicas=len(hosts), **given)


def counted(world: PlannerWorld) -> list[int]:
    found = Counter(each["node"] for each in world.made_pods.values())
    return sorted(found.values())


def test_replicas_on_one_host_go_to_hosts_that_are_free() -> None:
    world = cluster("a", "b", "c")
    replicas(world, "a", "a", "a")
    plan = world.plan()
    assert {(move.source, move.target) for move in plan.moves} == {("a", "b"), ("a", "c")}
    assert {(move.strategy, move.reason) for move in plan.moves} == {
        (Strategy.DUPLICATES, "Duplicate")
    }
    assert plan.moves[0].message == "a holds 3 replicas of ReplicaSet web; its share is 1"
    assert plan.lower_bound.evictions == len(plan.moves)
    assert plan.unmet == ()
    assert counted(world.after(plan)) == [1, 1, 1]
    assert world.after(plan).plan().goals == ()


def test_a_host_may_hold_an_even_share_rounded_up() -> None:
    world = cluster("a", "b")
    replicas(world, "a", "a", "a", "a", "b")
    plan = world.plan()
    assert len(plan.moves) == 1
    assert counted(world.after(plan)) == [2, 3]
    assert world.after(plan).plan().goals == ()


def test_replicas_of_several_workloads_are_counted_apart() -> None:
    world = cluster("a", "b")
    for name in ("one", "two"):
        world.pod(f"{name}-0", "a", 2.0, owner=name)
    assert world.plan().goals == ()


def test_a_host_that_the_replicas_cannot_use_has_no_share() -> None:
    world = cluster("a", "b")
    world.node("c", taints=[TAINT])
    replicas(world, "a", "a", "b")
    assert world.plan().goals == ()


def test_a_host_above_its_ceiling_has_no_share() -> None:
    world = cluster("a", "b")
    world.pod("busy", "b", 79.0, owner="busy")
    replicas(world, "a", "a")
    assert world.plan().goals == ()


def test_replicas_that_prefer_company_stay_together() -> None:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "web"}}}
    weighted = [{"weight": 10, "podAffinityTerm": term}]
    world = cluster("a", "b")
    replicas(world, "a", "a", spec={"affinity": {"podAffinity": {PREFERRED: weighted}}})
    assert world.plan().goals == ()


def test_company_of_another_workload_keeps_no_replicas_together() -> None:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "cache"}}}
    weighted = [{"weight": 10, "podAffinityTerm": term}]
    world = cluster("a", "b")
    replicas(world, "a", "a", spec={"affinity": {"podAffinity": {PREFERRED: weighted}}})
    assert len(world.plan().moves) == 1


def test_a_host_that_suits_preferences_less_is_not_free() -> None:
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    nodes = {PREFERRED: [{"weight": 1, "preference": term}]}
    world = cluster("b")
    world.node("a", labels={"disk": "ssd"})
    replicas(world, "a", "a", spec={"affinity": {"nodeAffinity": nodes}})
    assert world.plan().goals == ()


def test_a_soft_taint_makes_a_host_no_better_place() -> None:
    world = cluster("a")
    world.node("b", taints=[{**TAINT, "effect": "PreferNoSchedule"}])
    replicas(world, "a", "a")
    assert world.plan().goals == ()


def test_a_hard_constraint_for_zones_is_kept() -> None:
    """Each zone holds two, so only the free host of the same zone is open."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    world = cluster()
    for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("b3", "b")):
        world.node(name, zone=zone)
    replicas(world, "a1", "a1", "b1", "b2", spec={"topologySpreadConstraints": [spread]})
    plan = world.plan()
    assert [(move.source, move.target) for move in plan.moves] == [("a1", "a2")]


def test_while_a_replica_is_being_moved_no_other_has_to_leave() -> None:
    world = cluster("a", "b", "c")
    replicas(world, "a", "a", "a")
    world.moving("web-1", "b")
    assert world.plan().goals == ()


def test_replicas_that_may_not_leave_make_the_others_leave() -> None:
    world = cluster("a", "b", "c")
    world.pod("web-0", "a", 2.0, owner="web", annotations=STAYS)
    world.pod("web-1", "a", 2.0, owner="web")
    plan = world.plan()
    assert [move.pod for move in plan.moves] == ["default/web-1"]


def test_members_of_a_stateful_set_go_apart_as_well() -> None:
    world = cluster("a", "b", "c")
    for number in range(3):
        world.pod(f"db-{number}", "a", 2.0, owner="db", kind="StatefulSet")
    plan = world.plan()
    assert {move.target for move in plan.moves} == {"b", "c"}


def hot(*strategies: str) -> PlannerWorld:
    world = cluster("a", "b", "c", "d", enabledStrategies=["ResourceOptimization", *strategies])
    for name, load in (("a", 70.0), ("c", 60.0), ("d", 50.0)):
        world.pod(f"other-{name}", name, load, owner="other", annotations=STAYS)
    replicas(world, "a", "b", "c", load=15.0)
    return world


def test_a_move_for_load_makes_no_duplicates() -> None:
    """`b` would be the best node for the replica of `a`, but holds one."""
    without = hot().plan()
    plan = hot("Duplicates").plan()
    assert [(move.pod, move.target) for move in without.moves] == [("default/web-0", "b")]
    assert [(move.pod, move.target) for move in plan.moves] == [("default/web-0", "d")]


def test_a_pool_that_would_become_uneven_is_named() -> None:
    world = cluster("a", "b", enabledStrategies=["Duplicates", "LoadBalancing"])
    world.pod("busy", "b", 45.0, owner="busy")
    world.pod("rest", "a", 16.0, owner="rest")
    replicas(world, "a", "a", load=15.0)
    plan = world.plan()
    assert plan.moves == ()
    assert [unmet.why.name for unmet in plan.unmet] == ["LevelsLost"]


def test_nothing_is_planned_unless_it_is_enabled() -> None:
    world = cluster("a", "b", "c", enabledStrategies=["ResourceOptimization"])
    replicas(world, "a", "a", "a")
    assert world.plan().goals == ()


class Judge:
    """Tries every arrangement of the replicas."""

    def __init__(self, world: PlannerWorld, hosts: Sequence[str], open_to: Sequence[str]) -> None:
        self.now = list(hosts)
        self.pinned = [bool(each["annotations"]) for each in world.made_pods.values()]
        self.open = list(open_to)
        free = all(self.pinned[i] for i, host in enumerate(hosts) if hosts.count(host) > 1)
        usable = set(hosts) if free else {*hosts, *open_to}
        self.share = ceil(len(hosts) / len(usable))

    def excess(self, hosts: Sequence[str]) -> int:
        return sum(max(0, count - self.share) for count in Counter(hosts).values())

    @property
    def best(self) -> tuple[int, int]:
        """Replicas above the share of their host at the end, and moves; both the fewest."""
        choices = [
            [now] if pinned else sorted({now, *self.open})
            for now, pinned in zip(self.now, self.pinned, strict=True)
        ]
        return min((self.excess(end), self._moves(end)) for end in product(*choices))

    def _moves(self, end: Sequence[str]) -> int:
        return sum(now != then for now, then in zip(self.now, end, strict=True))


@given(st.integers(0, 10**6))
@settings(max_examples=80)
def test_the_fewest_replicas_move(seed: int) -> None:
    dice = random.Random(seed)
    names = [f"n{i}" for i in range(dice.randint(2, 5))]
    tainted = [name for name in names if dice.random() < 0.25]
    world = cluster()
    for name in names:
        world.node(name, taints=[TAINT] if name in tainted else [])
    hosts = [dice.choice(names[:3]) for _ in range(dice.randint(2, 6))]
    for number, host in enumerate(hosts):
        marks = STAYS if dice.random() < 0.2 else None
        world.pod(f"web-{number}", host, 1.0, owner="web", replicas=len(hosts), annotations=marks)
    judge = Judge(world, hosts, [name for name in names if name not in tainted])
    plan = world.plan()
    after = world.after(plan)
    ends = [each["node"] for each in after.made_pods.values()]
    assert (judge.excess(ends), len(plan.moves)) == judge.best
    assert after.plan().moves == ()


def taken(seats: Seats, wishes: Mapping[NodeName, Mapping[PodUid, set[NodeName]]]) -> Counter[str]:
    for pods in wishes.values():
        for uid in pods.keys() & seats.sent.keys():
            assert seats.sent[uid] in pods[uid]
    return Counter(seats.sent.values())


@given(st.integers(0, 10**6))
@settings(max_examples=200)
def test_as_many_pods_as_can_find_a_place(seed: int) -> None:
    dice = random.Random(seed)
    free = {NodeName(f"t{i}"): dice.randint(0, 2) for i in range(dice.randint(1, 3))}
    wishes: dict[NodeName, dict[PodUid, set[NodeName]]] = {}
    for number in range(dice.randint(1, 3)):
        wishes[NodeName(f"h{number}")] = {
            PodUid(f"h{number}-{i}"): {name for name in free if dice.random() < 0.5}
            for i in range(dice.randint(1, 3))
        }
    most = {host: dice.randint(0, len(pods)) for host, pods in wishes.items()}
    seats = Seats(free)
    for host, pods in wishes.items():
        seats.send(pods, most[host])
    found = taken(seats, wishes)
    assert all(found[name] <= places for name, places in free.items())
    assert all(len(pods.keys() & seats.sent.keys()) <= most[h] for h, pods in wishes.items())
    assert len(seats.sent) == _most_by_trying(free, wishes, most)


def _most_by_trying(
    free: Mapping[NodeName, int],
    wishes: Mapping[NodeName, Mapping[PodUid, set[NodeName]]],
    most: Mapping[NodeName, int],
) -> int:
    owners = {uid: host for host, pods in wishes.items() for uid in pods}
    choices = [[None, *sorted(pods[uid])] for pods in wishes.values() for uid in pods]
    best = 0
    for end in product(*choices):
        placed: Counter[NodeName] = Counter(name for name in end if name is not None)
        left = Counter(o for o, name in zip(owners.values(), end, strict=True) if name is not None)
        full = any(placed[name] > free[name] for name in free)
        fits = not full and all(left[host] <= most[host] for host in most)
        best = max(best, placed.total() if fits else 0)
    return best


@pytest.mark.parametrize("seed", range(6))
def test_replicas_on_their_way_are_not_moved_again(seed: int) -> None:
    """The plan itself keeps the share of every host, also where many leave at once."""
    dice = random.Random(seed)
    names = [f"n{i}" for i in range(6)]
    world = cluster(*names)
    hosts = [dice.choice(names[:2]) for _ in range(dice.randint(4, 12))]
    replicas(world, *hosts, load=1.0)
    plan: Plan = world.plan()
    assert max(counted(world.after(plan))) == ceil(len(hosts) / len(names))
