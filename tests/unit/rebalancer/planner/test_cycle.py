# SPDX-License-Identifier: Apache-2.0
"""How much of a plan starts at once: every limit by name, binding and not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rebalancer.limits import at_once
from rebalancer.planner import make_plan
from tests.support.tables import read_table
from tests.support.worlds.pacing import record_of
from tests.support.worlds.planner import demand_of, everything_moves, view_of, world_of

ROWS = read_table(Path(__file__).parent / "cycle.yaml")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_the_plan_is_whole_and_says_which_limit_puts_off_what(row: dict[str, Any]) -> None:
    plan = world_of(row).plan(judged=everything_moves)
    assert plan.unmet == ()
    assert sum(move.this_cycle for move in plan.moves) == row["now"]
    assert sorted({m.deferred_by for m in plan.moves if not m.this_cycle}) == row["later"]


@pytest.mark.parametrize(
    ("replicas", "moving"), [(1, 1), (3, 1), (4, 2), (20, 2), (29, 2), (30, 3), (100, 10)]
)
def test_a_tenth_of_a_large_workload_may_move_at_once(replicas: int, moving: int) -> None:
    assert at_once(replicas) == moving


def test_a_workload_gets_one_surge_at_a_time() -> None:
    [row] = [row for row in ROWS if row["name"] == "two of a workload with more replicas"]
    cluster = world_of(row).cluster()
    view = view_of(cluster.snapshot, cluster.load, cluster.config)
    demand = replace(demand_of(view, judged=everything_moves), surges=lambda *_: True)
    plan = make_plan(demand)
    assert [move.this_cycle for move in plan.moves] == [True, False]
    assert plan.moves[1].deferred_by == "SurgeOneAtATime"


@pytest.mark.parametrize(("phase", "now"), [("InProgress", 0), ("Completed", 1)])
def test_what_a_namespace_has_under_way_counts_in_the_next_plan(phase: str, now: int) -> None:
    world = world_of(ROWS[0])
    cluster = world.cluster()
    config = cluster.config.model_copy(update={"max_per_namespace": 1, "max_reschedule_pods": 10})
    other = record_of({"pod": "elsewhere", "source": "n2", "target": "n3", "phase": phase})
    snapshot = msgspec.structs.replace(cluster.snapshot, migrations={other.name: other})
    plan = make_plan(demand_of(view_of(snapshot, cluster.load, config), judged=everything_moves))
    assert sum(move.this_cycle for move in plan.moves) == now
    assert {m.deferred_by for m in plan.moves if not m.this_cycle} == {"maxPerNamespace"}
