# SPDX-License-Identifier: Apache-2.0
"""Move replicas apart that share a host while other hosts are free of their workload.

A host may hold an even share of the replicas, rounded up; the shares are of the hosts that have
replicas and of those that would take one. What is above leaves, so no repair needs fewer moves,
and hosts that take one get no more than their share.

Where the hosts have to be is for the user to say: a workload that prefers its own pods on one
host is left alone, and no replica goes to a host that suits its preferences less. A workload
whose pods are being moved is left alone until that has ended.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import ClassVar

from common.cluster.records import ControllerId, NodeName, PodRecord
from common.config import Strategy as StrategyName
from rebalancer.goals import Goal, Relocate
from rebalancer.strategies.base import ClusterView, Participation
from rebalancer.strategies.homes import Homes, leaving, settled
from rebalancer.strategies.preferences import Preferences
from rebalancer.strategies.seats import Seats, Wishes
from rebalancer.strategies.shares import HOST

Hosts = dict[NodeName, list[PodRecord]]


class Duplicates:
    """States that replicas have to leave hosts that hold more than their share."""

    name: ClassVar[StrategyName] = StrategyName.DUPLICATES
    for_load: ClassVar[bool] = False

    def goals(self, cluster: ClusterView, parts: Participation) -> Sequence[Goal]:
        homes, preferences = Homes(cluster, parts), Preferences(cluster.world)
        going = leaving(cluster.snapshot)
        found: list[Relocate] = []
        for group in sorted(_crowded(cluster)):
            pods = cluster.snapshot.by_owner[group]
            if going.isdisjoint(pods):
                found += _Workload(_by_host(pods.values(), cluster), homes, preferences).goals()
        return sorted(found, key=lambda goal: (goal.node, goal.pod))

    def notes(self, cluster: ClusterView, parts: Participation) -> Sequence[str]:
        return ()


def _crowded(cluster: ClusterView) -> set[ControllerId]:
    """Return the workloads of which some host holds several replicas."""
    counts: Counter[tuple[ControllerId, NodeName]] = Counter()
    for view in cluster.snapshot.nodes.values():
        for pod in view.pods.values():
            if pod.controller_id is not None and settled(pod):
                counts[pod.controller_id, pod.node] += 1
    return {group for (group, _), number in counts.items() if number > 1}


def _by_host(pods: Iterable[PodRecord], cluster: ClusterView) -> Hosts:
    found: Hosts = defaultdict(list)
    for pod in pods:
        if settled(pod) and pod.node in cluster.snapshot.nodes:
            found[pod.node].append(pod)
    return found


class _Workload:
    """The replicas of one workload, and which of them leave."""

    def __init__(self, hosts: Hosts, homes: Homes, preferences: Preferences) -> None:
        self._hosts = hosts
        self._homes = homes
        self._preferences = preferences
        self._wishes: dict[NodeName, Wishes] = {
            name: self._could_leave(pods) for name, pods in hosts.items() if len(pods) > 1
        }
        reached = (names for found in self._wishes.values() for names in found.values())
        known = frozenset(hosts).union(*reached)
        self._most = ceil(sum(map(len, hosts.values())) / len(known))
        self._seats = Seats({name: self._most - len(hosts.get(name, ())) for name in known})

    def goals(self) -> Iterator[Relocate]:
        """Yield a goal for each pod that leaves."""
        for name in sorted(self._wishes):
            self._seats.send(self._wishes[name], len(self._hosts[name]) - self._most)
        for pods in self._hosts.values():
            yield from (self._goal(pod) for pod in pods if pod.uid in self._seats.sent)

    def _goal(self, pod: PodRecord) -> Relocate:
        free = frozenset(self._wishes[pod.node][pod.uid]) & self._seats.open
        # The volumes of a set's members reach different nodes: each has a place of its own.
        own = pod.owner is not None and pod.owner.kind == "StatefulSet"
        workload = f"{pod.owner.kind} {pod.owner.name}" if pod.owner is not None else "it"
        there = len(self._hosts[pod.node])
        return Relocate(
            strategy=StrategyName.DUPLICATES,
            node=pod.node,
            pod=pod.uid,
            name=pod.key,
            tiers=(frozenset({self._seats.sent[pod.uid]}), free) if own else (free,),
            per_host=self._most,
            message=f"{pod.node} holds {there} replicas of {workload}; its share is {self._most}",
        )

    def _could_leave(self, pods: Iterable[PodRecord]) -> Wishes:
        """Return where pods of one host could go, the newest first: those lose least."""
        newest_first = sorted(pods, key=lambda pod: (-pod.created_s, pod.uid))
        movable = (pod for pod in newest_first if not _likes_company(pod))
        return {pod.uid: self._free_for(pod) for pod in movable if self._homes.movable(pod)}

    def _free_for(self, pod: PodRecord) -> frozenset[NodeName]:
        """Return the hosts that take a pod and suit it no less than its own."""
        suits, shape = self._preferences.of, pod.shape
        least = suits(shape, pod.node)
        found = ((name, suits(shape, name)) for name in self._homes.of(pod))
        # No move for load goes to a node that is tainted against the pod.
        return frozenset(n for n, there in found if there >= least and not there.untainted)


def _likes_company(pod: PodRecord) -> bool:
    """Tell whether a pod prefers to be on one host with its like."""
    terms = (weighted.term for weighted in pod.shape.preferred_affinity)
    return any(
        term.topology_key == HOST and term.selects(pod.namespace, pod.labels) for term in terms
    )
