# SPDX-License-Identifier: Apache-2.0
"""A pod that may be moved: what it weighs, and what moving it costs its users."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from common.api.contract import DELETION_COST
from common.cache.snapshot import NodeView
from common.cluster.records import ControllerId, PodRecord
from rebalancer.planner.instance import Floats
from rebalancer.planner.resources import Amounts, amounts

Cost = tuple[float, float, float, float, float, float]
"""Smaller is better: priority, whether it stays within its request, what a restart takes,
deletion cost, preferred affinity that is lost, and when it was moved last.

What tenants can set on their own pods comes after what the pods use: a high deletion cost must
not cause pods of other tenants, which keep to their requests, to be evicted instead.
"""

WITHIN: Final = 1.01
"""Times its request: a pod that uses no more keeps to it; samples are not more precise."""


_COST_DIGITS: Final = 11
"""Of a 32-bit number with its sign."""


class Movable(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A pod that no gate refuses to move."""

    number: int
    """Its place among all pods that were judged."""
    pod: PodRecord
    row: int
    """The node that it is on."""
    load: Floats
    cpu_milli: float
    mem_bytes: float
    maintenance: bool
    """Its node is to be emptied as far as possible."""
    consolidated: bool = False
    """Its node is to be emptied whole or not at all, within the limits for load."""
    cost: Cost
    group: ControllerId | None
    """The controller whose replica it is; None for a bare pod."""
    surges: bool = False
    """Its replacement is Ready before it leaves."""

    @property
    def has_to_leave(self) -> bool:
        """Whether its node is emptied: no other pod can move instead."""
        return self.maintenance or self.consolidated

    @property
    def priority(self) -> int:
        return self.pod.shape.priority

    @property
    def turn(self) -> tuple[float, float]:
        """The order in which pods are preferred for eviction.

        Lower priority goes first, then what uses more than it requests.
        """
        return self.cost[0], self.cost[1]

    @property
    def stateful(self) -> bool:
        return self.pod.owner is not None and self.pod.owner.kind == "StatefulSet"


def keeps_to_its_request(pod: PodRecord, load: Amounts, axes: Iterable[int]) -> bool:
    """Tell whether a pod uses no more than it requests of these resources.

    A pod without requests uses more than that; the kubelet ranks by the same question
    (exceedMemoryRequests in pkg/kubelet/eviction/helpers.go).
    """
    asked = amounts(pod.requests)
    # Of further resources nothing is requested.
    return all(load[axis] <= WITHIN * asked[axis] for axis in axes if axis < len(asked))


def disruption(pod: PodRecord, there: NodeView, moved_s: float = 0.0, *, within: bool) -> Cost:
    """Return how much is lost by moving a pod, the weightier reasons first."""
    heavy = pod.owner is not None and pod.owner.kind == "StatefulSet"
    state = float(heavy) + float(bool(pod.shape.claims or pod.shape.ephemeral_claims))
    return (
        float(pod.shape.priority),
        float(within),
        state,
        _deletion_cost(pod),
        _preferred(pod, there),
        moved_s,
    )


def _preferred(pod: PodRecord, there: NodeView) -> float:
    """Return the weight of what a pod prefers and has where it is.

    Of other pods only those on its own node count: farther ones may stay within reach.
    """
    node, shape = there.node, pod.shape
    if not (shape.preferred_nodes or shape.preferred_affinity):
        return 0.0
    found = sum(w.weight for w in shape.preferred_nodes if w.term.matches(node.labels, node.name))
    others = (
        [q for q in there.pods.values() if q.uid != pod.uid] if shape.preferred_affinity else ()
    )
    for weighted in shape.preferred_affinity:
        found += weighted.weight * any(weighted.term.selects(q.namespace, q.labels) for q in others)
    return float(found)


def _deletion_cost(pod: PodRecord) -> float:
    # Invalid values count as none (getPodDeletionCost in pkg/apis/core/v1/helper).
    text = pod.annotations.get(DELETION_COST)
    if text is None:
        return 0.0
    known = len(text) <= _COST_DIGITS and text.isascii() and text.removeprefix("-").isdecimal()
    return float(text) if known else 0.0
