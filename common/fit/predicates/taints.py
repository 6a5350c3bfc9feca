# SPDX-License-Identifier: Apache-2.0
"""Taints that nothing tolerates (plugins/tainttoleration/taint_toleration.go)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.cluster.tolerations import untolerated
from common.fit.index.arrays import Flags
from common.fit.predicates.base import Predicate
from common.fit.rejections import NONE, Rejection, Rejections

if TYPE_CHECKING:
    from common.fit.question import NodeInfo, Question

_TAINTED: Final = (
    Rejection("TaintToleration", "UntoleratedTaint", "node(s) had untolerated taint(s)"),
)


def reject(ask: Question, info: NodeInfo) -> Rejections:
    return _TAINTED if untolerated(info.node.taints, ask.pod.shape.tolerations) else NONE


def allow(ask: Question) -> Flags | None:
    return ask.index.facts.tolerable(ask.pod.shape.tolerations)


TAINTS: Final = Predicate("taints", reject, allow)
