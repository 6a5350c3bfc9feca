# SPDX-License-Identifier: Apache-2.0
"""Where a pod could run instead, as the cluster is now: fit, room, and the ceilings of nodes.

Strategies that state goals for single pods ask here which of several pods has somewhere to go.
What the plan moves besides is for the planner to judge.
"""

from __future__ import annotations

from typing import Final

from common.cluster.records import NodeName, PodRecord, PodUid
from common.fit import replacement
from rebalancer.strategies.base import ClusterView, Participation
from rebalancer.strategies.mobility import departure

_NOWHERE: Final[frozenset[NodeName]] = frozenset()
_KEPT_KINDS: Final = frozenset({"DaemonSet", "Node"})
"""Owners whose pods belong to their node."""


def settled(pod: PodRecord) -> bool:
    """Tell whether a pod runs and could run elsewhere."""
    kept = pod.owner is not None and pod.owner.kind in _KEPT_KINDS
    return not (pod.terminating or pod.finished or kept)


class Homes:
    """Answers for one moment; what was asked once is remembered."""

    def __init__(self, cluster: ClusterView, parts: Participation) -> None:
        self._cluster = cluster
        self._parts = parts
        self._found: dict[PodUid, frozenset[NodeName]] = {}

    def movable(self, pod: PodRecord) -> bool:
        """Tell whether a pod may be moved."""
        return (
            settled(pod)
            and pod.node not in self._parts.sources_refused
            and self._parts.mobility.evictable(pod)
        )

    def of(self, pod: PodRecord) -> frozenset[NodeName]:
        """Return the nodes that would take the pod that comes after this one."""
        if pod.uid not in self._found:
            self._found[pod.uid] = self._searched(pod) if self.movable(pod) else _NOWHERE
        return self._found[pod.uid]

    def _searched(self, pod: PodRecord) -> frozenset[NodeName]:
        world = self._cluster.world.after(departure(pod))
        fitting = world.feasible(replacement(pod, world.snapshot))
        return frozenset(name for name in fitting if name != pod.node and self._takes(name, pod))

    def _takes(self, name: NodeName, pod: PodRecord) -> bool:
        load, ceiling = self._cluster.load.nodes[name], self._parts.ceilings[name]
        if name in self._parts.targets_refused or not load.known:
            return False
        used, has = self._cluster.load.load_of(pod), self._cluster.snapshot.nodes[name].node
        cpu = load.room_cpu_percent + 100.0 * used.cpu_milli / max(1, has.allocatable.cpu_milli)
        mem = load.room_mem_percent + 100.0 * used.mem_bytes / max(1, has.allocatable.mem_bytes)
        return cpu <= ceiling.cpu_percent and mem <= ceiling.mem_percent
