# SPDX-License-Identifier: Apache-2.0
"""Whether the pods of a node under maintenance may leave now.

The first eviction waits until the node is cordoned, because a replacement or any other pod could
come there otherwise, and until it was announced how full the other nodes will be. Whether the
announcement arrived does not matter. It is remembered in this process: a new leader announces
again before it evicts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from common.api.contract import CORDONED_BY, under_maintenance
from common.api.migrations import Purpose
from common.cache.snapshot import NodeView, Snapshot
from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeRecord
from common.config import RebalancerConfiguration, Strategy
from rebalancer.refusals import Reason, Refusal


class DrainGate:
    """Knows which nodes were announced; asked before each move that drains a node."""

    def __init__(self, config: Callable[[], RebalancerConfiguration]) -> None:
        self._config = config
        self._announced: set[str] = set()

    def announced(self, node: NodeRecord) -> bool:
        return node.uid in self._announced

    def announce(self, node: NodeRecord) -> None:
        """Note that the announcement of a node was attempted."""
        self._announced.add(node.uid)

    def keep(self, labeled: Collection[NodeRecord]) -> None:
        """Forget all nodes but these: another maintenance is announced again."""
        self._announced &= {node.uid for node in labeled}

    def refusal(self, migration: MigrationRecord, snapshot: Snapshot) -> Refusal | None:
        """Return why a move that drains a node may not begin or go on yet."""
        if migration.strategy != Strategy.NODE_MAINTENANCE:
            return None
        source = snapshot.nodes.get(migration.source)
        if migration.purpose is Purpose.MAINTENANCE:
            return self._against(source) if source is not None else None
        # It makes room for pods of a node that is drained; whose does not matter.
        found = [self._against(v) for v in snapshot.nodes.values() if _labeled(v)]
        return None if not found or None in found else found[0]

    def _against(self, view: NodeView) -> Refusal | None:
        node = view.node
        if not _labeled(view):
            return None  # other checks end the move
        if to_be_cordoned(node, self._config()):
            return Reason.NOT_CORDONED.refusal(node=node.name)
        return None if self.announced(node) else Reason.NOT_ANNOUNCED.refusal()


def to_be_cordoned(node: NodeRecord, config: RebalancerConfiguration) -> bool:
    """Tell whether a node is still to be cordoned; one that a person uncordoned is not."""
    cordoned = node.unschedulable or CORDONED_BY in node.annotations
    return config.maintenance.cordon and not cordoned


def _labeled(view: NodeView) -> bool:
    return under_maintenance(view.node.labels)
