# SPDX-License-Identifier: Apache-2.0
"""What the load model says about nodes and pods: plain values, made once, never changed."""

from __future__ import annotations

from enum import Enum, StrEnum
from math import nan

import msgspec

from common.api.contract import Unknown
from common.cluster.records import NodeName, PodUid


class Basis(Enum):
    """What a pod's load rests on, best first."""

    MEASURED = "measured"
    PREDECESSOR = "predecessor"
    SIBLINGS = "siblings"
    SPEC = "spec"
    """Request, limit or default, for each resource on its own."""
    REQUESTS = "requests"
    """Nothing is measured in this cluster: load is what the pod asks for."""
    NOTHING = "nothing"
    """The pod has ended, or none of its containers runs: it uses nothing."""


class Change(StrEnum):
    """Why a pod makes a node's load differ from its sample."""

    ARRIVING = "arriving"
    """The sample's window began before the pod did."""
    LEFT = "left"
    """The pod has gone, and the sample's window still contains it."""
    LEAVING = "leaving"
    """The pod is terminating: it counts now, and not for goals."""


class Load(msgspec.Struct, frozen=True, gc=False):
    """An amount of CPU and memory in use."""

    cpu_milli: float
    mem_bytes: float


class PodLoad(msgspec.Struct, frozen=True, gc=False):
    """What we believe that a pod uses now."""

    cpu_milli: float
    mem_bytes: float
    basis: Basis


class Difference(msgspec.Struct, frozen=True, gc=False):
    """One pod by which a node's load differs from its sample, and by how much."""

    pod: str
    uid: PodUid
    change: Change
    cpu_milli: float
    mem_bytes: float
    basis: Basis


class NodeLoad(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What we believe that a node uses now; of an unknown node only a guess.

    *Now* is the newest sample plus the pods that its window cannot contain yet, less those
    that have gone since. *Settled* is now without the terminating pods, and what goals are
    judged by. Each difference from the sample is a pod in `differences`.
    """

    name: NodeName
    cpu_milli: float
    mem_bytes: float
    offered: Load
    """What the node has for pods (allocatable)."""
    leaving: Load = Load(0.0, 0.0)
    """What terminating pods use of it; never more than all."""
    overhead: Load = Load(0.0, 0.0)
    """What it uses beside its pods; nothing until that was learned."""
    why: Unknown | None = None
    """Why the node is unknown; None when it is known."""
    sample_end_s: float | None = None
    differences: tuple[Difference, ...] = ()

    @property
    def known(self) -> bool:
        return self.why is None

    @property
    def cpu_percent(self) -> float:
        """Of allocatable; NaN, which no comparison holds for, where there is none."""
        return _percent(self.cpu_milli, self.offered.cpu_milli)

    @property
    def mem_percent(self) -> float:
        return _percent(self.mem_bytes, self.offered.mem_bytes)

    @property
    def settled(self) -> Load:
        """What it uses without the terminating pods; goals are judged by this."""
        if not (self.leaving.cpu_milli or self.leaving.mem_bytes):
            return Load(self.cpu_milli, self.mem_bytes)
        return Load(
            max(0.0, self.cpu_milli - self.leaving.cpu_milli),
            max(0.0, self.mem_bytes - self.leaving.mem_bytes),
        )

    @property
    def settled_cpu_percent(self) -> float:
        return _percent(self.settled.cpu_milli, self.offered.cpu_milli)

    @property
    def settled_mem_percent(self) -> float:
        return _percent(self.settled.mem_bytes, self.offered.mem_bytes)

    @property
    def estimated_pods(self) -> int:
        """How many pods count with an estimate."""
        return sum(each.basis is not Basis.MEASURED for each in self.arriving)

    @property
    def arriving(self) -> tuple[Difference, ...]:
        """The pods that the sample's window cannot contain, or not in full."""
        return tuple(each for each in self.differences if each.change is Change.ARRIVING)

    def with_pod(self, load: Load | PodLoad, *, sign: int) -> NodeLoad:
        """Return the load with one pod more (+1) or less (-1)."""
        return msgspec.structs.replace(
            self,
            cpu_milli=max(0.0, self.cpu_milli + sign * load.cpu_milli),
            mem_bytes=max(0.0, self.mem_bytes + sign * load.mem_bytes),
        )

    def with_leaving(self, load: Load | PodLoad) -> NodeLoad:
        """Return the load with one of its pods about to leave."""
        leaving = Load(
            min(self.cpu_milli, self.leaving.cpu_milli + load.cpu_milli),
            min(self.mem_bytes, self.leaving.mem_bytes + load.mem_bytes),
        )
        return msgspec.structs.replace(self, leaving=leaving)


def _percent(amount: float, offered: float) -> float:
    return 100.0 * amount / offered if offered > 0.0 else nan
