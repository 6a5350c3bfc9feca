# SPDX-License-Identifier: Apache-2.0
"""What pod events tell about the siblings of a pod, the other pods of its controller.

`Siblings` counts them by node. To count the pods of a large controller for every request would
take longer than the rest of the answer, so the counts of the controllers that were asked for
last are kept, as one array over the rows of the board; memory is bounded by their number. Pods
that terminate do not count, as in `countPodsMatchSelector` of
pkg/scheduler/framework/plugins/podtopologyspread/common.go.

`Rejected` knows the controllers of which a kubelet has lately rejected a pod. The controller
makes another pod, which kube-scheduler takes for a new one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from math import inf
from typing import Final

import numpy as np
import numpy.typing as npt

from common.cache.tables import PodTable
from common.clock import Clock
from common.cluster.records import ControllerId, PodRecord

Counts = npt.NDArray[np.intp]

MAX_CONTROLLERS: Final = 64
MAX_REJECTED: Final = 1_000
REMEMBER_S: Final = 600.0
"""How long after a rejection the pods of its controller get all nodes."""


class Siblings:
    """Counts pods by controller and node."""

    def __init__(self, pods: PodTable) -> None:
        self._pods = pods
        self._index: Mapping[str, int] = {}
        self._counts: OrderedDict[ControllerId, Counts] = OrderedDict()

    def of(self, pod: PodRecord, index: Mapping[str, int]) -> Counts | None:
        """Return how many siblings each row has, unknown nodes last; None if there are none.

        `index` has the row of each node; the counts of another index are dropped.
        """
        controller = pod.controller_id
        if controller is None:
            return None
        if index is not self._index:
            self._index = index
            self._counts.clear()
        counts = self._counts.get(controller)
        if counts is None:
            counts = self._add(controller)
        self._counts.move_to_end(controller)
        return counts if counts.any() else None

    def on_pod(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """Process a pod event."""
        if self._counts:
            for pod, change in ((old, -1), (new, +1)):
                if pod is not None and _counts(pod):
                    self._change(pod, change)

    def _add(self, controller: ControllerId) -> Counts:
        counts = np.zeros(len(self._index) + 1, np.intp)
        np.add.at(counts, self._rows(self._pods.by_owner.get(controller).values()), 1)
        self._counts[controller] = counts
        if len(self._counts) > MAX_CONTROLLERS:
            self._counts.popitem(last=False)
        return counts

    def _rows(self, pods: Iterable[PodRecord]) -> list[int]:
        found = (self._index.get(pod.node) for pod in pods if _counts(pod))
        return [row for row in found if row is not None]

    def _change(self, pod: PodRecord, change: int) -> None:
        controller = pod.controller_id
        counts = None if controller is None else self._counts.get(controller)
        row = self._index.get(pod.node)
        if counts is not None and row is not None:
            counts[row] += change


def _counts(pod: PodRecord) -> bool:
    return bool(pod.node) and not pod.finished and not pod.terminating


class Rejected:
    """The controllers of which a pod was lately not admitted by its kubelet.

    Finished pods are not read, so a rejected pod is one that leaves the watch although it is
    not being deleted, before its kubelet has reported a container (`rejectPod` in
    pkg/kubelet/kubelet.go reports none). A pod that is deleted by force at that moment looks
    the same; then some pods get all nodes that would not need them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: dict[ControllerId, float] = {}  # oldest first

    def concern(self, pod: PodRecord) -> bool:
        """Return whether a sibling of this pod was rejected lately."""
        controller = pod.controller_id
        if controller is None or not self._until_s:
            return False
        return self._clock.monotonic() < self._until_s.get(controller, -inf)

    def on_pod(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """Process a pod event."""
        if new is not None or old is None or not _is_new(old):
            return
        controller = old.controller_id
        if controller is not None:
            self._until_s.pop(controller, None)
            self._until_s[controller] = self._clock.monotonic() + REMEMBER_S
            if len(self._until_s) > MAX_REJECTED:
                del self._until_s[next(iter(self._until_s))]


def _is_new(pod: PodRecord) -> bool:
    """Return whether a pod is on a node whose kubelet has said nothing about it."""
    waits = pod.phase == "Pending" and pod.running_containers is None
    return bool(pod.node) and waits and not pod.terminating
