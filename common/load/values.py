# SPDX-License-Identifier: Apache-2.0
"""What the load model says about nodes and pods: plain values, made once, never changed."""

from __future__ import annotations

from enum import Enum, StrEnum
from math import isfinite, nan

import msgspec

from common.api.contract import Unknown
from common.cluster.records import NodeName, PodUid
from common.usage.source import NO_PRESSURE, NodePressure


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
    further: tuple[float, ...] = ()
    """Of `prometheus.resources`, in their order."""


class FurtherLoad(msgspec.Struct, frozen=True, gc=False):
    """What a node uses of a resource besides CPU and memory, by the newest sample."""

    used: float | None
    """None where it is not known."""
    offered: float | None
    """None where it is not known, zero where the node has none of it."""
    leaving: float = 0.0
    """What terminating pods use of it."""

    @property
    def known(self) -> bool:
        return isfinite(self.percent)

    @property
    def percent(self) -> float:
        """What decides about room; NaN, which no comparison holds for, where it is not known."""
        return nan if self.used is None else _percent(self.used, self.offered or 0.0)

    @property
    def settled_percent(self) -> float:
        """What goals are judged by: terminating pods have left."""
        if self.used is None:
            return nan
        return _percent(max(0.0, self.used - self.leaving), self.offered or 0.0)


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
    that have gone since. *Settled* is now without the terminating pods, over the window of
    `load.aggregation.ceilings`, and what goals are judged by. *Room* is now over the window of
    `load.aggregation.targets`, and never below settled. Each difference
    from the sample is a pod in `differences`.
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
    pressure: NodePressure = NO_PRESSURE
    """For how long its tasks waited; not corrected by pods, and so late after each move."""
    ceilings_shift: Load = Load(0.0, 0.0)
    """By how much the figure for ceilings (`load.aggregation`) is above now, settled."""
    targets_shift: Load = Load(0.0, 0.0)
    """The same of the figure for targets."""
    differences: tuple[Difference, ...] = ()
    further: tuple[FurtherLoad, ...] = ()
    """Of `prometheus.resources`, in their order; not corrected by pods, as pressure."""

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
        shift, leaving = self.ceilings_shift, self.leaving
        return Load(
            max(0.0, self.cpu_milli + shift.cpu_milli - leaving.cpu_milli),
            max(0.0, self.mem_bytes + shift.mem_bytes - leaving.mem_bytes),
        )

    @property
    def room(self) -> Load:
        """What it uses where room for more pods is judged."""
        shift, settled = self.targets_shift, self.settled
        return Load(
            max(settled.cpu_milli, self.cpu_milli + shift.cpu_milli),
            max(settled.mem_bytes, self.mem_bytes + shift.mem_bytes),
        )

    @property
    def room_cpu_percent(self) -> float:
        return _percent(self.room.cpu_milli, self.offered.cpu_milli)

    @property
    def room_mem_percent(self) -> float:
        return _percent(self.room.mem_bytes, self.offered.mem_bytes)

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
        cpu_milli = self.cpu_milli + sign * load.cpu_milli
        mem_bytes = self.mem_bytes + sign * load.mem_bytes
        if self.further and isinstance(load, PodLoad) and load.further:
            pairs = zip(self.further, load.further, strict=True)
            further = tuple(_with_used(each, sign * used) for each, used in pairs)
            plain = msgspec.structs.replace(load, further=())
            return msgspec.structs.replace(self, further=further).with_pod(plain, sign=sign)
        if cpu_milli >= 0.0 and mem_bytes >= 0.0:
            return msgspec.structs.replace(self, cpu_milli=cpu_milli, mem_bytes=mem_bytes)
        # Over a window, a pod may have used more than all pods do now.
        short = Load(min(0.0, cpu_milli), min(0.0, mem_bytes))
        return msgspec.structs.replace(
            self,
            cpu_milli=max(0.0, cpu_milli),
            mem_bytes=max(0.0, mem_bytes),
            ceilings_shift=_sum(self.ceilings_shift, short),
            targets_shift=_sum(self.targets_shift, short),
        )

    def with_leaving(self, load: Load | PodLoad) -> NodeLoad:
        """Return the load with one of its pods about to leave."""
        shift = self.ceilings_shift
        leaving = Load(
            min(
                self.cpu_milli + max(0.0, shift.cpu_milli), self.leaving.cpu_milli + load.cpu_milli
            ),
            min(
                self.mem_bytes + max(0.0, shift.mem_bytes), self.leaving.mem_bytes + load.mem_bytes
            ),
        )
        further = self.further
        if further and isinstance(load, PodLoad) and load.further:
            further = tuple(map(_with_leaving, further, load.further))
        return msgspec.structs.replace(self, leaving=leaving, further=further)


def _with_used(load: FurtherLoad, amount: float) -> FurtherLoad:
    used = None if load.used is None else max(0.0, load.used + amount)
    return msgspec.structs.replace(load, used=used)


def _with_leaving(load: FurtherLoad, amount: float) -> FurtherLoad:
    return msgspec.structs.replace(load, leaving=load.leaving + amount)


def _sum(one: Load, other: Load) -> Load:
    return Load(one.cpu_milli + other.cpu_milli, one.mem_bytes + other.mem_bytes)


def _percent(amount: float, offered: float) -> float:
    return 100.0 * amount / offered if offered > 0.0 else nan
