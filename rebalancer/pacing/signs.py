# SPDX-License-Identifier: Apache-2.0
"""Signs other than finished moves that moving does harm."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from common.api.migrations import Purpose
from common.cache.snapshot import Snapshot
from common.cluster.migrations import MigrationRecord
from common.cluster.records import ControllerId
from rebalancer.evictability import was_carried_out
from rebalancer.pacing.history import BreakerState
from rebalancer.pacing.votes import workload_of_pod

MOVED_LATELY_S: Final = 600.0
FEW_STRANDED: Final = 2
"""This many unschedulable pods of moved workloads are nothing out of the ordinary."""


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """What the cluster shows beside finished moves."""

    snapshot: Snapshot
    migrations: Sequence[MigrationRecord]
    purpose: Purpose
    now_s: float
    resting: bool
    """Too little is known about load."""


def stranded(signs: Signs) -> Mapping[str, int]:
    """Return by namespace how many replacements of moved pods are unschedulable.

    A pod that is older than the moves of its workload was not created because of one, and a
    workload has lost no more pods than were moved: further pending pods are its own.
    """
    moved, snapshot = _moved_lately(signs), signs.snapshot
    waiting: Counter[ControllerId] = Counter()
    for pod in snapshot.pending.values() if moved else ():
        if not pod.unschedulable:
            continue
        workload = workload_of_pod(pod, snapshot)
        if isinstance(workload, ControllerId) and any(
            # The API server stamps pods in whole seconds (metav1.Time).
            pod.created_s >= float(int(since_s))
            for since_s in moved.get(workload, ())
        ):
            waiting[workload] += 1
    counts: Counter[str] = Counter()
    for workload, count in waiting.items():
        counts[workload.namespace] += min(count, len(moved[workload]))
    return counts


def _moved_lately(signs: Signs) -> Mapping[ControllerId, Sequence[float]]:
    """Return by workload when pods were evicted in the last minutes."""
    since_s = signs.now_s - MOVED_LATELY_S
    found: dict[ControllerId, list[float]] = defaultdict(list)
    for m in signs.migrations:
        lately = max(m.evicted_s or 0.0, m.finished_s or 0.0) >= since_s
        counts = lately and was_carried_out(m) and m.purpose is signs.purpose
        if counts and (workload := m.workload_id) is not None:
            found[workload].append(m.created_s if m.evicted_s is None else m.evicted_s)
    return found


def pods_are_stranded(signs: Signs) -> str:
    """Return how many pods of moved workloads are unschedulable, if there are too many.

    Without those of any one namespace there must still be too many.
    """
    counts = stranded(signs)
    total = sum(counts.values())
    if total - max(counts.values(), default=0) <= FEW_STRANDED:
        return ""
    return stranded_message(total)


def stranded_message(count: int) -> str:
    return f"{count} pods of workloads that were moved in the last 10 minutes fit on no node"


def load_is_unknown(signs: Signs) -> str:
    if not signs.resting or signs.purpose is not Purpose.LOAD:
        return ""
    return "the load of too few nodes is known"


ALARMS: Final[tuple[Callable[[Signs], str], ...]] = (pods_are_stranded, load_is_unknown)
"""What opens the breaker of the cluster while it lasts, whatever the votes are."""


def alarmed(signs: Signs) -> BreakerState | None:
    """Return the state while an alarm lasts; None without one."""
    cause = next((found for alarm in ALARMS if (found := alarm(signs))), "")
    return BreakerState(open=True, cause=cause) if cause else None
