# SPDX-License-Identifier: Apache-2.0
"""Nodes whose figures may still be those of pods that have left, or lack pods that have come.

CPU and memory are corrected by individual pods. Pressure and further resources cannot be: they are
rates over a window. So after a move from or to a node, and while pods terminate there, these call
for no further move until a whole window has passed.
"""

from __future__ import annotations

from typing import Final

from common.cache.snapshot import Snapshot
from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName
from common.config import LoadSettings
from common.load import LoadView, NodeLoad

LAG_S: Final = 60.0
"""How much later than the window a figure may come: scrapes, and reading them."""


def settling_nodes(
    config: LoadSettings, snapshot: Snapshot, load: LoadView, now_s: float
) -> frozenset[NodeName]:
    """Return the nodes on which a whole window has to pass first."""
    judged = config.pressure.is_judged or config.further_resources
    if config.prometheus is None or not judged:
        return frozenset()
    since_s = now_s - config.prometheus.window.seconds - LAG_S
    moves = [m for m in snapshot.migrations.values() if _ended_after(m, since_s)]
    draining = (name for name, found in load.nodes.items() if _drains(found))
    touched = (name for move in moves for name in (move.source, move.target))
    return frozenset((*draining, *touched))


def _ended_after(move: MigrationRecord, since_s: float) -> bool:
    return move.open or max(move.evicted_s or 0.0, move.finished_s or 0.0) > since_s


def _drains(load: NodeLoad) -> bool:
    return load.leaving.cpu_milli > 0.0 or load.leaving.mem_bytes > 0.0
