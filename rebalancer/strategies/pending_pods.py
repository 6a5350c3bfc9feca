# SPDX-License-Identifier: Apache-2.0
"""Nodes that pending pods could use: load moves leave them alone.

A pod that the scheduler has found no node for has the first claim on room that becomes free;
moving another pod there for the sake of load would make it wait longer. So a node is no
target of load moves while a pod would fit there that is unschedulable, has no scheduling gate
and is nominated to no other node. A pod that was only just created does not count: it is
bound in a moment, and what is planned is validated again.

Nor does a pod count that waits for something other than room, because a tenant could let it
wait forever: one of a scheduler that does not call our extender, one that is placed only
together with others, and one with resource claims, whose devices we do not track.

A node that the scheduler has nominated for a pod is left alone in the same way, except for
pods that wait for others: a pod of a group keeps its `nominatedNodeName` as long as it waits
(WillWaitOnPermit in pkg/scheduler/schedule_one.go). Its room is reserved all the same.

The scheduler knows more than we do: a pod that fits by all we see may fit nowhere, because a
storage backend is full, and one whose victims never terminate waits forever. The scheduler
tries every pod again after five minutes (DefaultPodMaxInUnschedulablePodsDuration). So a node
that pods of a namespace have not used for twice as long is no longer kept for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from common.cache.snapshot import Snapshot
from common.cluster.records import UNBOUND, ControllerId, NodeName, OwnerUid, PodRecord
from common.config import RebalancerConfiguration
from common.fit import Candidate, World
from rebalancer.evictability import in_a_pod_group

KINDS: Final = 64
"""Kinds of waiting pods that are tried on all nodes: of each namespace in turn, those that
wait in numbers first."""
LONGEST_S: Final = 600.0
"""Pods of a namespace keep a node for themselves for so long."""

Wait = tuple[NodeName, str]
"""A node, and the namespace whose pods wait for it."""


class Claims(NamedTuple):
    """Which pod could use which node, and how many kinds of pods were not tried."""

    pods: Mapping[Wait, str]
    untried: int = 0


class PendingTimes:
    """Remembers since when pods of a namespace have been waiting for a node.

    Pods that come and go are one wait: only a pause of `LONGEST_S` ends it.
    """

    def __init__(self) -> None:
        self._seen: dict[Wait, tuple[float, float]] = {}
        """When each wait was seen first and last."""

    def copy(self) -> PendingTimes:
        """Return a copy for a view of the cluster as a plan would leave it."""
        found = PendingTimes()
        found._seen = self._seen
        return found

    def note(self, waits: Iterable[Wait], now_s: float) -> None:
        """Note which pods are waiting now."""
        before = self._seen
        kept = {w: seen for w, seen in before.items() if now_s - seen[1] < LONGEST_S}
        self._seen = kept | {w: (before.get(w, (now_s, now_s))[0], now_s) for w in waits}

    def kept_nodes(self, waits: Mapping[Wait, str], now_s: float) -> dict[NodeName, str]:
        """Return the nodes that are kept, each with the first pod that waits for it."""
        found: dict[NodeName, str] = {}
        for wait, pod in waits.items():
            if now_s - self._seen[wait][0] < LONGEST_S:
                found.setdefault(wait[0], pod)
        return found


def nominations(snapshot: Snapshot, schedulers: Container[str]) -> Mapping[Wait, str]:
    """Return the nodes that are nominated for pending pods, each with the first such pod."""
    predicted = snapshot.by_nomination
    pods = [pod for name in predicted for pod in predicted[name].values()]
    found: dict[Wait, str] = {}
    for pod in sorted(pods, key=lambda pod: pod.key):
        if _waits_for_room(pod, schedulers):
            found.setdefault((pod.nominated_node, pod.namespace), pod.key)
    return found


def claims(world: World, schedulers: Container[str]) -> Claims:
    """Return the nodes that pending pods could use now, each with one such pod.

    `schedulers` are those that call our extender: whether another one would find a node for
    a pod we cannot judge.
    """
    waiting = [pod for pod in world.snapshot.pending.values() if _waits(pod, schedulers)]
    if not waiting:
        return Claims({})
    kinds = _kinds(waiting, _most_free(world))
    found: dict[Wait, str] = {}
    for pod in kinds[:KINDS]:
        mask = world.mask(Candidate.of(pod))
        for row in np.flatnonzero(mask):
            node = world.index.facts.nodes[row]
            if node is not None:
                found.setdefault((node.name, pod.namespace), pod.key)
    return Claims(found, max(0, len(kinds) - KINDS))


def first_pending(
    times: PendingTimes, snapshot: Snapshot, config: RebalancerConfiguration, now_s: float
) -> str:
    """Return a pod that waits for a node, whether or not one has room; empty if none does.

    Pods of one namespace count for `LONGEST_S`, as for the nodes that they could use.
    """
    waiting = [p for p in snapshot.pending.values() if _waits(p, config.scheduler_names)]
    waits: dict[Wait, str] = {}
    for pod in sorted(waiting, key=lambda pod: pod.key):
        waits.setdefault((UNBOUND, pod.namespace), pod.key)
    times.note(waits, now_s)
    return times.kept_nodes(waits, now_s).get(UNBOUND, "")


def _waits(pod: PodRecord, schedulers: Container[str]) -> bool:
    if not pod.unschedulable or pod.shape.gates or pod.nominated_node:
        return False
    return _waits_for_room(pod, schedulers)


def _waits_for_room(pod: PodRecord, schedulers: Container[str]) -> bool:
    elsewhere = pod.shape.scheduler_name not in schedulers or pod.shape.resource_claims
    return not elsewhere and not in_a_pod_group(pod)


def _kinds(waiting: Iterable[PodRecord], free: tuple[int, int]) -> list[PodRecord]:
    """Return one pod of each controller that could fit anywhere.

    The most numerous of each namespace come first, then the second of each, and so on: one
    tenant with many kinds of pods does not keep those of others from being tried.
    """
    first: dict[ControllerId, PodRecord] = {}
    many: Counter[ControllerId] = Counter()
    for pod in sorted(waiting, key=lambda pod: pod.uid):
        if pod.requests.cpu_milli > free[0] or pod.requests.mem_bytes > free[1]:
            continue
        kind = pod.controller_id or ControllerId(pod.namespace, "", OwnerUid(pod.uid))
        first.setdefault(kind, pod)
        many[kind] += 1
    turns: Counter[str] = Counter()
    ranks: dict[ControllerId, int] = {}
    ordered = sorted(first, key=lambda kind: (-many[kind], kind))
    for kind in ordered:
        ranks[kind] = turns[kind.namespace]
        turns[kind.namespace] += 1
    return [first[kind] for kind in sorted(ordered, key=lambda kind: ranks[kind])]


def _most_free(world: World) -> tuple[int, int]:
    """Return the most CPU and the most memory that any node has left: a cheap first filter."""
    cpu_milli = mem_bytes = 0
    for view in world.snapshot.nodes.values():
        offered, taken = view.node.allocatable, view.requested
        cpu_milli = max(cpu_milli, offered.cpu_milli - taken.cpu_milli)
        mem_bytes = max(mem_bytes, offered.mem_bytes - taken.mem_bytes)
    return cpu_milli, mem_bytes
