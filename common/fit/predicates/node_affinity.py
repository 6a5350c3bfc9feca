# SPDX-License-Identifier: Apache-2.0
"""Node selector and required node affinity (plugins/nodeaffinity/node_affinity.go)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.cluster.records import NodeRecord
from common.cluster.shapes import PodShape
from common.fit.index.arrays import Flags
from common.fit.index.facts import NodeFacts
from common.fit.predicates.base import Predicate
from common.fit.predicates.node_name import names_asked
from common.fit.rejections import NONE, Rejection, Rejections

if TYPE_CHECKING:
    from common.fit.question import NodeInfo, Question

_NOT_SELECTED: Final = (
    Rejection(
        "NodeAffinity", "NodeNotSelected", "node(s) didn't match Pod's node affinity/selector"
    ),
)


def selects(shape: PodShape, node: NodeRecord) -> bool:
    """Tell whether a pod's selector and required affinity select a node."""
    labels = node.labels
    if any(labels.get(key) != value for key, value in shape.node_selector):
        return False
    return shape.required_nodes is None or shape.required_nodes.matches(labels, node.name)


def selected(shape: PodShape, facts: NodeFacts) -> Flags | None:
    """Return the rows that a pod's selector and required affinity select."""
    found = facts.labelled(shape.node_selector) if shape.node_selector else None
    if shape.required_nodes is None:
        return found
    required = facts.selected(shape.required_nodes)
    return required if found is None else found & required


def reject(ask: Question, info: NodeInfo) -> Rejections:
    names = ask.prefilter(names_asked)
    # Nodes that affinity does not name never come this far.
    if names is not None and info.node.name not in names:
        return NONE
    return NONE if selects(ask.pod.shape, info.node) else _NOT_SELECTED


def allow(ask: Question) -> Flags | None:
    facts = ask.index.facts
    found = selected(ask.pod.shape, facts)
    names = ask.prefilter(names_asked)
    return found if names is None or found is None else found | ~facts.named(names)


NODE_AFFINITY: Final = Predicate("node-affinity", reject, allow)
