# SPDX-License-Identifier: Apache-2.0
"""Plans for spread constraints beside an exact judge, on drawn clusters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.topology import FAMILIES, Judge, drawn_for, replayed
from rebalancer.planner import make_plan
from rebalancer.solver import solve
from tests.support.worlds.topology import moves_of, world_of_drawn

ONE = ("zones", "hosts", "policies")
SEVERAL = tuple(family for family in FAMILIES if family not in ONE)


@settings(max_examples=20)
@given(st.sampled_from(ONE), st.integers(1, 10_000))
def test_one_constraint_takes_the_fewest_moves_that_are_proven(family: str, seed: int) -> None:
    drawn = drawn_for(family, seed)
    world = world_of_drawn(drawn)
    plan = world.plan()
    broken, left = replayed(drawn, moves_of(plan))
    assert broken == []
    assert bool(plan.unmet) == bool(left)
    fewest = Judge(drawn).fewest()
    if fewest is not None:
        assert left == 0
        assert len(plan.moves) == fewest == plan.lower_bound.evictions
    assert world.after(plan).plan().moves == ()


@pytest.mark.parametrize("family", SEVERAL)
def test_several_constraints_take_hardly_more_than_the_fewest(family: str) -> None:
    taken = fewest = 0
    for seed in range(1, 4):
        drawn = drawn_for(family, seed)
        plan = make_plan(replace(world_of_drawn(drawn).demand(), solve=solve))
        broken, left = replayed(drawn, moves_of(plan))
        assert broken == []
        best = Judge(drawn).fewest()
        if best is not None:
            assert left == 0
            assert plan.lower_bound.evictions <= best
            taken, fewest = taken + len(plan.moves), fewest + best
    assert fewest > 0
    assert taken <= 1.05 * fewest


@pytest.mark.parametrize(("family", "seed"), [("tight", 2021), ("shared", 2015), ("shared", 2031)])
def test_moves_open_places_for_each_other_and_take_turns(family: str, seed: int) -> None:
    """Hard constraints or limits allow some of the moves only once others are made."""
    drawn = drawn_for(family, seed)
    plan = make_plan(replace(world_of_drawn(drawn).demand(), solve=solve))
    assert replayed(drawn, moves_of(plan)) == ([], 0)
    assert len(plan.moves) == Judge(drawn).fewest()
