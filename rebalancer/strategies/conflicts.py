# SPDX-License-Identifier: Apache-2.0
"""Pods that required anti-affinity keeps apart and that share a domain all the same.

It happens when labels of pods or nodes change, or pods were placed past the scheduler. Which of
them leave is a vertex cover: of every two at least one. The smallest is found by trying in
groups of modest size; in larger ones the pod with the most conflicts goes first, which is
the smallest too where all are in conflict with all, as replicas of one workload are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from typing import Final

from common.cluster.records import NodeName, PodRecord, PodUid
from common.cluster.shapes import PodTerm
from common.fit import Candidate, World
from common.fit.index.pod_groups import tally
from common.fit.predicates.pod_affinity import Reach, reach
from rebalancer.strategies.homes import leaving

EXACT: Final = 12
"""Pods of a group in which every choice is tried."""

Conflicts = dict[PodUid, set[PodUid]]
Cost = Callable[[PodUid], tuple[float, str]]
"""What it costs that a pod leaves; smaller is better."""


def conflicts(world: World) -> Conflicts:
    """Return for every pod those that must not be where it is, in both directions."""
    finder, found, going = _Finder(world), Conflicts(), leaving(world.snapshot)
    for view in world.snapshot.nodes.values():
        for pod in view.pods.values():
            gone = pod.terminating or pod.finished or pod.uid in going
            if pod.shape.anti_affinity and not gone:
                for other in (near for near in finder.near(pod) if near.uid not in going):
                    found.setdefault(pod.uid, set()).add(other.uid)
                    found.setdefault(other.uid, set()).add(pod.uid)
    return found


class _Finder:
    """Finds the pods that a pod's own terms forbid."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._index = world.index
        self._index.seek(world.snapshot, world.changes)
        self._counts: dict[tuple[str, PodTerm], tuple[Reach, Mapping[int, int]]] = {}
        self._nodes: dict[str, dict[str, list[NodeName]]] = {}

    def near(self, pod: PodRecord) -> Iterator[PodRecord]:
        node = self._world.snapshot.nodes[pod.node].node
        for term in pod.shape.anti_affinity:
            if term.topology_key not in node.labels:
                continue
            reached, counts = self._counted(pod, term)
            column = self._index.facts.column(term.topology_key)
            value = int(column.ids[self._index.facts.row_of[pod.node]])
            itself = reached.about(pod.namespace, pod.labels)
            # Mostly no other pod is there, and none has to be looked at.
            if counts.get(value, 0) > itself:
                yield from self._others(pod, reached, node.labels[term.topology_key])

    def _counted(self, pod: PodRecord, term: PodTerm) -> tuple[Reach, Mapping[int, int]]:
        """Return how many pods a term forbids, by number of the domain."""
        key = (pod.namespace, term)
        if key not in self._counts:
            reached = reach(self._world.ask(Candidate.of(pod)), term)
            groups = reached.groups(self._index.pod_groups)
            rows, numbers = tally(group for group in groups if not group.terminating)
            ids = self._index.facts.column(reached.term.topology_key).ids
            counts: dict[int, int] = {}
            for row, number in zip(rows.tolist(), numbers.tolist(), strict=True):
                value = int(ids[row])
                counts[value] = counts.get(value, 0) + number
            self._counts[key] = reached, counts
        return self._counts[key]

    def _others(self, pod: PodRecord, reached: Reach, value: str) -> Iterator[PodRecord]:
        nodes = self._world.snapshot.nodes
        for name in self._with(reached.term.topology_key).get(value, ()):
            for other in nodes[name].pods.values():
                gone = other.terminating or other.finished or other.uid == pod.uid
                if not gone and reached.about(other.namespace, other.labels):
                    yield other

    def _with(self, key: str) -> dict[str, list[NodeName]]:
        if key not in self._nodes:
            found: dict[str, list[NodeName]] = {}
            for name, view in self._world.snapshot.nodes.items():
                if key in view.node.labels:
                    found.setdefault(view.node.labels[key], []).append(name)
            self._nodes[key] = found
        return self._nodes[key]


def fewest(found: Conflicts, may_leave: Callable[[PodUid], bool], cost: Cost) -> set[PodUid]:
    """Return the fewest pods that may leave without which no two in conflict are left.

    Two pods of which neither may leave stay together.
    """
    chosen: set[PodUid] = set()
    for group in _groups(found):
        free = sorted(uid for uid in group if may_leave(uid))
        edges = {frozenset((uid, other)) for uid in free for other in found[uid]}
        # Where the other may not leave, this one has to.
        forced = {uid for uid in free if any(o not in free for o in found[uid])}
        rest = [uid for uid in free if uid not in forced]
        left = [edge for edge in edges if not edge & forced]
        chosen |= forced | _cover([u for u in rest if any(u in e for e in left)], left, cost)
    return chosen


def _cover(pods: list[PodUid], edges: list[frozenset[PodUid]], cost: Cost) -> set[PodUid]:
    if not edges:
        return set()
    if len(pods) > EXACT:
        return _greedy(pods, edges, cost)
    ranked = sorted(pods, key=cost)
    for size in range(1, len(ranked)):
        covers = [c for c in combinations(ranked, size) if all(e & set(c) for e in edges)]
        if covers:
            return set(min(covers, key=lambda c: sorted(map(cost, c), reverse=True)))
    return set(pods)


def _greedy(pods: list[PodUid], edges: list[frozenset[PodUid]], cost: Cost) -> set[PodUid]:
    near: dict[PodUid, set[PodUid]] = {uid: set() for uid in pods}
    for one, other in map(tuple, edges):
        near[one].add(other)
        near[other].add(one)
    chosen: set[PodUid] = set()
    while any(near.values()):
        uid = min((u for u in near if near[u]), key=lambda u: (-len(near[u]), cost(u)))
        chosen.add(uid)
        for other in near.pop(uid):
            near[other].discard(uid)
    for uid in sorted(chosen, key=cost, reverse=True):
        if all(edge <= chosen for edge in edges if uid in edge):
            chosen.discard(uid)
    return chosen


def _groups(found: Conflicts) -> Iterable[set[PodUid]]:
    seen: set[PodUid] = set()
    for start in sorted(found):
        if start in seen:
            continue
        group, waiting = {start}, [start]
        while waiting:
            more = found[waiting.pop()] - group
            group |= more
            waiting += more
        seen |= group
        yield group
