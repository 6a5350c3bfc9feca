"""Taints that nothing tolerates (plugins/tainttoleration/taint_toleration.go)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.cluster.tolerations import untolerated
from common.fit.index.arrays import Flags
from common.fit.predicates.base import Predicate
from common.fit.refusals import NONE, Refusal, Refusals

if TYPE_CHECKING:
    from common.fit.question import Question, Seat

_TAINTED: Final = (
    Refusal("TaintToleration", "UntoleratedTaint", "node(s) had untolerated taint(s)"),
)


def refuse(ask: Question, seat: Seat) -> Refusals:
    return _TAINTED if untolerated(seat.node.taints, ask.pod.shape.tolerations) else NONE


def allow(ask: Question) -> Flags | None:
    return ask.index.facts.tolerable(ask.pod.shape.tolerations)


TAINTS: Final = Predicate("taints", refuse, allow)
