# SPDX-License-Identifier: Apache-2.0
"""The set of nodes to empty, against a judge that tries every set and every way to pack it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from rebalancer.strategies.consolidation_choice import Packing, Parcel, choose

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
        "held": Counter(),
        **given,
    }
    return Packing(**values)


def fits(problem: Packing, emptied: frozenset[int]) -> bool:
    """Tell by trying everything whether all pods of these nodes find room on the others."""
    pods = [p for p in problem.parcels if p.home in emptied]
    free = {n: problem.room[n].copy() for n in range(len(problem.room)) if n not in emptied}
    held: Counter[tuple[Hashable, int]] = Counter(problem.held)

    def placed(number: int) -> bool:
        if number == len(pods):
            return True
        pod = pods[number]
        for node in free:
            if not pod.allowed[node] or (free[node] < pod.weight - 1e-9).any():
                continue
            if pod.group is not None and pod.most and held[pod.group, node] >= pod.most:
                continue
            free[node] -= pod.weight
            held[pod.group, node] += 1
            if placed(number + 1):
                return True
            free[node] += pod.weight
            held[pod.group, node] -= 1
        return False

    return placed(0)


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
    parcels, groups = [], ["a", "b", None, None]
    for home in range(count):
        for _ in range(dice.randint(0, 3)):
            allowed = np.array([dice.random() < 0.8 for _ in range(count)])
            group = dice.choice(groups)
            parcels.append(
                Parcel(
                    home=home,
                    weight=np.array([dice.uniform(1, 30), dice.uniform(1, 30), 1.0]),
                    allowed=allowed,
                    group=group,
                    most=1 if group == "a" else 2 if group else 0,
                )
            )
    return Packing(
        room=np.array(room),
        costs=[dice.choice([1.0, 1.0, 2.5, 4.0]) for _ in range(count)],
        parcels=parcels,
        candidates=[n for n in range(count) if dice.random() < 0.8],
        held=Counter((p.group, p.home) for p in parcels if p.group is not None),
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
    assert choose(problem) == {1: (0,)}


def test_of_equally_good_nodes_the_one_with_fewer_pods_goes() -> None:
    pods = [(0, [2.0]), (0, [2.0]), (0, [2.0]), (1, [6.0])]
    assert choose(packing([[10.0], [10.0]], pods)) == {1: (0,)}


def test_a_node_that_is_being_emptied_stays_chosen_although_another_were_better() -> None:
    problem = packing([[10.0], [10.0]], [(0, [8.0]), (1, [8.0])], costs=[1.0, 3.0], kept=[0])
    assert choose(problem) == {0: (1,)}


def test_a_node_that_is_being_emptied_is_given_up_when_its_pods_have_no_room() -> None:
    pods = [(0, [8.0]), (0, [3.0]), (2, [1.0])]
    problem = packing([[10.0], [1.0], [9.0]], pods, candidates=[0, 2], kept=[0])
    assert set(choose(problem)) == {2}


def test_no_node_is_emptied_without_a_place_for_all_of_its_pods() -> None:
    assert choose(packing([[10.0], [10.0]], [(0, [6.0]), (0, [6.0]), (1, [20.0])])) == {}


def test_replicas_that_may_not_share_a_host_do_not() -> None:
    allowed = np.ones(3, dtype=np.bool_)
    pods = [
        Parcel(home=n, weight=np.array([1.0]), allowed=allowed, group="web", most=1)
        for n in range(3)
    ]
    held: Counter[tuple[Hashable, int]] = Counter({("web", n): 1 for n in range(3)})
    problem = packing([[9.0]] * 3, [])
    assert choose(replace(problem, parcels=pods, held=held)) == {}


def test_a_large_cluster_is_packed_within_its_budget() -> None:
    dice = random.Random(1)
    room = [[dice.uniform(5, 50), dice.uniform(5, 50)] for _ in range(200)]
    pods = [(n, [dice.uniform(1, 8), dice.uniform(1, 8)]) for n in range(200) for _ in range(4)]
    problem = packing(room, pods, candidates=range(0, 200, 2))
    found = choose(problem)
    assert len(found) > 50
    assert all(set(targets).isdisjoint(found) for targets in found.values())
