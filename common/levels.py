"""How level the cluster is, as figures: the ends and the middle of what its nodes use."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, nan

from common.load import LoadView
from common.metrics import Metrics


class Levels:
    """Tells what is believed of the nodes; those that are not known do not count."""

    def __init__(self, metrics: Metrics) -> None:
        self._told: LoadView | None = None
        self._gauge = metrics.gauge(
            "node_load_percent",
            "What nodes use of their allocatable, at the last look.",
            ("resource", "of"),
        )

    def saw(self, load: LoadView) -> None:
        """Tell of a belief, unless it is the same as before."""
        if load is self._told:
            return
        self._told = load
        known = [node for node in load.nodes.values() if node.known]
        self._set("cpu", [node.cpu_percent for node in known])
        self._set("memory", [node.mem_percent for node in known])

    def _set(self, resource: str, percents: Sequence[float]) -> None:
        for of, percent in ends_and_mean(percents).items():
            self._gauge.labels(resource, of).set(percent)


def ends_and_mean(percents: Sequence[float]) -> dict[str, float]:
    """Return the highest, the mean and the lowest; of nothing none is a number."""
    found = [percent for percent in percents if not isnan(percent)]
    if not found:
        return {"highest": nan, "mean": nan, "lowest": nan}
    return {"highest": max(found), "mean": sum(found) / len(found), "lowest": min(found)}
