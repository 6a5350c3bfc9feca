"""Where a pod may go: every constraint by name, passing and failing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.planner.draft import Draft, Effort
from rebalancer.planner.fitting import Fitting
from rebalancer.planner.problem import Problem
from rebalancer.planner.replicas import Census
from tests.support.planner_world import PlannerWorld, everything_moves, world_of

ROWS = yaml.safe_load((Path(__file__).parent / "constraints.yaml").read_text())


def draft_of(world: PlannerWorld) -> Draft:
    problem = Problem(world.demand(judged=everything_moves))
    fitting = Fitting(problem.demand.look.world, problem.nodes)
    return Draft(problem, fitting, Census(problem), Effort(1000))


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
    assert all(refusal.words for refusal in found)
