# SPDX-License-Identifier: Apache-2.0
"""Which nodes could give a pod or take one at all.

A node without evictable pods stays as high as it is, and a node where nothing may run stays
as low; comparing others with it would state a goal that cannot be met. Finding out means
running gates and predicates, so it is done only for nodes at the ends of a pool, stops at
the first pod that decides, and tries at most `QUESTIONS` kinds of pods.

That a node takes pods is proven by a real pod. A node that takes none was tried with the
smallest and least constrained pods of the most loaded nodes only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence, Set
from itertools import islice
from typing import Final

from common.cache.snapshot import Snapshot
from common.cluster.records import ControllerId, NodeName, PodRecord
from common.cluster.shapes import PodShape
from common.fit import Leave, Terminate, World, replacement
from rebalancer.refusals import Reason, Refusal

Evictable = Callable[[PodRecord], bool]

QUESTIONS: Final = 32
"""Kinds of pods that are tried on all nodes at once, half a millisecond each."""
KINDS: Final = 256
"""Kinds of pods among which the ones to try are chosen."""
JUDGED: Final = 2048
"""Pods that are judged by the gates for it."""

NO_EVICTABLE_POD: Final = Reason.NO_EVICTABLE_POD.refusal()
NOTHING_FITS: Final = Reason.NOTHING_FITS.refusal()
NOTHING_MOVABLE: Final = Reason.NOTHING_MOVABLE.refusal()

STUCK: Final = frozenset({NO_EVICTABLE_POD, NOTHING_FITS, NOTHING_MOVABLE})


class Mobility:
    """What was found out about the nodes of one snapshot."""

    def __init__(self, world: World, evictable: Evictable) -> None:
        self._world = world
        self._evictable = evictable
        self._gives: dict[NodeName, bool] = {}
        self._takes: set[NodeName] = set()
        self.refused: dict[NodeName, Refusal] = {}
        """Nodes that were found stuck at an end, and why."""

    def evictable(self, pod: PodRecord) -> bool:
        """Tell whether a pod may be moved."""
        return self._evictable(pod)

    def gives(self, name: NodeName) -> bool:
        """Tell whether a node has a pod that may be moved."""
        found = self._gives.get(name)
        if found is None:
            pods = _view_pods(self._world.snapshot, name)
            found = self._gives[name] = any(self._evictable(pod) for pod in pods)
        if not found:
            self.refused[name] = NO_EVICTABLE_POD
        return found

    def takers(
        self, wanted: Collection[NodeName], givers: Sequence[NodeName]
    ) -> frozenset[NodeName]:
        """Return those of the wanted nodes where a movable pod of another node may run."""
        missing = set(wanted) - self._takes
        if missing:
            kinds = sorted(islice(self._kinds(givers), KINDS), key=_constrainedness)
            missing -= self._hosts_of_any(kinds[:QUESTIONS], missing)
            why = NOTHING_FITS if kinds else NOTHING_MOVABLE
            self.refused.update(dict.fromkeys(missing, why))
        return frozenset(wanted) - missing

    def _hosts_of_any(self, pods: Sequence[PodRecord], asked: Set[NodeName]) -> set[NodeName]:
        found: set[NodeName] = set()
        for pod in pods:
            found |= self._hosts(pod, asked - found)
            if len(found) == len(asked):
                break
        self._takes |= found
        return found

    def _hosts(self, pod: PodRecord, asked: Collection[NodeName]) -> set[NodeName]:
        world = self._world.after(departure(pod))
        mask = world.mask(replacement(pod, world.snapshot))
        row_of = world.index.facts.row_of
        return {name for name in asked if mask[row_of[name]] and name != pod.node}

    def _kinds(self, givers: Sequence[NodeName]) -> Iterator[PodRecord]:
        """Yield one movable pod of each controller, from the first of the nodes on."""
        seen: set[ControllerId | str] = set()
        for pod in islice(self._pods(givers), JUDGED):
            kind = pod.controller_id or pod.uid
            if kind not in seen and self._evictable(pod):
                seen.add(kind)
                yield pod

    def _pods(self, names: Sequence[NodeName]) -> Iterator[PodRecord]:
        for name in names:
            yield from sorted(_view_pods(self._world.snapshot, name), key=lambda pod: pod.uid)


def _view_pods(snapshot: Snapshot, name: NodeName) -> Collection[PodRecord]:
    return snapshot.nodes[name].pods.values()


def departure(pod: PodRecord) -> Leave | Terminate:
    """Return what its replacement sees of it: a StatefulSet waits until the pod is gone."""
    waits = pod.owner is not None and pod.owner.kind == "StatefulSet"
    return Leave(pod.uid) if waits else Terminate(pod.uid)


def _constrainedness(pod: PodRecord) -> tuple[bool, int, int, str]:
    """Sort pods that fit nearly anywhere first."""
    return _constrained(pod.shape), pod.requests.cpu_milli, pod.requests.mem_bytes, pod.uid


def _constrained(shape: PodShape) -> bool:
    rules = (shape.node_selector, shape.affinity, shape.anti_affinity, shape.spread)
    return any(rules) or shape.required_nodes is not None or bool(shape.claims or shape.host_ports)
