"""What the scheduler asks and what is answered, as plain values.

The service turns bytes into these and back; whoever decides (`Verdicts`) sees nothing of
HTTP or JSON. A decision may raise: the service then answers as if it had no opinion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from common.cluster.records import NodeName, PodRecord, PodUid


class AskedPod(msgspec.Struct, frozen=True, kw_only=True):
    """The pod of a request."""

    namespace: str
    name: str
    uid: PodUid
    nominated_node: NodeName
    """Where preemption has made room for it, or an empty name."""
    record: PodRecord


class Filtered(msgspec.Struct, frozen=True):
    """Which nodes stay; `keep` and `failed` partition the names that were asked about."""

    keep: Sequence[str]
    """Those that stay, in the order in which they came; names given twice stay twice."""
    failed: Mapping[str, str]
    """Why the others do not: constant words, they are counted and shown to people."""


class Marks(list[int]):
    """Scores that come with the answer that tells them."""

    __slots__ = ("written",)

    def __init__(self, scores: Iterable[int], written: bytes | None) -> None:
        super().__init__(scores)
        self.written = written
        """A HostPriorityList, with the names in their shortest form; None if there is none."""


class Victims(msgspec.Struct):
    """Whom the scheduler would remove from a node to make room."""

    pods: list[PodUid]
    violations: int
    """How many of the removals break a PodDisruptionBudget."""


class Verdicts(Protocol):
    """Decides what the scheduler asks."""

    async def filter(self, pod: AskedPod, names: Sequence[str]) -> Filtered:
        """Say which of the nodes the pod may go to."""
        ...

    def prioritize(self, pod: AskedPod, names: Sequence[str]) -> Sequence[int]:
        """Return a score of 0 to 10 for each of the names, in their order."""
        ...

    def preempt(self, pod: AskedPod, candidates: Mapping[str, Victims]) -> Collection[str]:
        """Return the names of the nodes where preemption may go ahead."""
        ...
