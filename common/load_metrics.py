# SPDX-License-Identifier: Apache-2.0
"""How level the cluster is, as metrics: the highest, mean and lowest load of its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import isnan, nan

from common.load import LoadView
from common.metrics import Metrics


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
