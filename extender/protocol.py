# SPDX-License-Identifier: Apache-2.0
"""What kube-scheduler asks and what it gets back, as plain values.

The service turns bytes into these values and back; a `Policy` sees nothing of HTTP or JSON.
A policy may raise: the service then sends a neutral answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from common.cluster.records import NodeName, PodRecord, PodUid


class RequestPod(msgspec.Struct, frozen=True, kw_only=True):
    """The pod of a request."""

    namespace: str
    name: str
    uid: PodUid
    nominated_node: NodeName
    """The node on which preemption has made room for it, or an empty name."""
    tried: bool = False
    """Whether a scheduler has tried to place it before, as its condition says."""
    record: PodRecord


class FilterResult(msgspec.Struct, frozen=True):
    """Which nodes pass; a node that is neither in `keep` nor in `failed` was left out unnamed."""

    keep: Sequence[str]
    """Nodes that pass, in the order of the request; duplicate names are kept twice."""
    failed: Mapping[str, str]
    """Why the others do not: constant messages, because kube-scheduler counts and shows them."""


class Scores(msgspec.Struct, frozen=True):
    """The scores of a list of nodes, in its order."""

    values: Sequence[int]
    """0 to 10 for each node."""
    encoded: bytes | None = None
    """The same as a HostPriorityList in its shortest form, if it was cheap to make."""


class Victims(msgspec.Struct):
    """The pods that kube-scheduler would preempt on a node."""

    pods: list[PodUid]
    violations: int
    """How many of the preemptions violate a PodDisruptionBudget."""


class Policy(Protocol):
    """Decides what kube-scheduler asks."""

    async def filter(self, pod: RequestPod, names: Sequence[str]) -> FilterResult:
        """Return which of the nodes the pod may go to."""
        ...

    def prioritize(self, pod: RequestPod, names: Sequence[str]) -> Scores:
        """Return a score of 0 to 10 for each of the nodes, in their order."""
        ...

    def preempt(self, pod: RequestPod, candidates: Mapping[str, Victims]) -> Collection[str]:
        """Return the names of the nodes where preemption may go ahead."""
        ...
