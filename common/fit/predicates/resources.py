# SPDX-License-Identifier: Apache-2.0
"""Room for what the pod asks for, and for one more pod (plugins/noderesources/fit.go).

Extended resources that a DeviceClass stands behind would be handed out by dynamic
resource allocation; that is not judged, so a node must have them itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from common.fit.index.arrays import Flags
from common.fit.index.occupancy import NOWHERE
from common.fit.predicates.base import Predicate
from common.fit.rejections import NONE, Rejection, Rejections

if TYPE_CHECKING:
    from common.fit.question import NodeInfo, Question

_PLUGIN: Final = "NodeResourcesFit"
_TOO_MANY: Final = Rejection(_PLUGIN, "TooManyPods", "Too many pods", resolvable=True)


def reject(ask: Question, info: NodeInfo) -> Rejections:
    room = ask.index.occupancy
    full = room.pods[info.row] + len(info.nominated) >= room.max_pods[info.row]
    short = tuple(_short(ask, info))
    return (_TOO_MANY, *short) if full else short or NONE


def allow(ask: Question) -> Flags | None:
    return ask.index.occupancy.roomy(ask.pod.shape.requests)


def _short(ask: Question, info: NodeInfo) -> Iterator[Rejection]:
    room = ask.index.occupancy
    promised: dict[int, int] = {}
    for nominee in info.nominated:
        for line, amount in room.lines(nominee.shape.requests):
            promised[line] = promised.get(line, 0) + amount
    asked = ask.pod.shape.requests
    for name in room.missing(asked):
        yield _insufficient(name, resolvable=False)
    for line, amount in room.lines(asked):
        if line == NOWHERE:
            continue
        whole = int(room.allocatable[line, info.row])
        free = whole - int(room.requested[line, info.row]) - promised.get(line, 0)
        if amount > free:
            yield _insufficient(room.names()[line], resolvable=amount <= whole)


def _insufficient(resource: str, *, resolvable: bool) -> Rejection:
    name = "".join(part.capitalize() for part in resource.rpartition("/")[2].split("-"))
    message = f"Insufficient {resource}"
    return Rejection(_PLUGIN, f"Insufficient{name}", message, resolvable=resolvable)


RESOURCES: Final = Predicate("resources", reject, allow)
