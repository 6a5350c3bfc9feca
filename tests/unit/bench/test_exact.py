# SPDX-License-Identifier: Apache-2.0
"""The exact solver: it agrees with trying every plan, and its bounds hold."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.exact import Status, exact
from bench.milp import SolverMissing
from bench.problems import Shape, draw
from rebalancer.goals import BALANCED, Goal
from rebalancer.planner.bounds import lower_bound
from rebalancer.planner.instance import Floats, Instance, Ints
from tests.support.oracles.planner_search import fewest_evictions
from tests.support.worlds.planner_instances import cpu, goals_of, instance_of, spread_goal


@st.composite
def problems(drawn: st.DrawFn) -> tuple[Instance, list[Goal]]:
    """Few nodes and pods, so that every plan can be tried."""
    shape = Shape(
        nodes=3,
        pods=drawn(st.integers(4, 6)),
        hot=drawn(st.integers(0, 2)),
        empty=drawn(st.integers(0, 1)),
        cold_percent=drawn(st.sampled_from([35.0, 55.0])),
        kinds=drawn(st.sampled_from([("",), ("a", "b")])),
    )
    instance = draw(drawn(st.integers(0, 10_000)), shape).instance()
    goals = goals_of(instance)
    if drawn(st.booleans()):
        dimension = drawn(st.sampled_from(BALANCED))
        goals.append(spread_goal(instance, 20.0, dimension, fill_low=drawn(st.booleans())))
    return instance, goals


@settings(max_examples=40)
@given(problems())
def test_the_optimum_is_what_trying_every_plan_finds(problem: tuple[Instance, list[Goal]]) -> None:
    instance, goals = problem
    found = exact(instance, goals, seconds=30.0)
    fewest = fewest_evictions(instance, goals, ceilings=True)
    assert found.evictions == fewest
    assert found.status is (Status.INFEASIBLE if fewest is None else Status.OPTIMAL)


@pytest.mark.parametrize("seed", range(6))
def test_the_certificate_is_never_above_the_optimum(seed: int) -> None:
    shape = Shape(nodes=10, pods=80, hot=2, empty=seed % 2, cold_percent=60.0, kinds=("a", "b"))
    instance = draw(seed, shape).instance()
    goals = goals_of(instance)
    found = exact(instance, goals, seconds=30.0)
    assert found.status is Status.OPTIMAL
    assert found.evictions is not None
    assert lower_bound(instance, goals).evictions <= found.bound == found.evictions


@pytest.mark.parametrize("seed", range(3))
def test_the_assignment_keeps_the_ceilings_and_empties_what_it_must(seed: int) -> None:
    instance = draw(seed, Shape(nodes=10, pods=80, hot=2, empty=1)).instance()
    found = exact(instance, goals_of(instance), seconds=30.0)
    assert found.assignment is not None
    assert (percent_after(instance, found.assignment) <= instance.ceiling + 1e-5).all()
    assert not instance.empty[found.assignment].any()
    assert np.count_nonzero(found.assignment != instance.at) == found.evictions


def test_the_assignment_brings_a_pool_together() -> None:
    instance = draw(4, Shape(nodes=5, pods=25, hot=1)).instance()
    found = exact(instance, [spread_goal(instance, 25.0)], seconds=30.0)
    assert found.status is Status.OPTIMAL
    assert found.assignment is not None
    assert np.ptp(percent_after(instance, found.assignment)[:, 0]) <= 25.0 + 1e-5


@pytest.mark.parametrize("empty", [[], ["b"]])
def test_pods_that_nothing_tells_apart_are_solved_as_well(empty: list[str]) -> None:
    pods = {"a": cpu(*[15] * 6), "b": cpu(15, 15), "c": cpu(*[15] * 4), "d": []}
    instance = instance_of(pods, empty=empty, ceiling=(60.0, 60.0))
    goals = goals_of(instance)
    fewest = fewest_evictions(instance, goals, ceilings=True)
    assert exact(instance, goals, seconds=30.0).evictions == fewest


def test_staying_where_it_is_empties_no_node() -> None:
    """One that does not know where pods may run allows all nodes, their own too."""
    instance = instance_of({"a": cpu(10, 20), "b": cpu(10)}, empty=["a"])
    everywhere = replace(
        instance,
        allowed=np.broadcast_to(np.True_, instance.allowed.shape),
        takes=np.full(2, True),
    )
    found = exact(everywhere, goals_of(instance), seconds=30.0)
    assert found.assignment is not None
    assert found.assignment.tolist() == [1, 1, 1]


def test_goals_without_any_pod_to_move_cannot_be_met() -> None:
    instance = instance_of({"a": cpu(90), "b": cpu(10)}, fixed=["a", "b"])
    found = exact(instance, goals_of(instance), seconds=30.0)
    assert (found.status, found.evictions) == (Status.INFEASIBLE, None)


def test_a_search_without_time_still_proves_what_is_known() -> None:
    instance = draw(2, Shape(hot=4, empty=1, cold_percent=60.0)).instance()
    goals = [*goals_of(instance), spread_goal(instance, 15.0)]
    found = exact(instance, goals, seconds=0.0)
    assert found.bound >= lower_bound(instance, goals).evictions
    assert found.status is Status.UNFINISHED


def test_excluded_goals_do_not_bind() -> None:
    instance = draw(2, Shape(nodes=6, pods=40, hot=2)).instance()
    goals = goals_of(instance)
    assert exact(instance, goals, seconds=30.0, excluded=goals).evictions == 0


def test_without_the_solver_the_error_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    instance = draw(2, Shape(nodes=6, pods=40, hot=2)).instance()
    with pytest.raises(SolverMissing, match="pip install highspy"):
        exact(instance, goals_of(instance), seconds=1.0)


def percent_after(instance: Instance, assignment: Ints) -> Floats:
    load = instance.load.copy()
    np.subtract.at(load, instance.at, instance.pod_load)
    np.add.at(load, assignment, instance.pod_load)
    return np.asarray(100.0 * load / instance.capacity)
