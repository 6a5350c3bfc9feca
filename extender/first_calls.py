# SPDX-License-Identifier: Apache-2.0
"""Which pods kube-scheduler has sent before, and what they were answered.

Only the first call for a pod may get a shortlist. If the pod comes back, whatever rejected the
nodes of that list would reject them again. A pod is forgotten when it has a node or is deleted.
The number of pods is bounded; kube-scheduler marks a pod that it could not place with a
condition, which says the same about a pod that was forgotten, or that another extender saw.
"""

from __future__ import annotations

from typing import Final

from common.cluster.records import PodRecord, PodUid

MAX_PODS: Final = 20_000
_ALL_NODES: Final = -1


class FirstCalls:
    """Remembers pods that have no node yet."""

    def __init__(self) -> None:
        self._answers: dict[PodUid, int] = {}
        """The middle score of the list behind a shortlist; `_ALL_NODES` if there was none."""

    def __len__(self) -> int:
        return len(self._answers)

    def begin(self, uid: PodUid) -> bool:
        """Record a call, and return whether it is the first one for this pod.

        A pod without a UID cannot be told apart from others, so it never has a first call.
        """
        first = bool(uid) and self._answers.pop(uid, None) is None
        self._answers[uid] = _ALL_NODES
        if len(self._answers) > MAX_PODS:
            del self._answers[next(iter(self._answers))]
        return first

    def shortened(self, uid: PodUid, middle: int) -> None:
        """Record that the pod was answered with a shortlist of nodes around this score."""
        if uid in self._answers:
            self._answers[uid] = middle

    def middle(self, uid: PodUid) -> int | None:
        """Return the middle score of the list that was shortened last; None if it was not."""
        found = self._answers.get(uid, _ALL_NODES)
        return None if found == _ALL_NODES else found

    def on_pod(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """Process a pod event."""
        if old is not None and (new is None or new.uid != old.uid):
            self._answers.pop(old.uid, None)
        if new is not None and new.node:
            self._answers.pop(new.uid, None)
