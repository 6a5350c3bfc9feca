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
from common.fit.refusals import NONE, Refusal, Refusals

if TYPE_CHECKING:
    from common.fit.question import Question, Seat

_PLUGIN: Final = "NodeResourcesFit"
_TOO_MANY: Final = Refusal(_PLUGIN, "TooManyPods", "Too many pods", curable=True)


def refuse(ask: Question, seat: Seat) -> Refusals:
    room = ask.index.occupancy
    full = room.pods[seat.row] + len(seat.guests) >= room.max_pods[seat.row]
    short = tuple(_short(ask, seat))
    return (_TOO_MANY, *short) if full else short or NONE


def allow(ask: Question) -> Flags | None:
    return ask.index.occupancy.roomy(ask.pod.shape.requests)


def _short(ask: Question, seat: Seat) -> Iterator[Refusal]:
    room = ask.index.occupancy
    promised: dict[int, int] = {}
    for guest in seat.guests:
        for line, amount in room.lines(guest.shape.requests):
            promised[line] = promised.get(line, 0) + amount
    asked = ask.pod.shape.requests
    for name in room.missing(asked):
        yield _insufficient(name, curable=False)
    for line, amount in room.lines(asked):
        if line == NOWHERE:
            continue
        whole = int(room.allocatable[line, seat.row])
        free = whole - int(room.requested[line, seat.row]) - promised.get(line, 0)
        if amount > free:
            yield _insufficient(room.names()[line], curable=amount <= whole)


def _insufficient(resource: str, *, curable: bool) -> Refusal:
    name = "".join(part.capitalize() for part in resource.rpartition("/")[2].split("-"))
    return Refusal(_PLUGIN, f"Insufficient{name}", f"Insufficient {resource}", curable=curable)


RESOURCES: Final = Predicate("resources", refuse, allow)
