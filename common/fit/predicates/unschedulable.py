# SPDX-License-Identifier: Apache-2.0
"""Cordoned nodes (plugins/nodeunschedulable/node_unschedulable.go)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.cluster.tolerations import tolerated
from common.fit.index.arrays import Flags
from common.fit.index.facts import CORDON
from common.fit.predicates.base import Predicate
from common.fit.rejections import NONE, Rejection, Rejections

if TYPE_CHECKING:
    from common.fit.question import NodeInfo, Question

_CORDONED: Final = (
    Rejection("NodeUnschedulable", "NodeUnschedulable", "node(s) were unschedulable"),
)


def reject(ask: Question, info: NodeInfo) -> Rejections:
    if not info.node.unschedulable or tolerated(CORDON, ask.pod.shape.tolerations):
        return NONE
    return _CORDONED


def allow(ask: Question) -> Flags | None:
    return ask.index.facts.open_to(ask.pod.shape.tolerations)


UNSCHEDULABLE: Final = Predicate("unschedulable", reject, allow)
