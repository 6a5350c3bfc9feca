# SPDX-License-Identifier: Apache-2.0
"""One cluster of every family of the zoo: the plan beside the judge's optimum."""

from __future__ import annotations

import pytest

from bench.zoo.__main__ import Result, compared, judged
from bench.zoo.families import FAMILIES, drawn_cluster
from bench.zoo.model import Model
from tests.support.worlds.zoo import zoo_plan

SPREAD = {"both-spread", "cpu-spread", "default-pair", "new-nodes", "autoscaled-pools"}
JUDGE_S = 3.0
OTHER_SEEDS = {"wide-sizes": 2, "attach-limits": 2, "devices": 2}
"""Where the judge proves that the first cluster of a family has no solution."""


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cluster_of_every_family_is_solved(family: str) -> None:
    seed = OTHER_SEEDS.get(family, 1)
    cluster = drawn_cluster(family, seed)
    expect_solved(judged(family, seed, Model(cluster), zoo_plan(cluster), JUDGE_S))


@pytest.mark.parametrize("family", OTHER_SEEDS)
def test_where_a_goal_stays_unmet_there_is_proof_that_it_has_to(family: str) -> None:
    cluster = drawn_cluster(family, 1)
    found = judged(family, 1, Model(cluster), zoo_plan(cluster), JUDGE_S)
    assert found.solvable is False
    assert found.unmet
    assert found.broken == ()


@pytest.mark.parametrize("family", ["requests-only", "priorities-in-the-way"])
async def test_the_running_program_makes_such_a_plan(family: str) -> None:
    expect_solved(await compared(family, 1, seconds=JUDGE_S))


def expect_solved(found: Result) -> None:
    assert (found.solvable, found.broken, found.unmet) == (True, (), ())
    assert found.evictions > 0
    if found.family not in SPREAD:
        assert found.fewest is not None
        assert found.evictions <= found.fewest + 1
