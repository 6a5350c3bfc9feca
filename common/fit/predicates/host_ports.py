"""Ports of the node itself (plugins/nodeports/node_ports.go)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.fit.index.arrays import Flags, flags_at
from common.fit.index.ports import clash
from common.fit.predicates.base import Predicate
from common.fit.refusals import NONE, Refusal, Refusals

if TYPE_CHECKING:
    from common.fit.question import Question, Seat

_TAKEN: Final = (
    Refusal(
        "NodePorts",
        "HostPortTaken",
        "node(s) didn't have free ports for the requested pod ports",
        curable=True,
    ),
)


def refuse(ask: Question, seat: Seat) -> Refusals:
    wanted = ask.pod.shape.host_ports
    if not wanted:
        return NONE
    promised = [port for guest in seat.guests for port in guest.shape.host_ports]
    if any(clash(port, taken) for port in wanted for taken in promised):
        return _TAKEN
    return _TAKEN if ask.index.ports.taken(seat.row, wanted) else NONE


def allow(ask: Question) -> Flags | None:
    wanted = ask.pod.shape.host_ports
    if not wanted:
        return None
    index = ask.index
    return ~flags_at(index.facts.capacity, index.ports.rows_taken(wanted))


HOST_PORTS: Final = Predicate("host-ports", refuse, allow)
