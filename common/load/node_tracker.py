# SPDX-License-Identifier: Apache-2.0
"""What a load tracker remembers of one node: its newest sample, its overhead, and who left.

A pod that has left is part of its node's sample for as long as the window reaches back to
when it was there. Taken as it is, the sample would make a relieved node look hot, and be
relieved again. So pods that left are remembered with what they used, until a window begins
after they had gone. What left before we came is known of our own moves only: Migrations tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Final

import msgspec

from common.api.contract import Unknown
from common.cache.snapshot import Snapshot
from common.cluster.records import NodeName, PodRecord, PodUid
from common.load.freshness import STAMP_PRECISION_S, Limits, began_s, uses_nothing
from common.load.overhead import LAG_S, Overhead
from common.load.values import FurtherLoad, Load
from common.usage.history import PodHistory
from common.usage.source import NO_PRESSURE, NodePressure, Usage

MOVED_S: Final = 600.0
"""How long after an eviction a sample may still contain the pod: its grace, a lag, a window."""


class Departure(msgspec.Struct, frozen=True, gc=False):
    """A pod that stopped using its node, and what it used before."""

    key: str
    uid: PodUid
    cpu_milli: float
    mem_bytes: float
    seen_s: float
    """When it was last seen there."""
    left_s: float
    """When it was first seen to be gone."""


class NodeTracker:
    """Follows the samples of one node object."""

    __slots__ = (
        "_left_s",
        "_pods",
        "_pressure_s",
        "_settled",
        "departed",
        "further",
        "overhead",
        "pressure",
        "refused",
        "residual",
        "uid",
        "usage",
    )

    def __init__(
        self,
        uid: str,
        pods: Mapping[PodUid, PodRecord],
        now_s: float,
        moved: Iterable[Departure] = (),
    ) -> None:
        """Begin to follow; `moved` are the pods that are known to have left before."""
        self.uid = uid
        self.usage: Usage | None = None
        """The newest sample that was believed."""
        self.refused: Unknown | None = None
        """What was wrong with the newest sample."""
        self.overhead = Overhead()
        self.pressure = NO_PRESSURE
        """For how long tasks waited, in the newest round that told."""
        self._pressure_s = -inf, -inf
        """When that was, for CPU and for memory."""
        self.further: tuple[FurtherLoad, ...] = ()
        """What it uses of further resources, in the newest round."""
        self.residual: Load | None = None
        """What pods do not explain of the newest sample; None where that cannot be told."""
        self.departed: dict[PodUid, Departure] = {each.uid: each for each in moved}
        """Pods that left, and of which the sample may still tell."""
        self._pods = pods
        self._settled: tuple[Mapping[PodUid, PodRecord] | None, float] = None, inf
        """The pods that were looked through, and when the newest of them began."""
        # Which pods left before the first snapshot is not known, so it may have been just now.
        self._left_s = now_s

    @property
    def end_s(self) -> float | None:
        """When the newest sample that was believed ended."""
        return None if self.usage is None else self.usage.end_s

    def update_pods(
        self,
        pods: Mapping[PodUid, PodRecord],
        history: Mapping[PodUid, PodHistory],
        *,
        seen_s: float,
        now_s: float,
    ) -> None:
        """Record which pods have left, or stopped, since the snapshot before, of `seen_s`."""
        if pods is self._pods:
            return
        for uid, before in self._pods.items():
            after = pods.get(uid)
            if after is before or uses_nothing(before, seen_s):
                continue
            if after is None or uses_nothing(after, now_s):
                self._left_s = now_s
                self._remember(before, history.get(uid), seen_s, now_s)
        # One that has crashed and runs again has not left; the sample contains it.
        self.departed = {u: d for u, d in self.departed.items() if not _uses(pods.get(u), now_s)}
        self._pods = pods

    def has_old_pods_only(self, pods: Mapping[PodUid, PodRecord], moment_s: float) -> bool:
        """Tell whether all pods used the node from that moment on, and none is being deleted."""
        if self._settled[0] is not pods:
            leaving = any(pod.deleted_s is not None for pod in pods.values())
            began = inf if leaving else max(map(began_s, pods.values()), default=-inf)
            self._settled = pods, began
        return self._settled[1] + STAMP_PRECISION_S <= moment_s

    def take(self, node: Usage, limits: Limits, residual: Callable[[Usage], Load | None]) -> bool:
        """Learn from a sample; tell whether it said anything new.

        `residual` returns what the pods do not explain of it, None where that cannot be told.
        """
        refused, self.refused = self.refused, limits.refuse(node)
        if self.refused is not None or (self.usage is not None and node.end_s <= self.usage.end_s):
            return refused is not self.refused
        self.usage = node
        start_s = node.start_s
        self.departed = {u: d for u, d in self.departed.items() if d.left_s > start_s}
        # A pod that has left since may be in it.
        found = None if start_s < self._left_s else residual(node)
        self.residual = found
        if found is not None:
            self.overhead.add(found)
        return True

    def take_pressure(self, found: NodePressure, now_s: float, expiry_s: float) -> bool:
        """Learn for how long tasks wait; tell whether that has changed.

        What is missing counts as before until it expires, as a sample of usage does: a gap must
        not make a node whose tasks wait look as if it had room.
        """
        before, (cpu_s, memory_s) = self.pressure, self._pressure_s
        if found is before is NO_PRESSURE:  # not judged, or never told
            return False
        cpu, cpu_s = _kept(found.cpu_percent, before.cpu_percent, cpu_s, now_s, expiry_s)
        memory, memory_s = _kept(found.mem_percent, before.mem_percent, memory_s, now_s, expiry_s)
        self.pressure, self._pressure_s = NodePressure(cpu, memory), (cpu_s, memory_s)
        return self.pressure != before

    def _remember(
        self, pod: PodRecord, page: PodHistory | None, seen_s: float, left_s: float
    ) -> None:
        """Keep what a pod used; of one that was not measured nothing can be said."""
        if page is None or self.usage is None or page.end_s < self.usage.start_s - LAG_S:
            return
        self.departed[pod.uid] = Departure(
            pod.key, pod.uid, page.cpu_last_milli, page.mem_last_bytes, seen_s, left_s
        )


def _kept(
    new: float | None, old: float | None, read_s: float, now_s: float, expiry_s: float
) -> tuple[float | None, float]:
    """Return the figure that counts, and when it was read."""
    if new is not None:
        return new, now_s
    return (old if now_s - read_s < expiry_s else None), read_s


def _uses(pod: PodRecord | None, now_s: float) -> bool:
    return pod is not None and not uses_nothing(pod, now_s)


def moved_lately(snapshot: Snapshot, now_s: float) -> Mapping[NodeName, Sequence[Departure]]:
    """Return the pods that Migrations have moved away lately and that have gone, by node.

    When they went was not seen. Between the eviction and now is all that can be said.
    """
    found: dict[NodeName, list[Departure]] = defaultdict(list)
    for move in snapshot.migrations.values():
        view, evicted_s = snapshot.nodes.get(move.source), move.evicted_s
        if view is None or evicted_s is None or move.pod_uid in snapshot.pods:
            continue
        # A node of the same name may be another one by now.
        if now_s - MOVED_S < evicted_s <= now_s and view.node.created_s < evicted_s:
            load = move.load_cpu_milli, move.load_mem_bytes
            key = f"{move.namespace}/{move.pod_name}"
            found[move.source].append(Departure(key, move.pod_uid, *load, evicted_s, now_s))
    return found
