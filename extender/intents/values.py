# SPDX-License-Identifier: Apache-2.0
"""The results of the intent index, as plain values."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from common.cluster.records import NodeName, PodUid
from common.load import Load


class Guidance(msgspec.Struct, frozen=True, kw_only=True):
    """Where one pod should go."""

    target: NodeName | None
    """The planned node, or else the best alternative, among the offered nodes."""
    source: NodeName
    """Where its predecessor was moved away from."""
    preference: bool
    """Whether the target was tried without success: it is preferred, but no longer required."""
    migration: str


class HeldIntent(msgspec.Struct, frozen=True, kw_only=True):
    """Room that one Migration reserves on its target until the replacement has a node."""

    migration: str
    pod: PodUid
    """The pod that has its slot; empty while there is none."""
    load: Load
    requests: Load
    priority: int


class Held(msgspec.Struct, frozen=True):
    """All the room that is reserved on one node."""

    intents: tuple[HeldIntent, ...]

    def requests(self, priority: int, without: Container[PodUid] = ()) -> Load:
        """Return the requests of replacements of this priority or a higher one.

        Pods in `without` are left out, because they are charged to a node already.
        """
        return _sum(
            [
                held.requests
                for held in self.intents
                if held.priority >= priority and held.pod not in without
            ]
        )


class IntentRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One intent, for /debug/nodes."""

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
