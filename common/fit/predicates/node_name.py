# SPDX-License-Identifier: Apache-2.0
"""Pods that ask for nodes by name.

A spec may name its node (plugins/nodename/node_name.go), and required affinity may name
nodes in every one of its terms. The scheduler then does not even look at the others
(PreFilter in plugins/nodeaffinity/node_affinity.go), as for the pods of a DaemonSet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.cluster.selectors import NodeSelector, NodeTerm
from common.fit.index.arrays import Flags
from common.fit.predicates.base import Predicate
from common.fit.rejections import NONE, Rejection, Rejections

if TYPE_CHECKING:
    from common.fit.question import NodeInfo, Question

_OTHER_NODE: Final = (
    Rejection("NodeName", "OtherNodeNamed", "node(s) didn't match the requested node name"),
)
_NOT_AMONG: Final = (
    Rejection("NodeAffinity", "NodeNotNamed", "node(s) didn't satisfy plugin(s) [NodeAffinity]"),
)
_CONFLICT: Final = (
    Rejection("NodeAffinity", "NamesConflict", "pod affinity terms conflict", everywhere=True),
)


def named(selector: NodeSelector | None) -> frozenset[str] | None:
    """Return the nodes that required affinity names; `None` when it leaves that open."""
    if selector is None or not selector.terms or selector.errors:
        return None
    found: frozenset[str] = frozenset()
    for term in selector.terms:
        names = _named_by(term)
        if names is None:
            return None
        found |= names
    return found


def reject(ask: Question, info: NodeInfo) -> Rejections:
    wanted = ask.pod.node_name
    if wanted and wanted != info.node.name:
        return _OTHER_NODE
    names = ask.prefilter(names_asked)
    if names is None or info.node.name in names:
        return NONE
    return _NOT_AMONG if names else _CONFLICT


def allow(ask: Question) -> Flags | None:
    facts = ask.index.facts
    names = ask.prefilter(names_asked)
    found = None if names is None else facts.named(names)
    if ask.pod.node_name:
        alone = facts.named(frozenset({ask.pod.node_name}))
        found = alone if found is None else found & alone
    return found


def names_asked(ask: Question) -> frozenset[str] | None:
    """Return the nodes that the pod's affinity names; `None` when it leaves that open."""
    return named(ask.pod.shape.required_nodes)


def _named_by(term: NodeTerm) -> frozenset[str] | None:
    wanted = [frozenset({f.value}) for f in term.fields.requirements if not f.negated]
    return frozenset.intersection(*wanted) if wanted else None


NODE_NAME: Final = Predicate("node-name", reject, allow)
