"""A pod that may be moved: what it weighs, and what moving it costs its users."""

from __future__ import annotations

from dataclasses import dataclass

from common.cluster.records import OwnerUid, PodRecord
from common.contract import DELETION_COST
from rebalancer.planner.instance import Floats

Cost = tuple[float, float, float]
"""Smaller is better: priority, deletion cost, whether it has state to bring along."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Movable:
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


def disruption(pod: PodRecord) -> Cost:
    """Return how much is lost by moving a pod, the weightier reasons first."""
    heavy = pod.owner is not None and pod.owner.kind == "StatefulSet"
    state = float(heavy) + float(bool(pod.shape.claims or pod.shape.ephemeral_claims))
    return float(pod.shape.priority), _deletion_cost(pod), state


def _deletion_cost(pod: PodRecord) -> float:
    # Invalid values count as none (getPodDeletionCost in pkg/apis/core/v1/helper).
    text = pod.annotations.get(DELETION_COST, "0")
    return float(text) if text.removeprefix("-").isdecimal() else 0.0
