# SPDX-License-Identifier: Apache-2.0
"""Nodes without room help each other: pods change places, or a pod in the way moves first."""

from __future__ import annotations

from rebalancer.planner import make_plan
from tests.support.worlds.planner import PlannerWorld, everything_moves

CEILINGS = {"enabledStrategies": ["ResourceOptimization"]}
REPELS = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"app": "db"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }
}


def two_full_nodes(*, memory: float = 1.0) -> PlannerWorld:
    """Return nodes at 85 % and 74 % of which only 15 % and 10 % can change places."""
    world = PlannerWorld(config=CEILINGS)
    for node, sizes in (("n1", (15.0, 40.0, 30.0)), ("n2", (10.0, 34.0, 30.0))):
        world.node(node)
        for number, size in enumerate(sizes):
            world.pod(f"{node}-{number}", node, (size, memory if size < 20.0 else 1.0))
    return world


def test_two_nodes_without_room_exchange_pods() -> None:
    plan = two_full_nodes().plan(judged=everything_moves)
    assert plan.unmet == ()
    first, second = plan.moves
    assert [(m.pod, m.target) for m in plan.moves] == [
        ("default/n1-0", "n2"),
        ("default/n2-0", "n1"),
    ]
    assert first.chain == second.chain
    assert second.needs == (first.uid,)


def test_memory_never_passes_its_ceiling_in_between() -> None:
    world = two_full_nodes(memory=45.0)
    plan = world.plan(judged=everything_moves)
    assert plan.moves == ()
    assert [u.why.name for u in plan.unmet] != []


def test_an_exchange_is_in_one_cycle_or_in_none() -> None:
    world = two_full_nodes()
    plan = make_plan(world.demand(judged=everything_moves))
    assert len({move.this_cycle for move in plan.moves}) == 1


def test_a_sibling_that_repels_a_pod_moves_first() -> None:
    world = PlannerWorld(config=CEILINGS)
    for node, overhead in (("n1", 60.0), ("n2", 30.0), ("n3", 71.0)):
        world.node(node, overhead=overhead)
    world.pod("db-0", "n1", 30.0, owner="db", spec=REPELS)
    world.pod("db-1", "n2", 4.0, owner="db", spec=REPELS)
    plan = world.plan(judged=everything_moves)
    assert plan.unmet == ()
    assert [(m.pod, m.target) for m in plan.moves] == [
        ("default/db-1", "n3"),
        ("default/db-0", "n2"),
    ]
    assert plan.moves[1].needs == (plan.moves[0].uid,)
