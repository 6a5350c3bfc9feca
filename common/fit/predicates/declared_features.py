# SPDX-License-Identifier: Apache-2.0
"""Features that a node's kubelet declares (plugins/nodedeclaredfeatures in v1.36)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.fit.index.arrays import Flags, flags_at
from common.fit.predicates.base import Predicate
from common.fit.rejections import NONE, Rejection, Rejections

if TYPE_CHECKING:
    from common.fit.question import NodeInfo, Question

_UNABLE: Final = (
    Rejection(
        "NodeDeclaredFeatures",
        "FeatureNotDeclared",
        "node(s) didn't match Pod's required features",
    ),
)


def reject(ask: Question, info: NodeInfo) -> Rejections:
    return NONE if ask.pod.shape.features <= info.node.features else _UNABLE


def allow(ask: Question) -> Flags | None:
    wanted = ask.pod.shape.features
    if not wanted:
        return None
    facts = ask.index.facts
    able = [r for r, node in enumerate(facts.nodes) if node is not None and wanted <= node.features]
    return flags_at(facts.capacity, able)


DECLARED_FEATURES: Final = Predicate("declared-features", reject, allow)
