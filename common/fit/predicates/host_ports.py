# SPDX-License-Identifier: Apache-2.0
"""Ports of the node itself (plugins/nodeports/node_ports.go)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.fit.index.arrays import Flags, flags_at
from common.fit.index.ports import clash
from common.fit.predicates.base import Predicate
from common.fit.rejections import NONE, Rejection, Rejections

if TYPE_CHECKING:
    from common.fit.question import NodeInfo, Question

_TAKEN: Final = (
    Rejection(
        "NodePorts",
        "HostPortTaken",
        "node(s) didn't have free ports for the requested pod ports",
        resolvable=True,
    ),
)


def reject(ask: Question, info: NodeInfo) -> Rejections:
    wanted = ask.pod.shape.host_ports
    if not wanted:
        return NONE
    promised = [port for nominee in info.nominated for port in nominee.shape.host_ports]
    if any(clash(port, taken) for port in wanted for taken in promised):
        return _TAKEN
    return _TAKEN if ask.index.ports.taken(info.row, wanted) else NONE


def allow(ask: Question) -> Flags | None:
    wanted = ask.pod.shape.host_ports
    if not wanted:
        return None
    index = ask.index
    return ~flags_at(index.facts.capacity, index.ports.rows_taken(wanted))


HOST_PORTS: Final = Predicate("host-ports", reject, allow)
