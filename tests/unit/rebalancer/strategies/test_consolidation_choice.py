# SPDX-License-Identifier: Apache-2.0
"""The set of nodes to empty, against a judge that tries every set and every way to pack it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from rebalancer.strategies.consolidation_choice import Packing, Parcel, choose
from rebalancer.strategies.shares import NO_ZONE, Ints, ReplicaRules

Small = dict[str, Any]


def packing(
    room: Sequence[Sequence[float]],
    parcels: Sequence[tuple[int, Sequence[float]]],
    **given: Any,
) -> Packing:
    """Return a problem in which all pods may run anywhere, and all nodes may be emptied."""
    count = len(room)
    allowed = np.ones(count, dtype=np.bool_)
    made = [
        Parcel(home=h, weight=np.array(w, dtype=np.float64), allowed=allowed) for h, w in parcels
    ]
    values: Small = {
        "room": np.array(room, dtype=np.float64),
        "costs": [1.0] * count,
        "parcels": made,
        "candidates": range(count),
        **given,
    }
    return Packing(**values)


def fits(problem: Packing, emptied: frozenset[int]) -> bool:
    """Tell by trying everything whether all pods of these nodes find room on the others."""
    pods = [p for p in problem.parcels if p.home in emptied]
    free = {n: problem.room[n].copy() for n in range(len(problem.room)) if n not in emptied}
    come: list[tuple[Parcel, int]] = []

    def placed(number: int) -> bool:
        if number == len(pods):
            return True
        pod = pods[number]
        for node in free:
            if not pod.allowed[node] or (free[node] < pod.weight - 1e-9).any():
                continue
            if pod.replicas is not None and not may_join(pod, node, come, emptied):
                continue
            free[node] -= pod.weight
            come.append((pod, node))
            if placed(number + 1):
                return True
            free[node] += pod.weight
            come.pop()
        return False

    return placed(0)


def may_join(
    pod: Parcel, node: int, come: Sequence[tuple[Parcel, int]], emptied: frozenset[int]
) -> bool:
    """Tell whether a host, and its zone, may hold one more replica: counted one by one."""
    rules = pod.replicas
    assert rules is not None
    nodes = range(len(rules.zone))
    mine = [(p.home, target) for p, target in come if p.replicas is rules]
    left = [n for n in nodes if rules.hosts[n] or (rules.eligible[n] and n not in emptied)]
    replicas, zones = sum(rules.hosts), {rules.zone[n] for n in left} - {NO_ZONE}
    most = rules.per_host if rules.per_host is not None else share(replicas, len(left))
    if rules.free is not None:
        taking = [n for n in nodes if (rules.hosts[n] or rules.free[n]) and n not in emptied]
        most = min(most, -(-replicas // max(1, len(taking))))
    if rules.hosts[node] + sum(target == node for _, target in mine) >= most:
        return False
    zone, home = rules.zone[node], rules.zone[pod.home]
    if zone in (NO_ZONE, home):
        return True
    most = rules.per_zone if rules.per_zone is not None else share(replicas, len(zones))
    there = sum(rules.hosts[n] for n in nodes if rules.zone[n] == zone)
    come_in = sum(rules.zone[h] != zone == rules.zone[t] for h, t in mine)
    return bool(there + come_in < most)


def share(replicas: int, domains: int) -> int:
    """Return one more than an even share, and fewer than all if there is another domain."""
    even = -(-replicas // max(1, domains)) + 1
    return min(even, replicas - 1) if replicas > 1 and domains > 1 else even


def optimum(problem: Packing) -> float:
    """Return what the best set saves."""
    sets = (
        frozenset(s)
        for size in range(len(problem.candidates) + 1)
        for s in combinations(problem.candidates, size)
    )
    ranked = sorted(sets, key=lambda s: -sum(problem.costs[n] for n in s))
    return next(sum(problem.costs[n] for n in s) for s in ranked if fits(problem, s))


def drawn(seed: int) -> Packing:
    """Return a small cluster with pods of many sizes, some bound to a few nodes."""
    dice = random.Random(seed)
    count = dice.randint(3, 7)
    room = [
        [dice.uniform(0.0, 60.0), dice.uniform(0.0, 60.0), dice.randint(1, 9)] for _ in range(count)
    ]
    parcels, homes = [], [n for n in range(count) for _ in range(dice.randint(0, 3))]
    zone = np.array([dice.choice([NO_ZONE, 0, 1, 2]) for _ in range(count)])
    groups = [dice.choice(["a", "b", "c", None, None]) for _ in homes]
    workloads = {g: rules(dice, homes, groups, g, zone) for g in ("a", "b", "c")}
    for home, group in zip(homes, groups, strict=True):
        allowed = np.array([dice.random() < 0.8 for _ in range(count)])
        weight = np.array([dice.uniform(1, 30), dice.uniform(1, 30), 1.0])
        shared = workloads[group] if group is not None else None
        parcels.append(Parcel(home=home, weight=weight, allowed=allowed, replicas=shared))
    return Packing(
        room=np.array(room),
        costs=[dice.choice([1.0, 1.0, 2.5, 4.0]) for _ in range(count)],
        parcels=parcels,
        candidates=[n for n in range(count) if dice.random() < 0.8],
    )


def rules(
    dice: random.Random, homes: list[int], groups: list[str | None], group: str, zone: Ints
) -> ReplicaRules:
    """Return what a workload asks of hosts and zones: a number of its own, or a fair share."""
    hosts = np.zeros(zone.size, dtype=np.int64)
    for home, each in zip(homes, groups, strict=True):
        hosts[home] += each == group
    anywhere = np.array([dice.random() < 0.8 for _ in range(zone.size)])
    return ReplicaRules(
        hosts=hosts,
        eligible=anywhere,
        zone=zone,
        per_host=1 if group == "a" else None,
        per_zone=2 if group == "a" else None,
        free=anywhere if group == "b" else None,
    )


@pytest.mark.parametrize("seed", range(60))
def test_the_best_set_of_a_small_cluster_is_found(seed: int) -> None:
    problem = drawn(seed)
    found = choose(problem)
    assert fits(problem, frozenset(found))
    assert set(found) <= set(problem.candidates)
    assert sum(problem.costs[n] for n in found) == pytest.approx(optimum(problem))


def test_the_cheapest_way_is_to_free_the_expensive_node() -> None:
    problem = packing([[10.0], [10.0]], [(0, [8.0]), (1, [8.0])], costs=[1.0, 3.0])
    assert choose(problem) == {1: {1: 0}}


def test_of_equally_good_nodes_the_one_with_fewer_pods_goes() -> None:
    pods = [(0, [2.0]), (0, [2.0]), (0, [2.0]), (1, [6.0])]
    assert choose(packing([[10.0], [10.0]], pods)) == {1: {3: 0}}


def test_a_node_that_is_being_emptied_stays_chosen_although_another_were_better() -> None:
    problem = packing([[10.0], [10.0]], [(0, [8.0]), (1, [8.0])], costs=[1.0, 3.0], kept=[0])
    assert choose(problem) == {0: {0: 1}}


def test_a_node_that_is_being_emptied_is_given_up_when_its_pods_have_no_room() -> None:
    pods = [(0, [8.0]), (0, [3.0]), (2, [1.0])]
    problem = packing([[10.0], [1.0], [9.0]], pods, candidates=[0, 2], kept=[0])
    assert set(choose(problem)) == {2}


def test_no_node_is_emptied_without_a_place_for_all_of_its_pods() -> None:
    assert choose(packing([[10.0], [10.0]], [(0, [6.0]), (0, [6.0]), (1, [20.0])])) == {}


def test_replicas_that_may_not_share_a_host_do_not() -> None:
    allowed, zones = np.ones(3, dtype=np.bool_), np.full(3, NO_ZONE)
    shared = ReplicaRules(hosts=np.ones(3, int), eligible=allowed, zone=zones, per_host=1)
    pods = [
        Parcel(home=n, weight=np.array([1.0]), allowed=allowed, replicas=shared) for n in range(3)
    ]
    problem = packing([[9.0]] * 3, [])
    assert choose(replace(problem, parcels=pods)) == {}


def test_a_workload_bound_to_two_nodes_keeps_both() -> None:
    """The share of the one that is left would be all replicas, as no host may hold them."""
    bound = np.array([True, True, False])
    shared = ReplicaRules(hosts=np.array([1, 1, 0]), eligible=bound, zone=np.array([-1, -1, -1]))
    pods = [
        Parcel(home=n, weight=np.array([1.0]), allowed=bound, replicas=shared) for n in range(2)
    ]
    found = choose(replace(packing([[9.0]] * 3, []), parcels=pods, candidates=(0, 1)))
    assert found == {}


def test_a_large_cluster_is_packed_within_its_budget() -> None:
    dice = random.Random(1)
    room = [[dice.uniform(5, 50), dice.uniform(5, 50)] for _ in range(200)]
    pods = [(n, [dice.uniform(1, 8), dice.uniform(1, 8)]) for n in range(200) for _ in range(4)]
    problem = packing(room, pods, candidates=range(0, 200, 2))
    found = choose(problem)
    assert len(found) > 50
    assert all(set(places.values()).isdisjoint(found) for places in found.values())
