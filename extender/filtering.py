"""Who is refused, and the words for it.

Each rule takes what is left and returns what it leaves; together they keep the partition of
the list and its order. Only `refuse` may leave nothing, and only maintenance uses it: what
can change without a cluster event must never refuse a whole list, for nothing would wake
the pod when it has changed. So a list of one, such as the node that was nominated for the
pod and where others died to make room, is refused for nothing but maintenance.

Reasons are constant, for kube-scheduler counts them by their text.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Final

from common.cluster.records import PodRecord
from common.cluster.resources import Resources
from common.contract import TOLERATE_MAINTENANCE
from common.load import Load
from extender.asking import Filtered
from extender.intents import Guidance

UNDER_MAINTENANCE: Final = "node under maintenance"
NOT_PLANNED: Final = "kept for the planned node"
MOVED_AWAY: Final = "moved away from here"
ROOM_IS_HELD: Final = "room is kept for a moved pod"
OVERLOADED: Final = "node overloaded"


def refuse(found: Filtered, refused: Set[str], reason: str) -> Filtered:
    """Refuse these nodes, even if none remains."""
    if refused.isdisjoint(found.keep):
        return found
    keep = [name for name in found.keep if name not in refused]
    failed = {name: reason for name in found.keep if name in refused}
    return Filtered(keep, {**found.failed, **failed})


def avoid(found: Filtered, unwanted: Set[str], reason: str) -> Filtered:
    """Refuse these nodes if another one remains."""
    if not unwanted:
        return found
    rest = refuse(found, unwanted, reason)
    return rest if rest.keep else found


def keep_only(found: Filtered, wanted: str, reason: str) -> Filtered:
    """Refuse all nodes but one, if that one is among them."""
    others = set(found.keep)
    others.discard(wanted)
    return avoid(found, others, reason)


def follow(found: Filtered, guidance: Guidance) -> Filtered:
    """Keep the planned node if it is there and still insisted on; else leave the source."""
    if guidance.target is not None and not guidance.preference:
        return keep_only(found, guidance.target, NOT_PLANNED)
    return avoid(found, {guidance.source}, MOVED_AWAY)


def tolerates_maintenance(pod: PodRecord) -> bool:
    """Tell whether a pod may go to a node under maintenance."""
    of_daemon_set = pod.owner is not None and pod.owner.kind == "DaemonSet"
    return of_daemon_set or pod.annotations.get(TOLERATE_MAINTENANCE) == "true"


def takes_held_room(pod: Resources, free: Load, held: Callable[[], Load]) -> bool:
    """Tell whether what is held would no longer fit beside the pod.

    A pod that asks for nothing takes no room, however little there is.
    """
    if pod.cpu_milli <= 0 and pod.mem_bytes <= 0:
        return False
    room = held()
    return _takes(pod.cpu_milli, free.cpu_milli, room.cpu_milli) or _takes(
        pod.mem_bytes, free.mem_bytes, room.mem_bytes
    )


def _takes(asked: float, free: float, held: float) -> bool:
    return asked > 0 and held > 0 and free - asked < held
