"""What the load model says about nodes and pods: plain values, made once, never changed."""

from __future__ import annotations

from enum import Enum

import msgspec

from common.cluster.records import NodeName
from common.contract import Unknown


class Basis(Enum):
    """What a pod's load rests on, best first."""

    MEASURED = "measured"
    PREDECESSOR = "predecessor"
    SIBLINGS = "siblings"
    SPEC = "spec"
    """Request, limit or default, for each resource on its own."""
    REQUESTS = "requests"
    """Nothing is measured in this cluster: load is what the pod asks for."""
    ENDED = "ended"
    """The pod has finished and uses nothing."""


class Load(msgspec.Struct, frozen=True, gc=False):
    """An amount of CPU and memory in use."""

    cpu_milli: float
    mem_bytes: float


class PodLoad(msgspec.Struct, frozen=True, gc=False):
    """What we believe that a pod uses now."""

    cpu_milli: float
    mem_bytes: float
    basis: Basis


class NodeLoad(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What we believe that a node uses now; of an unknown node only a guess."""

    name: NodeName
    cpu_milli: float
    mem_bytes: float
    overhead_cpu_milli: float
    overhead_mem_bytes: float
    cpu_percent: float
    """Of allocatable; NaN, which no comparison holds for, where there is none."""
    mem_percent: float
    why: Unknown | None
    """Why the node is unknown; None when it is known."""
    sample_end_s: float | None
    estimated_pods: int

    @property
    def known(self) -> bool:
        return self.why is None
