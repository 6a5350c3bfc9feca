# SPDX-License-Identifier: Apache-2.0
"""Which replicas a ReplicaSet deletes first.

The order is that of ActivePodsWithRanks (pkg/controller/controller_utils.go) of v1.36:
unassigned, pending, not ready, cheap to delete, crowded together, ready for a short time,
created lately. Times are compared by their order of magnitude, so pods of about the same age
are equal; then the uid decides.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from common.api.contract import DELETION_COST
from common.kube.timestamps import parse_time
from simulator.api import Json, is_ready
from simulator.controllers.owned_pods import ready_since

_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


def to_delete(
    active: Sequence[Json], related: Iterable[Json], count: int, now: float
) -> list[Json]:
    """Return the pods to delete; `related` are all active pods of the same workload."""
    crowd = Counter(pod["spec"].get("nodeName", "") for pod in related if is_ready(pod))
    return sorted(active, key=lambda pod: _rank(pod, crowd, now))[:count]


def _rank(pod: Json, crowd: Counter[str], now: float) -> tuple[Any, ...]:  # Any: mixed keys
    node, phase = pod["spec"].get("nodeName", ""), pod.get("status", {}).get("phase", "Pending")
    since = ready_since(pod)
    return (
        bool(node),
        _PHASES.get(phase, 2),
        is_ready(pod),
        deletion_cost(pod),
        -crowd[node],
        _magnitude(since, now) if since is not None else -2,
        -restarts(pod),
        _magnitude(parse_time(pod["metadata"]["creationTimestamp"]), now),
        pod["metadata"]["uid"],
    )


def deletion_cost(pod: Json) -> int:
    """Return the deletion cost of a pod; an invalid value counts as 0."""
    text = (pod["metadata"].get("annotations") or {}).get(DELETION_COST, "0")
    digits = text.removeprefix("-")
    # The API rejects a leading plus or zero here (pkg/apis/core/helper).
    if not digits.isdecimal() or not digits.isascii() or (digits != "0" and digits[0] == "0"):
        return 0
    return int(text)


def restarts(pod: Json) -> int:
    """Return the highest restart count of the containers."""
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return max((status.get("restartCount", 0) for status in statuses), default=0)


def _magnitude(moment: float, now: float) -> int:
    age_ns = (now - moment) * 1e9
    return int(math.log2(age_ns)) if age_ns >= 1 else -1
