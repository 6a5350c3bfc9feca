# SPDX-License-Identifier: Apache-2.0
"""Where a pod may go: every constraint by name, passing and failing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rebalancer.planner.draft import Draft, DraftFactory
from rebalancer.planner.problem import Problem
from tests.support.tables import read_table
from tests.support.worlds.planner import PlannerWorld, everything_moves, world_of

ROWS = read_table(Path(__file__).parent / "constraints.yaml")


def draft_of(world: PlannerWorld) -> Draft:
    return DraftFactory(Problem(world.demand(judged=everything_moves))).draft()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
@pytest.mark.parametrize("exact", [False, True], ids=["at first", "after moves"])
def test_a_move_is_refused_with_the_names_of_what_forbids_it(
    row: dict[str, Any], exact: bool
) -> None:
    draft = draft_of(world_of(row))
    draft.exact = exact
    pod, target = row["move"]
    source = row["pods"][pod]["node"]
    movables = draft.problem.movables(draft.problem.row_of[source])
    movable = next(m for m in movables if m.pod.name == pod)
    at = draft.problem.row_of[target]

    found = list(draft.refusals(movable, at))

    assert [refusal.name for refusal in found] == row["refused"]
    assert bool(draft.targets(movable)[at]) is not bool(found)
    assert all(refusal.message for refusal in found)
