# SPDX-License-Identifier: Apache-2.0
"""How evenly a cluster is used, from what was measured."""

from __future__ import annotations

from common.api.objects import Node, NodeStatus, ObjectMeta
from common.cache.state import ClusterState
from simulator.api import Json
from simulator.figures import utilization


def measured(name: str, cpu: str) -> Json:
    return {"metadata": {"name": name}, "usage": {"cpu": cpu, "memory": "1Ki"}}


def cluster(*names: str) -> ClusterState:
    state = ClusterState()
    for name in names:
        status = NodeStatus(allocatable={"cpu": "8", "memory": "1Gi", "pods": "10"})
        state.nodes.upsert(Node(metadata=ObjectMeta(name=name), status=status))
    return state


def test_hot_nodes_and_the_spread_are_counted() -> None:
    seen = utilization(
        [measured("a", "7200m"), measured("b", "2000000000n")], cluster("a", "b").snapshot()
    )
    assert seen.percent == {"a": 90.0, "b": 25.0}
    assert (seen.hot, seen.spread, seen.complete) == (1, 65.0, True)


def test_an_unmeasured_node_makes_the_look_incomplete() -> None:
    seen = utilization([measured("a", "1"), measured("gone", "1")], cluster("a", "b").snapshot())
    assert list(seen.percent) == ["a"]
    assert not seen.complete


def test_nothing_measured_is_no_spread() -> None:
    seen = utilization([], cluster("a").snapshot())
    assert (seen.hot, seen.spread, seen.complete) == (0, None, False)


def test_nodes_are_listed_as_people_count() -> None:
    names = ["node-10", "node-2", "node-1"]
    seen = utilization([measured(name, "1") for name in names], cluster(*names).snapshot())
    assert list(seen.percent) == ["node-1", "node-2", "node-10"]
