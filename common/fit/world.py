# SPDX-License-Identifier: Apache-2.0
"""The cluster, or the cluster after some changes: a value to ask questions of.

world = FitIndex().world(snapshot)          # keep the index: it makes the next one cheap
world.feasible(pod)
world.after(Terminate(old.uid), Arrive(new, node)).feasible(other)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from common.cache.snapshot import Snapshot
from common.cluster.records import NodeName
from common.fit.candidate import Candidate
from common.fit.changes import Change
from common.fit.index import FitIndex
from common.fit.index.arrays import Flags
from common.fit.question import Question
from common.fit.rejections import Rejections


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """A snapshot with changes on top."""

    snapshot: Snapshot
    index: FitIndex
    changes: tuple[Change, ...] = ()

    def after(self, *changes: Change) -> World:
        """Return the world after these changes, in their order."""
        return replace(self, changes=(*self.changes, *changes))

    def ask(self, pod: Candidate) -> Question:
        """Return a question that can be put to many nodes."""
        return Question(self, pod, self.index)

    def feasible(self, pod: Candidate) -> tuple[NodeName, ...]:
        """Return the nodes that can take a pod, by name."""
        return self.ask(pod).feasible()

    def mask(self, pod: Candidate, *, room_aside: bool = False) -> Flags:
        """Return the rows of the nodes that can take a pod, or could if they had room."""
        return self.ask(pod).mask(room_aside=room_aside)

    def fits(self, pod: Candidate, node: NodeName) -> bool:
        """Tell whether a node can take a pod."""
        return not self.ask(pod).rejections(node, first=True)

    def rejections(self, pod: Candidate, node: NodeName) -> Rejections:
        """Return every reason why a node cannot take a pod; none when it can."""
        return self.ask(pod).rejections(node)
