# SPDX-License-Identifier: Apache-2.0
"""One pod asked about in one world.

What a predicate works out about the pod once, whichever node is judged, is kept here for
the time of the question (kube-scheduler's PreFilter). Nodes are judged with and without
the pods that are nominated to them and that this pod must yield to, and have to pass
both times (RunFilterPluginsWithNominatedPods in pkg/scheduler/framework/runtime).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from common.cluster.interning import EMPTY
from common.cluster.records import NodeName, NodeRecord, PodRecord
from common.fit import predicates
from common.fit.candidate import Candidate
from common.fit.index import FitIndex
from common.fit.index.arrays import Flags
from common.fit.predicates.base import Predicate
from common.fit.predicates.resources import RESOURCES
from common.fit.rejections import NONE, Rejections

if TYPE_CHECKING:
    from common.fit.world import World

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node, with pods that are taken to be there beside those that are."""

    row: int
    node: NodeRecord
    nominated: tuple[PodRecord, ...] = ()


class Question:
    """May this pod run there?"""

    def __init__(self, world: World, pod: Candidate, index: FitIndex) -> None:
        self.world = world
        self.pod = pod
        self.index = index
        self._prefiltered: dict[Callable[[Question], Any], Any] = {}  # Any: each predicate's own
        self._loads = -1
        self._guests: dict[NodeName, tuple[PodRecord, ...]] | None = None

    def prefilter(self, work: Callable[[Question], S]) -> S:
        """Return what a predicate finds out about the pod; worked out once."""
        if work not in self._prefiltered:
            self._prefiltered[work] = work(self)
        return cast(S, self._prefiltered[work])

    def seek(self) -> FitIndex:
        """Bring the index to this question's world; has to be done before nodes are judged."""
        self.index.seek(self.world.snapshot, self.world.changes)
        if self.index.loads != self._loads:
            # Rows and numbers of values may mean other things since.
            self._prefiltered.clear()
            self._loads = self.index.loads
        return self.index

    def namespace_labels(self) -> Mapping[str, str]:
        """Return the labels of the pod's namespace; an unknown one has none."""
        found = self.world.snapshot.namespaces.get(self.pod.namespace)
        return found.labels if found is not None else EMPTY

    def mask(self, *, room_aside: bool = False) -> Flags:
        """Return the rows of the nodes that can take the pod, or could if they had room."""
        index = self.seek()
        mask = index.facts.alive.copy()
        # Requests of nothing are not enough: a node may lack a place for one more pod.
        judged = [p for p in predicates.PREDICATES if not (room_aside and p is RESOURCES)]
        for predicate in judged:
            allowed = predicate.allow(self)
            if allowed is not None:
                mask &= allowed
        for name, nominated in self._nominated().items():
            row = index.facts.row_of.get(name)
            if row is not None and mask[row]:
                mask[row] = not self._rejections(row, nominated, judged, first=True)
        return mask

    def feasible(self) -> tuple[NodeName, ...]:
        """Return the nodes that can take the pod."""
        mask = self.mask()
        found = (self.index.facts.nodes[row] for row in np.flatnonzero(mask))
        return tuple(sorted(node.name for node in found if node is not None))

    def rejections(self, name: NodeName, *, first: bool = False) -> Rejections:
        """Return all reasons against a node, or as the scheduler does, the first plugin's."""
        row = self.seek().facts.row_of[name]
        nominated = self._nominated().get(name, ())
        judged = predicates.PREDICATES
        found = self._rejections(row, nominated, judged, first=first) if nominated else NONE
        return found or self._rejections(row, (), judged, first=first)

    def _rejections(
        self,
        row: int,
        nominated: tuple[PodRecord, ...],
        judged: Iterable[Predicate],
        *,
        first: bool,
    ) -> Rejections:
        node = self.index.facts.nodes[row]
        assert node is not None
        info = NodeInfo(row, node, nominated)
        found: Rejections = ()
        for predicate in judged:
            found += predicate.reject(self, info)
            if found and first:
                break
        return found

    def _nominated(self) -> dict[NodeName, tuple[PodRecord, ...]]:
        if self._guests is None:
            told = {
                name: self._yields_to(self.index.nominated(name)) for name in self.index.promised
            }
            self._guests = {name: pods for name, pods in told.items() if pods}
        return self._guests

    def _yields_to(self, waiting: Iterable[PodRecord]) -> tuple[PodRecord, ...]:
        mine = self.pod.shape
        return tuple(
            pod
            for pod in waiting
            if pod.shape.priority >= mine.priority
            and pod.uid != self.pod.uid
            and pod.shape.scheduler_name == mine.scheduler_name
        )
