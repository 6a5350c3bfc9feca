"""A pod that may be moved: what it weighs, and what moving it costs its users."""

from __future__ import annotations

import msgspec

from common.cluster.records import OwnerUid, PodRecord
from common.cluster.snapshot import NodeView
from common.contract import DELETION_COST
from rebalancer.planner.instance import Floats

Cost = tuple[float, float, float, float, float]
"""Smaller is better: priority, what a restart takes, deletion cost, preferred affinity that
is lost, and when it was moved last."""


class Movable(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A pod that no gate refuses to move."""

    number: int
    """Its place among all that were looked at."""
    pod: PodRecord
    row: int
    """The node that it is on."""
    load: Floats
    cpu_milli: float
    mem_bytes: float
    maintenance: bool
    """Its node is to be emptied."""
    cost: Cost

    @property
    def group(self) -> OwnerUid | None:
        """Whose replica it is; a bare pod is nobody's."""
        return self.pod.owner.uid if self.pod.owner is not None else None

    @property
    def stateful(self) -> bool:
        return self.pod.owner is not None and self.pod.owner.kind == "StatefulSet"


def disruption(pod: PodRecord, there: NodeView, moved_s: float = 0.0) -> Cost:
    """Return how much is lost by moving a pod, the weightier reasons first."""
    heavy = pod.owner is not None and pod.owner.kind == "StatefulSet"
    state = float(heavy) + float(bool(pod.shape.claims or pod.shape.ephemeral_claims))
    return float(pod.shape.priority), state, _deletion_cost(pod), _preferred(pod, there), moved_s


def _preferred(pod: PodRecord, there: NodeView) -> float:
    """Return the weight of what a pod prefers and has where it is.

    Of other pods only those on its own node count: farther ones may stay within reach.
    """
    node, shape = there.node, pod.shape
    found = sum(w.weight for w in shape.preferred_nodes if w.term.matches(node.labels, node.name))
    others = (
        [q for q in there.pods.values() if q.uid != pod.uid] if shape.preferred_affinity else ()
    )
    for weighted in shape.preferred_affinity:
        term = weighted.term
        near = (q for q in others if q.namespace in term.namespaces)
        found += weighted.weight * any(term.selector.matches(q.labels) for q in near)
    return float(found)


def _deletion_cost(pod: PodRecord) -> float:
    # Invalid values count as none (getPodDeletionCost in pkg/apis/core/v1/helper).
    text = pod.annotations.get(DELETION_COST, "0")
    return float(text) if text.removeprefix("-").isdecimal() else 0.0
