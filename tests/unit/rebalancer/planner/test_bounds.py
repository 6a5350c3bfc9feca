# SPDX-License-Identifier: Apache-2.0
"""Bounds: what is claimed is never more than what every plan needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.problems import Shape, draw
from common.cluster.records import NodeName
from common.config import Strategy
from rebalancer.goals import BALANCED, AtMost, Ceiling, Dimension, Distribute, Empty, Goal, Spread
from rebalancer.planner.bounds import lower_bound
from rebalancer.planner.instance import Instance
from tests.support.oracles.planner_search import fewest_evictions
from tests.support.worlds.planner_instances import (
    ceiling_goals,
    cpu,
    empty_goals,
    goals_of,
    instance_of,
    spread_goal,
)


def bound(instance: Instance, goals: Sequence[Goal]) -> int:
    return lower_bound(instance, goals).evictions


def test_a_node_above_its_ceiling_loses_at_least_its_largest_pods() -> None:
    instance = instance_of({"a": cpu(10, 30, 20, 36), "b": cpu(20)})
    assert bound(instance, goals_of(instance)) == 1
    tight = instance_of({"a": cpu(*[8] * 12), "b": cpu(20)})
    assert bound(tight, goals_of(tight)) == 2


def test_reaching_the_ceiling_exactly_is_enough() -> None:
    instance = instance_of({"a": cpu(60, 16, 14), "b": cpu(20)}, ceiling=(74.0, 80.0))
    assert bound(instance, goals_of(instance)) == 1


def test_needs_of_different_nodes_add_up() -> None:
    instance = instance_of(
        {"a": cpu(*[9] * 10), "b": cpu(*[6] * 15), "c": cpu(5, 5, 5), "d": cpu(1)}, empty=["c"]
    )
    assert bound(instance, ceiling_goals(instance)) == 2 + 2
    assert bound(instance, empty_goals(instance)) == 3
    assert bound(instance, goals_of(instance)) == 2 + 2 + 3


def test_the_harder_resource_decides() -> None:
    pods = [(20.0, 1.0), (20.0, 1.0), *[(15.0, 12.0)] * 3, *[(0.0, 12.0)] * 5]
    instance = instance_of({"a": pods, "b": cpu(1)})
    assert instance.percent[0].tolist() == [85.0, 98.0]
    assert bound(instance, goals_of(instance)) == 2


def test_resources_that_no_pod_relieves_together_count_together() -> None:
    """Either resource alone asks for one pod; no single pod relieves both."""
    pods = [(20.0, 1.0), (1.0, 20.0), (34.0, 34.0), (35.0, 35.0)]
    instance = instance_of({"a": pods, "b": cpu(1)}, ceiling=(75.0, 75.0))
    light = instance_of({"a": [(30, 1), (1, 30), *[(8, 8)] * 8], "b": cpu(1)}, ceiling=(75, 75))
    assert bound(instance, goals_of(instance)) == 1
    assert bound(light, goals_of(light)) == 2 == fewest_evictions(light, goals_of(light))


def test_a_node_that_is_emptied_is_not_counted_for_its_ceiling_too() -> None:
    instance = instance_of({"a": cpu(30, 30, 30), "b": cpu(1)}, empty=["a"])
    goal = AtMost(
        strategy=Strategy.RESOURCE_OPTIMIZATION,
        node=NodeName("a"),
        ceiling=Ceiling(80.0, 80.0),
        broken=(Dimension.CPU,),
        message="",
    )
    assert bound(instance, [goal, *goals_of(instance)]) == 3


def test_goals_that_the_plan_does_not_meet_prove_nothing() -> None:
    instance = instance_of({"a": cpu(*[9] * 10), "b": cpu(*[6] * 15), "c": cpu(1)})
    first, second = goals_of(instance)
    assert lower_bound(instance, [first, second], excluded=[first]).evictions == 2
    nothing = lower_bound(instance, [first, second], excluded=[second, first])
    assert (nothing.evictions, nothing.proof) == (0, "none")


def test_a_goal_that_no_plan_can_meet_proves_nothing() -> None:
    stuck = instance_of({"a": cpu(50, 40), "b": cpu(1)}, fixed=["a"])
    assert bound(stuck, goals_of(stuck)) == 0
    apart = instance_of({"a": cpu(50, 40), "b": cpu(1)}, fixed=["a"])
    free = instance_of({"a": cpu(50, 40), "b": cpu(1)})
    assert bound(apart, [spread_goal(free, 10.0)]) == 0 < bound(free, [spread_goal(free, 10.0)])


def test_what_is_no_pods_cannot_be_moved_away() -> None:
    """The node itself uses most of it: moving its only pod would not be enough."""
    instance = instance_of({"a": cpu(10), "b": cpu(1)})
    instance.load[0] += 85.0
    assert bound(instance, goals_of(instance)) == 0


def test_a_spread_counts_departures_from_high_nodes() -> None:
    instance = instance_of({"a": cpu(*[10] * 8), "b": cpu(*[10] * 3), "c": cpu(*[10] * 3)})
    goal = spread_goal(instance, 10.0)
    assert bound(instance, [goal]) == 3 == fewest_evictions(instance, [goal])


def test_a_spread_counts_arrivals_at_low_nodes() -> None:
    pods = {name: cpu(*[5] * 12) for name in "abcde"}
    instance = instance_of({**pods, "f": cpu(10)})
    goal = spread_goal(instance, 20.0)
    assert bound(instance, [goal]) == 5


def test_the_low_end_counts_only_where_it_is_filled() -> None:
    pods = {name: cpu(*[5] * 12) for name in "abcde"}
    instance = instance_of({**pods, "f": cpu(10)})
    assert bound(instance, [spread_goal(instance, 20.0, fill_low=False)]) == 0
    hot = instance_of({**pods, "f": cpu(*[5] * 20)})
    goal = spread_goal(hot, 20.0, fill_low=False)
    assert bound(hot, [goal]) == 4


def test_a_low_node_that_takes_nothing_pins_the_level() -> None:
    instance = instance_of({"a": cpu(*[10] * 6), "b": cpu(*[10] * 6), "c": cpu(10)}, closed=["c"])
    open_to_all = instance_of({"a": cpu(*[10] * 6), "b": cpu(*[10] * 6), "c": cpu(10)})
    assert bound(open_to_all, [spread_goal(open_to_all, 30.0)]) == 2
    free = spread_goal(open_to_all, 30.0)
    pinned = lower_bound(instance, [free])
    assert pinned.evictions == 4


def test_ceilings_count_within_a_spread() -> None:
    """The spread alone asks for departures from a, the ceiling for departures from d."""
    pods = {"a": cpu(*[10] * 9), "b": cpu(*[10] * 4), "c": cpu(*[10] * 4), "d": cpu(*[9] * 10)}
    instance = instance_of(pods, ceiling=(95.0, 80.0))
    ceiling = AtMost(
        strategy=Strategy.RESOURCE_OPTIMIZATION,
        node=NodeName("d"),
        ceiling=Ceiling(60.0, 80.0),
        broken=(Dimension.CPU,),
        message="",
    )
    spread = Spread(
        strategy=Strategy.LOAD_BALANCING,
        pool="",
        dimension=Dimension.CPU,
        points=20.0,
        nodes=tuple(NodeName(name) for name in "abc"),
        fill_low=True,
        message="",
    )
    assert (bound(instance, [ceiling]), bound(instance, [spread])) == (4, 2)
    assert bound(instance, [ceiling, spread]) == 5


def test_a_node_outside_the_instance_proves_nothing() -> None:
    instance = instance_of({"a": cpu(90), "b": cpu(1)})
    gone = Empty(strategy=Strategy.NODE_MAINTENANCE, node=NodeName("z"), message="")
    assert bound(instance, [gone]) == 0


@pytest.mark.parametrize(
    ("goals", "proof", "words"),
    [
        (goals_of, "ceilings", "1 node is above the ceiling, and even if the largest pods"),
        (lambda i: [spread_goal(i, 20.0)], "spread", "whatever level the pool settles at, at"),
    ],
)
def test_the_words_say_how_it_is_known(goals: object, proof: str, words: str) -> None:
    assert callable(goals)
    instance = instance_of({"a": cpu(*[9] * 10), "b": cpu(*[9] * 2), "c": cpu(9)})
    found = lower_bound(instance, goals(instance))
    assert found.proof == proof
    assert found.message.startswith(words)


def test_the_words_name_ceilings_and_emptying() -> None:
    instance = instance_of({"a": cpu(*[9] * 10), "b": cpu(9, 9), "c": cpu(9)}, empty=["b"])
    assert lower_bound(instance, goals_of(instance)).message == (
        "1 node is above the ceiling, and even if the largest pods leave first, 2 pods have to "
        "move; 1 node is to be emptied, and 2 pods have to move"
    )


def test_nothing_to_do_needs_nothing() -> None:
    empty = instance_of({"a": [], "b": []})
    assert bound(empty, [spread_goal(empty, 5.0), *goals_of(empty)]) == 0
    alone = instance_of({"a": cpu(50)})
    assert bound(alone, [spread_goal(alone, 5.0), *goals_of(alone)]) == 0


@st.composite
def small_problems(draw: st.DrawFn) -> tuple[Instance, list[Goal]]:
    """Three nodes with a few pods in multiples of five points, so that ties are common."""
    names = ["a", "b", "c"]
    load = st.integers(0, 9).map(lambda number: 5.0 * number)
    pods = {name: draw(st.lists(st.tuples(load, load), max_size=3)) for name in names}
    some = st.sets(st.sampled_from(names), max_size=1).map(sorted)
    instance = instance_of(
        pods,
        size={name: draw(st.sampled_from([80.0, 100.0, 160.0])) for name in names},
        empty=draw(some),
        fixed=draw(some),
        closed=draw(some),
        ceiling=(draw(st.sampled_from([40.0, 60.0])), draw(st.sampled_from([50.0, 70.0]))),
    )
    shape = instance.allowed.shape
    barred = np.array(draw(st.lists(st.booleans(), min_size=shape[0], max_size=shape[0])))
    instance.allowed[barred.astype(bool), draw(st.integers(0, 2))] = False
    goals = goals_of(instance)
    for dimension in BALANCED:
        if draw(st.booleans()):
            points = draw(st.sampled_from([10.0, 20.0, 35.0]))
            goals.append(spread_goal(instance, points, dimension, fill_low=draw(st.booleans())))
    return instance, goals


@given(small_problems())
def test_no_plan_needs_fewer_than_the_bound(problem: tuple[Instance, list[Goal]]) -> None:
    instance, goals = problem
    fewest = fewest_evictions(instance, goals)
    if fewest is not None:
        assert bound(instance, goals) <= fewest


def listing(instance: Instance, rows: Sequence[int]) -> Instance:
    """Return the instance with the pods of some nodes only."""
    kept = np.isin(instance.at, rows)
    return replace(
        instance,
        pods=tuple(pod for pod, keep in zip(instance.pods, kept, strict=True) if keep),
        at=instance.at[kept],
        pod_load=instance.pod_load[kept],
        allowed=instance.allowed[kept],
    )


def test_pods_that_nobody_has_looked_at_may_be_large() -> None:
    """Two pods of b and c do what ten of a would: nothing may be claimed from a alone."""
    pods = {"a": cpu(*[4] * 15), "b": cpu(25, 30), "c": cpu(25, 30), "d": cpu(2)}
    instance = instance_of(pods, ceiling=(90.0, 90.0))
    goals = [spread_goal(instance, 30.0)]
    assert bound(listing(instance, [0, 3]), goals) <= (fewest_evictions(instance, goals) or 0)


@given(small_problems(), st.sets(st.integers(0, 2)))
def test_nothing_is_claimed_about_pods_that_are_not_listed(
    problem: tuple[Instance, list[Goal]], rows: set[int]
) -> None:
    instance, goals = problem
    named = {g.node for g in goals if not isinstance(g, Spread | Distribute)}
    listed = rows | {row for row, name in enumerate(instance.nodes) if name in named}
    fewest = fewest_evictions(instance, goals)
    if fewest is not None:
        assert bound(listing(instance, sorted(listed)), goals) <= fewest


@pytest.mark.parametrize("seed", range(10))
def test_the_bound_is_the_same_however_pods_are_numbered(seed: int) -> None:
    instance = draw(seed, Shape(nodes=8, pods=60, hot=2, empty=1)).instance()
    order = np.random.default_rng(seed).permutation(len(instance.pods))
    shuffled = replace(
        instance,
        pods=tuple(instance.pods[number] for number in order),
        at=instance.at[order],
        pod_load=instance.pod_load[order],
        allowed=instance.allowed[order],
    )
    goals = [*goals_of(instance), spread_goal(instance, 20.0)]
    assert lower_bound(instance, goals) == lower_bound(shuffled, goals)
