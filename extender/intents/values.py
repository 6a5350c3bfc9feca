"""What the index of intents tells others: plain values."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from common.cluster.records import NodeName, PodUid
from common.load import Load


class Guidance(msgspec.Struct, frozen=True, kw_only=True):
    """Where one pod is to go."""

    target: NodeName | None
    """The planned node, or else the best alternative, among those asked about."""
    source: NodeName
    """Where its predecessor was moved away from."""
    preference: bool
    """The node was tried in vain: it may still be the first choice, but not the only one."""
    migration: str


class HeldIntent(msgspec.Struct, frozen=True, kw_only=True):
    """Room that one Migration holds on its target until the replacement has a node."""

    migration: str
    pod: PodUid
    """The pod that is being steered by it; empty while there is none."""
    load: Load
    requests: Load
    priority: int


class Held(msgspec.Struct, frozen=True):
    """All the room that is held on one node."""

    intents: tuple[HeldIntent, ...]

    def load(self, without: Container[PodUid] = ()) -> Load:
        """Return what the replacements will use, leaving out pods that are charged already."""
        return _sum([held.load for held in self.intents if held.pod not in without])

    def requests(self, priority: int, without: Container[PodUid] = ()) -> Load:
        """Return what replacements of this priority or a higher one ask for."""
        return _sum(
            [
                held.requests
                for held in self.intents
                if held.priority >= priority and held.pod not in without
            ]
        )


class IntentRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One intent, for people."""

    migration: str
    pod: str
    source: NodeName
    target: NodeName
    alternatives: tuple[NodeName, ...]
    state: str
    """`open`, `taken` by a pod without a node, or `filled`."""
    holder: PodUid
    node: NodeName
    deadline_s: float


def _sum(loads: list[Load]) -> Load:
    return Load(sum(load.cpu_milli for load in loads), sum(load.mem_bytes for load in loads))
