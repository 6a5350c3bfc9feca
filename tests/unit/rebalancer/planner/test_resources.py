# SPDX-License-Identifier: Apache-2.0
"""The model has any number of resources: tried with three."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from common.cluster.records import NodeName, PodUid
from common.config import Strategy
from common.load import Basis, Load, PodLoad
from rebalancer.goals import BALANCED, Ceiling, Empty
from rebalancer.planner import bounds, pod_sets
from rebalancer.planner.instance import Floats, Instance
from rebalancer.planner.resources import (
    amounts,
    every,
    highest,
    lowest,
    mixes,
    pod_amounts,
)

THREE = 3
amount = st.floats(0.0, 10.0)
loads_of_three = arrays(np.float64, st.tuples(st.integers(1, 6), st.just(THREE)), elements=amount)


@given(loads_of_three, arrays(np.float64, THREE, elements=st.floats(-5.0, 15.0)))
def test_the_smallest_sets_cover_every_resource(loads: Floats, excess: Floats) -> None:
    found = {
        size: {tuple(chosen) for chosen in pod_sets.covering(loads, excess, size).tolist()}
        for size in range(1, len(loads) + 1)
    }
    for size, sets in found.items():
        wanted = {
            chosen
            for chosen in combinations(range(len(loads)), size)
            if (loads[list(chosen)].sum(axis=0) >= excess).all()
        }
        assert sets == wanted
    least = next(pod_sets.sizes(loads, excess), None)
    fewest = min((size for size, sets in found.items() if sets), default=None)
    if (excess > 0).any() and fewest is not None:
        assert least is not None
        assert least <= fewest


@given(arrays(np.float64, st.tuples(st.integers(1, 9), st.integers(1, 4)), elements=amount))
def test_columns_are_joined_as_rows_would_be(levels: Floats) -> None:
    assert (highest(levels) == levels.max(axis=1)).all()
    assert (lowest(levels) == levels.min(axis=1)).all()
    assert (every(levels > 5.0) == (levels > 5.0).all(axis=1)).all()


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_mixes_weigh_every_resource(count: int) -> None:
    found = np.array(mixes(count))
    assert np.allclose(found.sum(axis=1), 1.0)
    assert {tuple(row) for row in np.eye(count)} <= set(mixes(count))
    assert len(set(mixes(count))) == len(found)


def test_the_bound_counts_the_hardest_of_three_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node is 30 points too high in the third resource; its pods use 10 points each of it."""
    over = np.array([[0.0, 0.0, 30.0], [0.0, 0.0, 0.0]])
    monkeypatch.setattr(bounds, "excess", lambda *_: over)
    assert bounds._for_ceilings(instance(pods=5), []).tolist() == [3, 0]


def test_a_node_of_three_resources_is_emptied() -> None:
    goal = Empty(strategy=Strategy.NODE_MAINTENANCE, node=NodeName("a"), message="")
    assert bounds.lower_bound(instance(pods=5), [goal]).evictions == 5


def instance(pods: int) -> Instance:
    return Instance(
        nodes=(NodeName("a"), NodeName("b")),
        capacity=np.full((2, THREE), 100.0),
        load=np.array([[50.0, 50.0, 90.0], [10.0, 10.0, 10.0]]),
        ceiling=np.full((2, THREE), 60.0),
        gives=np.array([True, True]),
        takes=np.array([True, True]),
        pods=tuple(PodUid(f"p{n}") for n in range(pods)),
        at=np.zeros(pods, dtype=np.int64),
        pod_load=np.tile([5.0, 5.0, 10.0], (pods, 1)),
        allowed=np.tile([False, True], (pods, 1)),
        empty=np.array([False, False]),
    )


def test_cpu_and_memory_are_read_in_the_order_of_the_axes() -> None:
    assert [dimension.axis for dimension in BALANCED] == [0, 1]
    assert Ceiling(80.0, 85.0, (70.0,)).percents == (80.0, 85.0, 70.0)
    assert amounts(Load(1.0, 2.0)) == (1.0, 2.0)
    assert pod_amounts(PodLoad(1.0, 2.0, Basis.MEASURED, (3.0,))) == (1.0, 2.0, 3.0)
