"""What a load book remembers of one node: when it was measured, and its overhead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.cluster.records import PodRecord, PodUid
from common.contract import Unknown
from common.load.judging import Limits
from common.load.overhead import Overhead, residual
from common.usage.source import Usage


class NodeTrack:
    """Follows the measurements of one node object."""

    __slots__ = ("_left_s", "_pods", "end_s", "overhead", "refused", "uid")

    def __init__(self, uid: str, pods: Mapping[PodUid, PodRecord], now_s: float) -> None:
        self.uid = uid
        self.end_s: float | None = None
        """When the newest measurement that was believed ended."""
        self.refused: Unknown | None = None
        """What was wrong with the newest measurement."""
        self.overhead = Overhead()
        self._pods = pods
        # Who left before we came is not known, so it may have been just now.
        self._left_s = now_s

    def look_at(self, pods: Mapping[PodUid, PodRecord], now_s: float) -> None:
        """Notice who has left since the last look; the moment is not known, so it is now."""
        if pods is not self._pods:
            if not self._pods.keys() <= pods.keys():
                self._left_s = now_s
            self._pods = pods

    def take(self, node: Usage, limits: Limits, usages: Sequence[Usage | None]) -> bool:
        """Learn from a measurement and those of the pods; tell whether it said anything new."""
        refused, self.refused = self.refused, limits.refuse(node)
        if self.refused is not None or (self.end_s is not None and node.end_s <= self.end_s):
            return refused is not self.refused
        self.end_s = node.end_s
        found = residual(node, self._pods.values(), usages, left_s=self._left_s)
        if found is not None:
            self.overhead.add(found)
        return True
