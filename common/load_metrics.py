# SPDX-License-Identifier: Apache-2.0
"""How level the cluster is, as metrics: the highest, mean and lowest load, and that of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nlargest
from math import isnan, nan
from typing import Final

from common.cluster.records import NodeName
from common.load import LoadView, NodeLoad
from common.metrics import Metrics

MOST_NODES: Final = 250
"""Of so many nodes the load is shown one by one: rendering more at a time would delay answers,
and no one looks at more of them on a dashboard."""


class LoadMetrics:
    """Gauges over the nodes whose load is known.

    They are computed when they are scraped, not at each update: an extender updates its
    belief every second.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._load: LoadView | None = None
        self._found: dict[str, dict[str, float]] = {}
        gauge = metrics.gauge(
            "node_load_percent",
            "Highest, mean and lowest node load, in percent of allocatable.",
            ("resource", "of"),
        )
        for resource in ("cpu", "memory"):
            for of in highest_mean_lowest(()):
                gauge.labels(resource, of).set_function(partial(self._percent, resource, of))

    def update(self, load: LoadView) -> None:
        """Use this belief from now on."""
        if load is not self._load:
            self._load = load
            self._found.clear()

    def _percent(self, resource: str, of: str) -> float:
        if not self._found:
            nodes = self._load.nodes.values() if self._load is not None else ()
            known = [node for node in nodes if node.known]
            self._found["cpu"] = highest_mean_lowest([node.cpu_percent for node in known])
            self._found["memory"] = highest_mean_lowest([node.mem_percent for node in known])
        return self._found[resource][of]


def highest_mean_lowest(percents: Sequence[float]) -> dict[str, float]:
    """Return the three figures; NaN where there is no number."""
    found = [percent for percent in percents if not isnan(percent)]
    if not found:
        return {"highest": nan, "mean": nan, "lowest": nan}
    return {"highest": max(found), "mean": sum(found) / len(found), "lowest": min(found)}


def show_nodes(metrics: Metrics, latest: Callable[[], LoadView | None]) -> None:
    """Have a gauge with the load of each node, or of the busiest ones of a large cluster."""

    def readings() -> Iterator[tuple[tuple[str, str], float]]:
        load = latest()
        return node_readings(load.nodes if load is not None else {})

    metrics.live_gauge(
        "node_utilization_percent",
        "Load of the busiest nodes, in percent of allocatable.",
        ("node", "resource"),
        readings,
    )


def node_readings(
    nodes: Mapping[NodeName, NodeLoad], most: int = MOST_NODES
) -> Iterator[tuple[tuple[str, str], float]]:
    """Return what the busiest of the known nodes use, by node and resource."""
    known = [
        (max(percents), node.name, percents)
        for node in nodes.values()
        if node.known and not any(map(isnan, percents := (node.cpu_percent, node.mem_percent)))
    ]
    for _, name, (cpu, memory) in nlargest(most, known):
        yield (name, "cpu"), cpu
        yield (name, "memory"), memory
