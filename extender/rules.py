# SPDX-License-Identifier: Apache-2.0
"""Which nodes are rejected, for which reason, and where preemption may go ahead.

Each filter rule takes what is left and returns what it leaves; together they keep the
partition of the list and its order. Only `reject` may leave nothing, and only maintenance
uses it: a reason that can disappear without a cluster event must never reject a whole list,
because kube-scheduler would not try the pod again when it has disappeared (it waits for an
event, or for up to 5 minutes in pkg/scheduler/backend/queue/scheduling_queue.go). So a list
of one, such as the nominated node on which other pods were preempted, is rejected for
maintenance only.

Reasons are constant, because kube-scheduler counts them by their text in the Events that
people read (`FitError` in pkg/scheduler/framework/types.go).

Preemption simulates nodes with kube-scheduler's own plugins and never calls our filter
(pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go). A candidate that
the filter will reject must be dropped here, otherwise pods are deleted for a node that the
preemptor then cannot get. An intent removes only its source, and only if another candidate
remains: restricting the choice to the target would delete pods for a preference.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from typing import Final

from common.api.contract import TOLERATE_MAINTENANCE
from common.cluster.records import PodRecord
from common.cluster.resources import Resources
from common.load import Load
from extender.intents import Guidance
from extender.protocol import FilterResult
from extender.scoring.name_index import parted

UNDER_MAINTENANCE: Final = "node under maintenance"
PLANNED_ELSEWHERE: Final = "pod planned for another node"
MOVED_AWAY: Final = "pod moved away from this node"
ROOM_RESERVED: Final = "room reserved for a moved pod"
OVERLOADED: Final = "node overloaded"
KEPT_EMPTY: Final = "node kept empty for an autoscaler"


def reject(found: FilterResult, rejected: Set[str], reason: str) -> FilterResult:
    """Reject these nodes, even if none remains."""
    keep, out = parted(found.keep, rejected)
    return FilterResult(keep, {**found.failed, **dict.fromkeys(out, reason)}) if out else found


def avoid(found: FilterResult, unwanted: Set[str], reason: str) -> FilterResult:
    """Reject these nodes if another one remains."""
    if not unwanted:
        return found
    rest = reject(found, unwanted, reason)
    return rest if rest.keep else found


def keep_only(found: FilterResult, wanted: str, reason: str) -> FilterResult:
    """Reject all nodes but one, if that one is among them."""
    others = set(found.keep)
    others.discard(wanted)
    return avoid(found, others, reason)


def follow(found: FilterResult, guidance: Guidance) -> FilterResult:
    """Keep only the planned node if it is offered and still required; else avoid the source."""
    if guidance.target is not None and not guidance.preference:
        return keep_only(found, guidance.target, PLANNED_ELSEWHERE)
    return avoid(found, {guidance.source}, MOVED_AWAY)


def tolerates_maintenance(pod: PodRecord) -> bool:
    """Return whether a pod may go to a node under maintenance."""
    of_daemon_set = pod.owner is not None and pod.owner.kind == "DaemonSet"
    return of_daemon_set or pod.annotations.get(TOLERATE_MAINTENANCE) == "true"


def takes_reserved_room(pod: Resources, free: Load, reserved: Callable[[], Load]) -> bool:
    """Return whether the reserved amount would no longer fit beside the pod.

    A pod without requests takes no room, however little there is.
    """
    if pod.cpu_milli <= 0 and pod.mem_bytes <= 0:
        return False
    room = reserved()
    return _exceeds(pod.cpu_milli, free.cpu_milli, room.cpu_milli) or _exceeds(
        pod.mem_bytes, free.mem_bytes, room.mem_bytes
    )


def _exceeds(requested: float, free: float, reserved: float) -> bool:
    return requested > 0 and reserved > 0 and free - requested < reserved


def preemption_candidates(
    candidates: Collection[str], *, maintenance: Set[str], tolerated: bool, source: str | None
) -> list[str]:
    """Return the candidates that stay, in their order, with or without victims."""
    allowed = [name for name in candidates if tolerated or name not in maintenance]
    elsewhere = [name for name in allowed if name != source]
    return elsewhere or allowed
