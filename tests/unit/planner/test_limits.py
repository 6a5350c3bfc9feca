"""How much of a plan starts at once: every limit by name, binding and not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.limits import at_once
from tests.support.planner_world import everything_moves, world_of

ROWS = yaml.safe_load((Path(__file__).parent / "limits.yaml").read_text())


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
