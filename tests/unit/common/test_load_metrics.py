# SPDX-License-Identifier: Apache-2.0
"""The metrics that show how level a cluster is."""

from __future__ import annotations

from math import isnan, nan

from common.api.contract import Unknown
from common.cluster.records import NodeName
from common.load import Load, LoadView, NodeLoad
from common.load_metrics import highest_mean_lowest, node_readings, show_nodes
from common.metrics import Metrics

FULL = Load(1000.0, 1000.0)


def node(
    name: str, cpu: float, memory: float, offered: Load = FULL, why: Unknown | None = None
) -> NodeLoad:
    return NodeLoad(name=NodeName(name), cpu_milli=cpu, mem_bytes=memory, offered=offered, why=why)


def nodes(*found: NodeLoad) -> dict[NodeName, NodeLoad]:
    return {each.name: each for each in found}


def test_highest_mean_and_lowest_are_computed() -> None:
    assert highest_mean_lowest([30.0, 90.0, 60.0]) == {
        "highest": 90.0,
        "mean": 60.0,
        "lowest": 30.0,
    }


def test_a_node_without_anything_to_allocate_does_not_count() -> None:
    assert highest_mean_lowest([30.0, nan]) == {"highest": 30.0, "mean": 30.0, "lowest": 30.0}


def test_without_a_known_node_the_metrics_are_not_a_number() -> None:
    assert all(isnan(percent) for percent in highest_mean_lowest([]).values())


def test_each_known_node_is_shown_with_both_resources() -> None:
    unknown = node("lost", 900, 900, why=next(iter(Unknown)))
    empty = node("empty", 0, 0, offered=Load(0.0, 0.0))
    found = dict(node_readings(nodes(node("a", 500, 100), unknown, empty)))
    assert found == {("a", "cpu"): 50.0, ("a", "memory"): 10.0}


def test_of_a_large_cluster_the_busiest_nodes_are_shown() -> None:
    cluster = nodes(*(node(f"node-{n}", n, 0) for n in range(9)), node("full", 0, 990))
    shown = {name for (name, _), _ in node_readings(cluster, most=2)}
    assert shown == {"full", "node-8"}


def test_nodes_that_are_gone_are_no_longer_scraped() -> None:
    metrics = Metrics("rebalancer")
    believed: list[LoadView | None] = [None]
    show_nodes(metrics, lambda: believed[0])
    assert b"evenkeel_node_utilization_percent{" not in metrics.render()
    believed[0] = View(nodes(node('a"b', 800, 100), node("c", 100, 100)))
    assert b'{node="a\\"b",resource="cpu"} 80.0' in metrics.render()
    believed[0] = View(nodes(node("c", 100, 100)))
    assert b'node="a' not in metrics.render()
    assert b'{node="c",resource="cpu"} 10.0' in metrics.render()


class View(LoadView):
    """A belief that holds loads, and nothing else."""

    __slots__ = ()

    def __init__(self, nodes: dict[NodeName, NodeLoad]) -> None:
        self.nodes = nodes
