"""How level the cluster is, as figures: the ends and the middle of what its nodes use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import isnan, nan

from common.load import LoadView
from common.metrics import Metrics


class Levels:
    """Tells what is believed of the nodes; those that are not known do not count.

    All nodes are gone through when somebody asks for the figures, not at each look: who looks
    every second has something better to do.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._load: LoadView | None = None
        self._found: dict[str, dict[str, float]] = {}
        gauge = metrics.gauge(
            "node_load_percent",
            "What nodes use of their allocatable, at the last look.",
            ("resource", "of"),
        )
        for resource in ("cpu", "memory"):
            for of in ends_and_mean(()):
                gauge.labels(resource, of).set_function(partial(self._percent, resource, of))

    def saw(self, load: LoadView) -> None:
        """Take note of the belief of this look."""
        if load is not self._load:
            self._load = load
            self._found.clear()

    def _percent(self, resource: str, of: str) -> float:
        if not self._found:
            nodes = self._load.nodes.values() if self._load is not None else ()
            known = [node for node in nodes if node.known]
            self._found["cpu"] = ends_and_mean([node.cpu_percent for node in known])
            self._found["memory"] = ends_and_mean([node.mem_percent for node in known])
        return self._found[resource][of]


def ends_and_mean(percents: Sequence[float]) -> dict[str, float]:
    """Return the highest, the mean and the lowest; of nothing none is a number."""
    found = [percent for percent in percents if not isnan(percent)]
    if not found:
        return {"highest": nan, "mean": nan, "lowest": nan}
    return {"highest": max(found), "mean": sum(found) / len(found), "lowest": min(found)}
