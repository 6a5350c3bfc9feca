# SPDX-License-Identifier: Apache-2.0
"""Where a pod could run instead, as the cluster is now: fit, room, ceilings, and its replicas.

Strategies that state goals for single pods ask here which of several pods has somewhere to go.
What the plan moves besides is for the planner to judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Final

import msgspec

from common.cache.snapshot import Snapshot
from common.cluster.records import NodeName, PodRecord, PodUid
from common.fit import Arrive, Candidate, Change, Leave, replacement
from rebalancer.strategies.base import ClusterView, Participation
from rebalancer.strategies.mobility import departure
from rebalancer.strategies.replica_places import ReplicaPlaces

SIMULATED: Final = 16
"""Pods for which places are looked for one after the other."""
_NOWHERE: Final[frozenset[NodeName]] = frozenset()
_KEPT_KINDS: Final = frozenset({"DaemonSet", "Node"})
"""Owners whose pods belong to their node."""


def settled(pod: PodRecord) -> bool:
    """Tell whether a pod runs and could run elsewhere."""
    kept = pod.owner is not None and pod.owner.kind in _KEPT_KINDS
    return not (pod.terminating or pod.finished or kept)


def leaving(snapshot: Snapshot) -> frozenset[PodUid]:
    """Return the pods of open Migrations: they are repaired already."""
    return frozenset(m.pod_uid for m in snapshot.migrations.values() if m.open)


class Homes:
    """Answers for one moment; what was asked once is remembered."""

    def __init__(self, cluster: ClusterView, parts: Participation) -> None:
        self._cluster = cluster
        self._parts = parts
        self._found: dict[PodUid, frozenset[NodeName]] = {}
        self._fitting: dict[Hashable, Collection[NodeName]] = {}
        self._going = leaving(cluster.snapshot)
        self._replicas = ReplicaPlaces(cluster, parts)

    def movable(self, pod: PodRecord) -> bool:
        """Tell whether a pod may be moved."""
        return (
            settled(pod)
            and pod.uid not in self._going
            and pod.node not in self._parts.sources_refused
            and self._parts.mobility.evictable(pod)
        )

    def of(self, pod: PodRecord) -> frozenset[NodeName]:
        """Return the nodes that would take the pod that comes after this one."""
        if pod.uid not in self._found:
            self._found[pod.uid] = self._searched(pod) if self.movable(pod) else _NOWHERE
        return self._found[pod.uid]

    def in_turn(self, pods: Iterable[PodRecord]) -> set[PodUid]:
        """Return the pods that find places when one after the other goes to one.

        Of many pods only some are tried; of the others it is assumed.
        """
        ranked = sorted(pods, key=lambda pod: len(self.of(pod)))
        found = {pod.uid for pod in ranked[SIMULATED:]}
        waiting, changes = ranked[:SIMULATED], tuple[Change, ...]()
        wanted = Counter(name for pod in waiting for name in self.of(pod))
        while waiting:
            blocked: list[PodRecord] = []
            for pod in waiting:
                after, places = self._places_after(pod, changes)
                if not places:
                    blocked.append(pod)
                    continue
                found.add(pod.uid)
                arrived = msgspec.structs.replace(after, uid=PodUid(f"after/{pod.uid}"))
                place = min(places, key=lambda name: (wanted[name], name))
                changes = (*changes, Leave(pod.uid), Arrive(arrived, place))
            if len(blocked) == len(waiting):
                break
            waiting = blocked  # those that have left may have been in the way
        return found

    def _places_after(
        self, pod: PodRecord, changes: Sequence[Change]
    ) -> tuple[Candidate, list[NodeName]]:
        """Return what comes after a pod, and which nodes would take it then."""
        after = replacement(pod, self._cluster.snapshot)
        names = self._cluster.world.after(*changes, departure(pod)).feasible(after)
        return after, [name for name in names if name != pod.node and self._takes(name, pod)]

    def _searched(self, pod: PodRecord) -> frozenset[NodeName]:
        key = _kind(pod)
        if key not in self._fitting:
            world = self._cluster.world.after(departure(pod))
            self._fitting[key] = world.feasible(replacement(pod, world.snapshot))
        fitting = [name for name in self._fitting[key] if name != pod.node]
        full = self._replicas.full(pod, fitting, lambda: self._possible(pod))
        return frozenset(n for n in fitting if n not in full and self._takes(n, pod))

    def _possible(self, pod: PodRecord) -> Collection[NodeName]:
        """Return where the replacement of a pod could run if there were room."""
        world = self._cluster.world.after(departure(pod))
        mask = world.mask(replacement(pod, world.snapshot), room_aside=True)
        rows = world.index.facts.row_of
        return [name for name in world.snapshot.nodes if mask[rows[name]]]

    def _takes(self, name: NodeName, pod: PodRecord) -> bool:
        load, ceiling = self._cluster.load.nodes[name], self._parts.ceilings[name]
        if name in self._parts.targets_refused or not load.known:
            return False
        used, has = self._cluster.load.load_of(pod), self._cluster.snapshot.nodes[name].node
        cpu = load.room_cpu_percent + 100.0 * used.cpu_milli / max(1, has.allocatable.cpu_milli)
        mem = load.room_mem_percent + 100.0 * used.mem_bytes / max(1, has.allocatable.mem_bytes)
        return cpu <= ceiling.cpu_percent and mem <= ceiling.mem_percent


def _kind(pod: PodRecord) -> Hashable:
    """Return what pods have in common that fit the same nodes, their own aside."""
    shape = pod.shape
    ties = shape.affinity or shape.anti_affinity or shape.spread or shape.claims
    if ties or shape.ephemeral_claims or shape.disks or pod.controller_id is None:
        return pod.uid
    return pod.controller_id, id(shape), id(pod.labels)
