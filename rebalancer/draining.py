"""Moves that wait for a pod to drain, which may take hours.

They hold up as little as possible: neither their pool, nor what waits to see how a move ends.
Pure.
"""

from __future__ import annotations

from typing import Final

from common.cluster.migrations import MigrationRecord
from common.cluster.snapshot import Snapshot

LINGERS_S: Final = 120.0
"""So long after an eviction the samples of two windows are in."""


def lingers(migration: MigrationRecord, snapshot: Snapshot, now_s: float) -> bool:
    """Tell whether a move only waits for its pod to end, and has done so for a while.

    A pod may drain for hours, and a StatefulSet makes no other before it is gone. Meanwhile
    nothing changes that samples would not show, so the nodes are at rest.
    """
    if not migration.open or migration.evicted_s is None or migration.replacement_uid:
        return False
    pod = snapshot.pods.get(migration.pod_uid)
    return pod is not None and pod.terminating and now_s - migration.evicted_s >= LINGERS_S


def in_motion(snapshot: Snapshot, now_s: float) -> list[MigrationRecord]:
    """Return the open Migrations that change what their nodes use.

    A pod that drains for hours changes nothing meanwhile, and must not hold up its whole pool.
    """
    known = snapshot.migrations.values()
    return [m for m in known if m.open and not lingers(m, snapshot, now_s)]
