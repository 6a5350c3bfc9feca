# SPDX-License-Identifier: Apache-2.0
"""How many nodes are looked at, and which (findNodesThatPassFilters in schedule_one.go)."""

from __future__ import annotations

import numpy as np
import pytest

from common.cluster.records import NodeName
from simulator.scheduler.search import nodes_to_find, window


@pytest.mark.parametrize(
    ("nodes", "percentage", "found"),
    [
        (20, 0, 20),
        (99, 1, 99),
        (100, 0, 100),
        (500, 0, 230),
        (1000, 0, 420),
        (2000, 0, 680),
        (3000, 0, 780),
        (5000, 0, 500),
        (10_000, 0, 500),
        (15_000, 0, 750),
        (1000, 100, 1000),
        (1000, 5, 100),
    ],
)
def test_large_clusters_are_sampled(nodes: int, percentage: int, found: int) -> None:
    assert nodes_to_find(nodes, percentage) == found


NODES = [NodeName(each) for each in "abcdef"]


def flags(text: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array([each == "+" for each in text], dtype=np.bool_)


def test_a_search_ends_when_enough_are_found() -> None:
    seen = window(NODES, flags("+-+-++"), 0, 2)
    assert seen.feasible == ["a", "c"]
    assert seen.examined == ["a", "b", "c"]


def test_a_search_begins_where_the_last_one_ended() -> None:
    seen = window(NODES, flags("+-+-++"), 3, 2)
    assert seen.feasible == ["e", "f"]
    assert seen.examined == ["d", "e", "f"]


def test_a_search_goes_round() -> None:
    seen = window(NODES, flags("+-+-++"), 5, 3)
    assert seen.feasible == ["f", "a", "c"]


def test_all_nodes_are_examined_if_there_are_not_enough() -> None:
    seen = window(NODES, flags("-----+"), 2, 2)
    assert seen.feasible == ["f"]
    assert sorted(seen.examined) == NODES


def test_no_nodes_are_no_trouble() -> None:
    assert window([], flags(""), 0, 1).feasible == []
