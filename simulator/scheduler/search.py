# SPDX-License-Identifier: Apache-2.0
"""Which nodes are examined for a pod, and why the others are rejected.

Follows findNodesThatPassFilters (pkg/scheduler/schedule_one.go) of v1.36: nodes of all zones
in turns, beginning where the last search ended, until enough are found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

import numpy as np

from common.cache.snapshot import Snapshot
from common.cluster.records import NodeName
from common.fit import Question
from common.fit.index.arrays import Flags, Ints
from simulator.scheduler.diagnosis import Diagnosis, Status

_ZONE: Final = "topology.kubernetes.io/zone"
_REGION: Final = "topology.kubernetes.io/region"
FEWEST: Final = 100
_LEAST_PERCENT: Final = 5


def nodes_to_find(nodes: int, percentage: int) -> int:
    """Return how many feasible nodes are enough."""
    if nodes < FEWEST:
        return nodes
    share = percentage or max(_LEAST_PERCENT, 50 - nodes // 125)
    return max(FEWEST, nodes * share // 100)


def in_turns(snapshot: Snapshot) -> list[NodeName]:
    """Return all nodes, one of each zone after the other (backend/cache/node_tree.go)."""
    zones: dict[tuple[str, str], list[NodeName]] = {}
    for name, view in snapshot.nodes.items():
        labels = view.node.labels
        zones.setdefault((labels.get(_REGION, ""), labels.get(_ZONE, "")), []).append(name)
    rounds = zip_longest(*zones.values())
    return [name for each in rounds for name in each if name is not None]


@dataclass(frozen=True, slots=True)
class Window:
    """The nodes that one search examined."""

    feasible: list[NodeName]
    examined: list[NodeName]


class NodeOrder:
    """All nodes in the order of the search; made again when nodes are added or removed."""

    def __init__(self, names: Sequence[NodeName]) -> None:
        self.names = list(names)
        self._rows: Ints | None = None

    @classmethod
    def of(cls, snapshot: Snapshot) -> NodeOrder:
        return cls(in_turns(snapshot))

    def __len__(self) -> int:
        return len(self.names)

    def window(self, mask: Flags, rows: Mapping[NodeName, int], start: int, enough: int) -> Window:
        """Return the first feasible nodes from `start` on; a node keeps its row for life."""
        if self._rows is None:
            self._rows = np.array([rows[name] for name in self.names], dtype=np.int64)
        return window(self.names, mask[self._rows], start, enough)


def window(order: Sequence[NodeName], passed: Flags, start: int, enough: int) -> Window:
    """Return the first feasible nodes from `start` on, and how far that took."""
    turned, passed = [*order[start:], *order[:start]], np.roll(passed, -start)
    count = np.cumsum(passed)
    found = count.size > 0 and count[-1] >= enough
    end = int(np.searchsorted(count, enough)) + 1 if found else len(turned)
    return Window([turned[index] for index in np.flatnonzero(passed[:end])], turned[:end])


def diagnose(ask: Question, refused: Sequence[NodeName], nodes: int) -> Diagnosis:
    """Return why nodes are rejected, by the first plugin that rejects each."""
    found = Diagnosis(nodes)
    for name in refused:
        reasons = ask.rejections(name, first=True)
        if any(reason.everywhere for reason in reasons):
            first = next(reason for reason in reasons if reason.everywhere)
            found.before = first.message
            found.plugins.add(first.plugin)
            return found
        if reasons:
            messages = tuple(dict.fromkeys(reason.message for reason in reasons))
            resolvable = all(reason.resolvable for reason in reasons)
            found.refuse(name, Status(messages, reasons[0].plugin, resolvable))
    return found
