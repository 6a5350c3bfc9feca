"""How evenly a cluster is used: figures from what was measured. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from common.cluster.quantity import milli
from common.cluster.records import NodeName
from common.cluster.snapshot import Snapshot
from simulator.api import Json

HOT_PERCENT: Final = 80.0
_PARTS: Final = re.compile(r"([0-9]+)")


@dataclass(frozen=True, slots=True)
class Look:
    """Percent of CPU in use, by node; nodes that are not measured are left out."""

    percent: Mapping[str, float]
    nodes: int

    @property
    def hot(self) -> int:
        """How many nodes are above the mark."""
        return sum(value > HOT_PERCENT for value in self.percent.values())

    @property
    def spread(self) -> float | None:
        """Points between the most and the least used node."""
        values = self.percent.values()
        return round(max(values) - min(values), 1) if values else None

    @property
    def complete(self) -> bool:
        """Whether every node is measured."""
        return self.nodes > 0 and len(self.percent) >= self.nodes


def look(measured: Iterable[Json], snapshot: Snapshot) -> Look:
    """Return how much of each node's CPU is in use, from NodeMetrics."""
    found: dict[str, float] = {}
    for each in measured:
        view = snapshot.nodes.get(NodeName(each["metadata"]["name"]))
        if view is not None and view.node.allocatable.cpu_milli > 0:
            used = milli(each["usage"]["cpu"])
            found[each["metadata"]["name"]] = 100.0 * used / view.node.allocatable.cpu_milli
    by_name = sorted(found.items(), key=lambda each: _natural(each[0]))
    return Look(dict(by_name), len(snapshot.nodes))


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that puts node-2 before node-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _PARTS.split(name)]
