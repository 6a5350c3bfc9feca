# SPDX-License-Identifier: Apache-2.0
"""The cluster as parsed records, for the scheduler and the kubelets.

It is the same cache that the programs use, filled from the store instead of from watches. It is
updated within each write, so every component sees what was just written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from common.cache.reader import CACHED_KINDS, CachedKind
from common.cache.snapshot import Snapshot
from common.cache.state import ClusterState
from common.cluster.records import NodeRecord, PodRecord
from common.kube.reflector import Sink
from simulator.api import Change, EventType, Store
from simulator.api.storage import Subscriber

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class ClusterCache:
    """Keeps a cluster state up to date with a store."""

    def __init__(self, store: Store) -> None:
        self.state = ClusterState()
        self._stops: list[Callable[[], None]] = []
        for reading in CACHED_KINDS:
            follow = _follower(reading, reading.table(self.state))
            self._stops.append(store.subscribe(reading.resource, follow, replay=True))

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is now."""
        return self.state.snapshot()

    def pod(self, key: str) -> PodRecord | None:
        """Return a pod by `namespace/name`; finished ones are known too."""
        return self.state.pods.records.get(key)

    def node(self, name: str) -> NodeRecord | None:
        """Return a node."""
        return self.state.nodes.records.get(name)

    def close(self) -> None:
        """Stop following the store."""
        for stop in self._stops:
            stop()


def _follower(reading: CachedKind, table: Sink[Any]) -> Subscriber:  # Any: each its own struct
    type_ = reading.type_

    def follow(change: Change) -> None:
        try:
            wire = msgspec.convert(change.obj, type_)
            if change.type is EventType.DELETED:
                table.delete(wire)
            else:
                table.upsert(wire)
        except ValueError as error:  # msgspec's errors are ValueErrors too
            # The API accepts objects that the cache cannot parse; only this object stays unknown.
            log.warning("object not parsed", object=change.entry.key, error=str(error))

    return follow
