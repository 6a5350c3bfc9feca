"""How long a move may take: once until the eviction, and once more from then on.

Whatever a move waits for before the eviction, the replacement gets its whole time. An eviction
is sent only while the extenders are sure to steer the replacement until they hear of it; a
move that comes too late for that ends with its pod where it was. Pure.
"""

from __future__ import annotations

from typing import Final

from common.cluster.migrations import MigrationRecord
from common.cluster.records import PodRecord
from common.config import RebalancerConfiguration

RECORDED_WITHIN_S: Final = 30.0
"""An eviction is written down this soon, also if another leader has to do it: a Lease runs out
after 15 s by default, and its successor looks at every open Migration first."""
LONGEST_GRACE_S: Final = 7 * 86_400.0
"""The API server takes a grace that ends after any date; no move is waited for that long."""
_SHARE: Final = 0.25
"""Of a move with a short deadline so much is kept for that at most."""


def deadline_s(pod: PodRecord | None, config: RebalancerConfiguration, now_s: float) -> float:
    """Return until when a move of the pod may take: a long grace is not held against it.

    None is a pod that is gone, whose grace is over.
    """
    grace_s = 0.0
    if pod is not None:
        lengthened = config.eviction_grace_period
        grace_s = max(pod.shape.grace_s, lengthened.seconds if lengthened is not None else 0.0)
        grace_s = min(grace_s, LONGEST_GRACE_S)
    return now_s + config.migration_deadline.seconds + grace_s


def evict_before_s(migration: MigrationRecord) -> float:
    """Return until when an eviction may be sent."""
    span_s = migration.deadline_s - migration.created_s
    # Another clock has stamped the creation; what it says may make no sense beside ours.
    kept_s = min(RECORDED_WITHIN_S, _SHARE * span_s) if span_s > 0 else RECORDED_WITHIN_S
    return migration.deadline_s - kept_s
