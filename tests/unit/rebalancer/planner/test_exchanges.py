# SPDX-License-Identifier: Apache-2.0
"""Nodes without room help each other: pods change places, or a pod in the way moves first."""

from __future__ import annotations

import pytest

from common.cluster.records import NodeName
from rebalancer.planner import make_plan
from rebalancer.planner.cycle import in_turn, startable
from rebalancer.planner.draft import DraftFactory
from rebalancer.planner.movable import Movable
from rebalancer.planner.ordering import Step, settle
from rebalancer.planner.problem import Problem
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


def a_circle() -> tuple[DraftFactory, dict[Movable, int]]:
    """Return nodes at 83, 77 and 77 % with the moves of a circle in which one gives three pods."""
    world = PlannerWorld(config=CEILINGS)
    wanted = {"big": "b", "first": "c", "second": "a", "third": "a", "back": "b"}
    for node, level in (("a", 62.34), ("b", 49.03), ("c", 68.33)):
        world.node(node, overhead=level)
    for name, node, size in (
        ("big", "a", 21.0),
        ("first", "b", 11.0),
        ("second", "b", 9.0),
        ("third", "b", 8.37),
        ("back", "c", 9.0),
    ):
        world.pod(name, node, (size, 1.0))
    problem = Problem(world.demand(judged=everything_moves))
    pods = {m.pod.name: m for row in range(3) for m in problem.judged(row)}
    return DraftFactory(problem), {pods[n]: problem.row_of[NodeName(t)] for n, t in wanted.items()}


def test_an_order_is_found_that_the_first_choice_would_block() -> None:
    """`back` can follow `first` at once; then `big` has no room, and it all stops."""
    drafts, moves = a_circle()
    [chain], left_out = settle(drafts.draft, moves)
    assert left_out == []
    assert [step.m.pod.name for step in chain][:2] == ["first", "big"]
    assert startable(drafts.problem, chain) is None


@pytest.mark.parametrize("waits", [True, False])
def test_moves_that_wait_for_each_other_do_not_count_together(*, waits: bool) -> None:
    drafts, moves = a_circle()
    big, first, second, third, _ = moves
    steps = [Step(first, moves[first], (), ()), Step(big, moves[big], (first,), ())]
    steps += [Step(m, moves[m], (big,) if waits else (), ()) for m in (second, third)]
    refusal = startable(drafts.problem, steps)
    assert (refusal is None) == waits
    assert refusal is None or "maxInFlightPerNode" in refusal.message


def test_moves_that_limits_keep_from_running_at_once_take_turns() -> None:
    """Three pods leave one node, and two of them may be in progress at a time."""
    drafts, moves = a_circle()
    big, first, second, third, _ = moves
    steps = [Step(m, moves[m], (), ()) for m in (first, big, second, third)]
    assert startable(drafts.problem, steps) is not None
    found = in_turn(drafts.problem, steps)
    assert [step.needs for step in found] == [(), (), (), (first,)]
    assert startable(drafts.problem, found) is None


def test_moves_that_limits_let_run_at_once_do_not_wait() -> None:
    drafts, moves = a_circle()
    big, first, second, *_ = moves
    steps = [Step(m, moves[m], (), ()) for m in (first, big, second)]
    assert in_turn(drafts.problem, steps) == steps
