# SPDX-License-Identifier: Apache-2.0
"""What a pod uses that was not measured yet.

Best first: what its predecessor really used, the median of its measured siblings, what it
asks for. Siblings are the pods of one controller, so a new ReplicaSet of a Deployment does
not lean on the old one, whose template may differ; pods that a node's kubelet owns (static
pods) have nothing in common and are not siblings.

An `Estimator` is based on one state of knowledge and is replaced when a sample arrives.
Until then the median of a workload is taken once, however many of its pods are new.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from common.cache.snapshot import NodeView, Snapshot
from common.cluster.records import ControllerId, PodRecord, PodUid
from common.config import Estimates, LoadSettings
from common.load.freshness import Freshness
from common.load.values import Basis, Load, PodLoad
from common.usage.history import PodHistory


class _Median(NamedTuple):
    load: PodLoad | None
    from_s: float
    until_s: float


class Estimator:
    """Estimates pods from what is known of others."""

    def __init__(
        self,
        settings: LoadSettings,
        history: Mapping[PodUid, PodHistory],
        predecessors: Mapping[PodUid, Load],
    ) -> None:
        self.history = history
        self.predecessors = predecessors
        self._settings = settings
        self._medians: dict[ControllerId, _Median] = {}

    def estimate(self, pod: PodRecord, snapshot: Snapshot, freshness: Freshness) -> PodLoad:
        """Return the best estimate that there is."""
        before = self.predecessors.get(pod.uid)
        if before is not None:
            found = PodLoad(before.cpu_milli, before.mem_bytes, Basis.PREDECESSOR)
        else:
            siblings = self._of_siblings(pod, snapshot, freshness)
            found = from_spec(pod, self._settings.estimates) if siblings is None else siblings
        return bounded(found, snapshot.nodes.get(pod.node))

    def _of_siblings(
        self, pod: PodRecord, snapshot: Snapshot, freshness: Freshness
    ) -> PodLoad | None:
        controller = pod.controller_id
        if controller is None or (pod.owner is not None and pod.owner.kind == "Node"):
            return None
        found = self._medians.get(controller)
        if found is None or not found.from_s <= freshness.now_s <= found.until_s:
            found = self._median(snapshot.by_owner[controller], freshness.now_s)
            self._medians[controller] = found
        freshness.narrow(found.from_s, found.until_s)
        return found.load

    def _median(self, siblings: Mapping[PodUid, PodRecord], now_s: float) -> _Median:
        freshness = Freshness(now_s, self._settings)
        pages = [page for uid in siblings if (page := self.history.get(uid)) is not None]
        measured = [page for page in pages if freshness.judge(page.end_s) is None]
        load = _middle(measured) if measured else None
        return _Median(load, freshness.from_s, freshness.until_s)


def bounded(load: PodLoad, view: NodeView | None) -> PodLoad:
    """Bound an estimate by what the pod's node has, as samples are: a request may be any number."""
    if view is None:
        return load
    cpu_milli, mem_bytes = view.node.allocatable.cpu_milli, view.node.allocatable.mem_bytes
    if load.cpu_milli <= cpu_milli and load.mem_bytes <= mem_bytes:
        return load
    return PodLoad(
        min(load.cpu_milli, float(cpu_milli)), min(load.mem_bytes, float(mem_bytes)), load.basis
    )


def from_spec(pod: PodRecord, given: Estimates) -> PodLoad:
    """Return what the pod's own requests and limits suggest, each resource on its own."""
    asked, allowed = pod.shape.requests, pod.shape.limits
    return PodLoad(
        _amount(given.cpu_of_request, asked.cpu_milli, allowed.cpu_milli, given.cpu_milli),
        _amount(given.memory_of_request, asked.mem_bytes, allowed.mem_bytes, given.mem_bytes),
        Basis.SPEC,
    )


def _amount(of_request: float, asked: int, allowed: int, default: int) -> float:
    return of_request * asked if asked else float(allowed or default)


def _middle(measured: list[PodHistory]) -> PodLoad:
    return PodLoad(
        median(page.cpu_milli for page in measured),
        median(page.mem_bytes for page in measured),
        Basis.SIBLINGS,
    )
