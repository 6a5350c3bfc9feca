"""What a load book remembers of one node: its newest sample, its overhead, and who left.

A pod that has left is part of its node's sample for as long as the window reaches back to
when it was there. Taken as it is, the sample would make a relieved node look hot, and be
relieved again. So pods that left are remembered with what they used, until a window begins
after they had gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from common.cluster.records import PodRecord, PodUid
from common.contract import Unknown
from common.load.freshness import Limits, uses_nothing
from common.load.overhead import LAG_S, Overhead, residual
from common.usage.history import PodHistory
from common.usage.source import Usage


class Departure(msgspec.Struct, frozen=True, gc=False):
    """A pod that stopped using its node, and what it used before."""

    pod: PodRecord
    cpu_milli: float
    mem_bytes: float
    seen_s: float
    """When it was last seen there."""
    left_s: float
    """When it was first seen to be gone."""


class NodeTracker:
    """Follows the samples of one node object."""

    __slots__ = ("_left_s", "_pods", "departed", "overhead", "refused", "uid", "usage")

    def __init__(self, uid: str, pods: Mapping[PodUid, PodRecord], now_s: float) -> None:
        self.uid = uid
        self.usage: Usage | None = None
        """The newest sample that was believed."""
        self.refused: Unknown | None = None
        """What was wrong with the newest sample."""
        self.overhead = Overhead()
        self.departed: dict[PodUid, Departure] = {}
        """Pods that left, and of which the sample may still tell."""
        self._pods = pods
        # Which pods left before the first look is not known, so it may have been just now.
        self._left_s = now_s

    @property
    def end_s(self) -> float | None:
        """When the newest sample that was believed ended."""
        return None if self.usage is None else self.usage.end_s

    def look_at(
        self,
        pods: Mapping[PodUid, PodRecord],
        history: Mapping[PodUid, PodHistory],
        *,
        seen_s: float,
        now_s: float,
    ) -> None:
        """Notice which pods have left, or stopped, since `seen_s`, the look before."""
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

    def take(self, node: Usage, limits: Limits, usages: Sequence[Usage | None]) -> bool:
        """Learn from a sample and those of the pods; tell whether it said anything new."""
        refused, self.refused = self.refused, limits.refuse(node)
        if self.refused is not None or (self.usage is not None and node.end_s <= self.usage.end_s):
            return refused is not self.refused
        self.usage = node
        start_s = node.start_s
        self.departed = {u: d for u, d in self.departed.items() if d.left_s > start_s}
        found = residual(node, self._pods.values(), usages, left_s=self._left_s)
        if found is not None:
            self.overhead.add(found)
        return True

    def _remember(
        self, pod: PodRecord, page: PodHistory | None, seen_s: float, left_s: float
    ) -> None:
        """Keep what a pod used; of one that was not measured nothing can be said."""
        if page is None or self.usage is None or page.end_s < self.usage.start_s - LAG_S:
            return
        self.departed[pod.uid] = Departure(
            pod, page.cpu_last_milli, page.mem_last_bytes, seen_s, left_s
        )


def _uses(pod: PodRecord | None, now_s: float) -> bool:
    return pod is not None and not uses_nothing(pod, now_s)
