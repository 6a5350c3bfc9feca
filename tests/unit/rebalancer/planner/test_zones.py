# SPDX-License-Identifier: Apache-2.0
"""An empty node joins a zone: replicas are not piled up, and it is filled nevertheless."""

from __future__ import annotations

import random

import pytest

from rebalancer.planner import make_plan
from simulator.scenarios.placing import Piece, Place, place
from tests.support.oracles.plan_checker import faults
from tests.support.worlds.planner import PlannerWorld

CONFIG = {"enabledStrategies": ["LoadBalancing", "ResourceOptimization"]}
SIZES = {"search": (7.5, 0.8), "web": (5.0, 0.9), "mail": (3.75, 1.1)}
"""Percent of a node that a pod uses, and how many workloads there are of it for each other."""
REPLICAS = 5


def joined(seed: int, nodes: int, least: float, most: float, *, zones: int) -> PlannerWorld:
    """Return nodes between two levels, in zones by turns, and an empty one in the first."""
    dice = random.Random(seed)
    world = PlannerWorld(config=CONFIG)
    names = [f"n{number:02}" for number in range(nodes)]
    for number, name in enumerate(names):
        world.node(name, zone="abc"[number % zones])
    world.node("fresh", zone="a")
    pieces = pieces_for(nodes * (least + most) / 2)
    places = [Place(name, dice.uniform(least, most), 10**6, 10**9, 110) for name in names]
    found = place(pieces, places)
    for piece in pieces:
        load = (piece.usage_milli, 0.5)
        world.pod(piece.key, found[piece.key], load, owner=piece.workload, replicas=REPLICAS)
    return world


def pieces_for(percent: float) -> list[Piece]:
    """Return the pods of as many workloads as use so many percent of a node."""
    rounds = percent / (REPLICAS * sum(size * share for size, share in SIZES.values()))
    return [
        Piece(f"{kind}{number}-{replica}", f"{kind}{number}", size, 1, 1)
        for kind, (size, share) in SIZES.items()
        for number in range(round(share * rounds))
        for replica in range(REPLICAS)
    ]


@pytest.mark.parametrize(
    ("nodes", "least", "most", "zones", "fewest", "beyond"),
    [(10, 71, 77, 3, 7, 0), (20, 67, 73, 3, 7, 0), (20, 67, 73, 2, 7, 0), (7, 50, 78, 3, 7, 0)],
)
def test_a_new_node_is_filled_although_replicas_stay_apart(
    nodes: int, least: float, most: float, zones: int, fewest: int, beyond: int
) -> None:
    """The fewest moves were proven by the solver, without any rule about replicas."""
    demand = joined(2, nodes, least, most, zones=zones).demand()
    plan = make_plan(demand)
    assert faults(demand, plan) == []
    assert plan.unmet == ()
    assert plan.lower_bound.evictions <= fewest <= len(plan.moves) <= fewest + beyond


def test_pods_of_other_nodes_fill_it_if_those_of_the_highest_may_not() -> None:
    world = PlannerWorld(config=CONFIG)
    world.node("fresh", zone="a")
    world.node("siblings", zone="a")
    for node in range(4):
        world.node(f"top{node}", zone="b")
        for number in range(7):
            owner = f"tied{node}{number}"
            world.pod(f"{owner}-0", f"top{node}", (10.3, 1.0), owner=owner)
            world.pod(f"{owner}-1", "siblings", (2.0, 0.1), owner=owner)
    for node in range(6):
        world.node(f"next{node}", zone="b")
        for number in range(7):
            world.pod(f"free{node}{number}", f"next{node}", (9.5, 1.0))
    plan = world.plan()
    assert plan.unmet == ()
    assert {(move.source[:4], move.target) for move in plan.moves} == {("next", "fresh")}
    assert len(plan.moves) == 6


APART = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"app": "web"}},
                    "topologyKey": "topology.kubernetes.io/zone",
                }
            ]
        }
    }
}


def one_per_zone(*zones: str) -> PlannerWorld:
    """Return two nodes in each of three zones, and a hot one with the replica of its zone."""
    world = PlannerWorld(config={"enabledStrategies": ["ResourceOptimization"]})
    for zone in "abc":
        world.node(f"{zone}1", zone=zone, overhead=70.0 if zone == "a" else 20.0)
        world.node(f"{zone}2", zone=zone)
    for zone in zones:
        world.pod(
            f"web-{zone}", f"{zone}1", 15.0, owner="web", labels={"app": "web"}, spec=APART,
            replicas=len(zones),
        )  # fmt: skip
    return world


def test_a_replica_that_repels_those_of_all_other_zones_moves_within_its_own() -> None:
    demand = one_per_zone(*"abc").demand()
    plan = make_plan(demand)
    assert faults(demand, plan) == []
    assert [(move.pod, move.target) for move in plan.moves] == [("default/web-a", "a2")]
    assert plan.moves[0].alternatives == ()
    assert plan.unmet == ()


def test_where_a_zone_is_free_a_replica_goes_there_because_its_own_is_still_taken() -> None:
    demand = one_per_zone(*"ab").demand()
    plan = make_plan(demand)
    assert faults(demand, plan) == []
    assert [(move.pod, move.target[0]) for move in plan.moves] == [("default/web-a", "c")]
    assert all(node[0] == "c" for node in plan.moves[0].alternatives)
