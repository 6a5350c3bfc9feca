"""What we believe about all nodes and pods at one moment.

A node's load is its overhead plus the loads of the pods that are on it now, each either
its smoothed measurement or an estimate. A view never changes: whoever plans on it in a
thread sees one consistent belief while the book goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, nan

import msgspec

from common.cluster.records import NodeName, PodRecord, PodUid
from common.cluster.snapshot import NodeView, Snapshot
from common.contract import Unknown
from common.load.estimates import Estimator
from common.load.judging import Freshness
from common.load.overhead import NO_OVERHEAD
from common.load.settings import LoadSettings
from common.load.track import NodeTrack
from common.load.values import Basis, Load, NodeLoad, PodLoad

_FINISHED = PodLoad(0.0, 0.0, Basis.ENDED)


class Judgement(msgspec.Struct, frozen=True):
    """A node's load, and how long and on what it rests."""

    load: NodeLoad
    view: NodeView
    estimator: Estimator | None
    """What the estimates in it rest on; None if there are none."""
    from_s: float = -inf
    until_s: float = inf

    def holds(self, view: NodeView, estimator: Estimator, now_s: float) -> bool:
        return (
            self.view is view
            and (self.estimator is None or self.estimator is estimator)
            and self.from_s <= now_s <= self.until_s
        )


class LoadView:
    """The belief: every node's load, and any pod's when asked for."""

    __slots__ = (
        "_estimator",
        "_freshness",
        "_from_requests",
        "_from_s",
        "_snapshot",
        "_until_s",
        "nodes",
        "unknown",
    )

    def __init__(
        self,
        snapshot: Snapshot,
        estimator: Estimator,
        judgements: Mapping[NodeName, Judgement],
        *,
        now_s: float,
        settings: LoadSettings,
        from_requests: bool,
    ) -> None:
        self._snapshot = snapshot
        self._estimator = estimator
        self._from_requests = from_requests
        self._from_s = max((found.from_s for found in judgements.values()), default=-inf)
        self._until_s = min((found.until_s for found in judgements.values()), default=inf)
        self._freshness = Freshness(now_s, settings)
        self.nodes: Mapping[NodeName, NodeLoad] = {n: j.load for n, j in judgements.items()}
        self.unknown = sum(load.why is not None for load in self.nodes.values())

    def holds(self, snapshot: Snapshot, estimator: Estimator, now_s: float) -> bool:
        """Tell whether the same would be believed of this snapshot at that time."""
        return (
            self._snapshot is snapshot
            and self._estimator is estimator
            and self._from_s <= now_s <= self._until_s
        )

    @property
    def unknown_share(self) -> float:
        """How many of all nodes are unknown, from 0 to 1."""
        return self.unknown / len(self.nodes) if self.nodes else 0.0

    @property
    def resting(self) -> bool:
        """Tell whether so little is known that nothing should be moved for load."""
        return 3 * self.unknown > len(self.nodes)

    def pod_load(self, uid: PodUid) -> PodLoad:
        """Return the load of a pod of the snapshot; raise KeyError for any other."""
        return self.load_of(self._snapshot.pods[uid])

    def load_of(self, pod: PodRecord) -> PodLoad:
        """Return the load of a pod, which need not be in the snapshot."""
        if pod.finished:
            return _FINISHED
        if self._from_requests:
            return _requested(pod)
        return pod_load(pod, self._snapshot, self._estimator, self._freshness)

    def pod_peak(self, uid: PodUid) -> Load | None:
        """Return the decayed peak of a pod; None if it was never measured."""
        page = self._estimator.history.get(uid)
        return None if page is None else Load(page.cpu_peak_milli, page.mem_peak_bytes)


def pod_load(
    pod: PodRecord, snapshot: Snapshot, estimator: Estimator, freshness: Freshness
) -> PodLoad:
    """Return a pod's smoothed measurement, or an estimate while no fresh one knows it."""
    page = estimator.history.get(pod.uid)
    if page is not None and freshness.judge(page.end_s) is None:
        return PodLoad(page.cpu_milli, page.mem_bytes, Basis.MEASURED)
    return estimator.estimate(pod, snapshot, freshness)


def judge_measured(
    view: NodeView,
    track: NodeTrack | None,
    snapshot: Snapshot,
    estimator: Estimator,
    freshness: Freshness,
) -> Judgement:
    """Return what we believe about a node of a cluster that is measured."""
    overhead = NO_OVERHEAD if track is None else track.overhead.value
    pods, estimated = _sum(view.pods, snapshot, estimator, freshness)
    cpu_milli = overhead.cpu_milli + pods.cpu_milli
    mem_bytes = overhead.mem_bytes + pods.mem_bytes
    load = NodeLoad(
        name=view.node.name,
        cpu_milli=cpu_milli,
        mem_bytes=mem_bytes,
        overhead_cpu_milli=overhead.cpu_milli,
        overhead_mem_bytes=overhead.mem_bytes,
        cpu_percent=_percent(cpu_milli, view.node.allocatable.cpu_milli),
        mem_percent=_percent(mem_bytes, view.node.allocatable.mem_bytes),
        why=_no_room(view) or _unmeasured(track, freshness),
        sample_end_s=None if track is None else track.end_s,
        estimated_pods=estimated,
    )
    basis = estimator if estimated else None
    return Judgement(load, view, basis, freshness.from_s, freshness.until_s)


def _sum(
    pods: Mapping[PodUid, PodRecord],
    snapshot: Snapshot,
    estimator: Estimator,
    freshness: Freshness,
) -> tuple[Load, int]:
    """Add up what `pod_load` says of each, and count the estimates among them."""
    history, oldest_s, newest_s = estimator.history, freshness.oldest_s, freshness.newest_s
    cpu_milli = mem_bytes = 0.0
    earliest_s, latest_s, estimated = inf, -inf, 0
    for uid, pod in pods.items():
        page = history.get(uid)
        if page is None or not oldest_s <= page.end_s <= newest_s:
            guess = pod_load(pod, snapshot, estimator, freshness)
            cpu_milli += guess.cpu_milli
            mem_bytes += guess.mem_bytes
            estimated += 1
            continue
        cpu_milli += page.cpu_milli
        mem_bytes += page.mem_bytes
        if page.end_s < earliest_s:
            earliest_s = page.end_s
        if page.end_s > latest_s:
            latest_s = page.end_s
    freshness.used(earliest_s, latest_s)
    return Load(cpu_milli, mem_bytes), estimated


def judge_requested(view: NodeView) -> Judgement:
    """Return a node's load in a cluster where load is what pods ask for."""
    cpu_milli, mem_bytes = view.requested.cpu_milli, view.requested.mem_bytes
    load = NodeLoad(
        name=view.node.name,
        cpu_milli=float(cpu_milli),
        mem_bytes=float(mem_bytes),
        overhead_cpu_milli=0.0,
        overhead_mem_bytes=0.0,
        cpu_percent=_percent(cpu_milli, view.node.allocatable.cpu_milli),
        mem_percent=_percent(mem_bytes, view.node.allocatable.mem_bytes),
        why=_no_room(view),
        sample_end_s=None,
        estimated_pods=0,
    )
    return Judgement(load, view, None)


def _requested(pod: PodRecord) -> PodLoad:
    return PodLoad(float(pod.requests.cpu_milli), float(pod.requests.mem_bytes), Basis.REQUESTS)


def _no_room(view: NodeView) -> Unknown | None:
    offered = view.node.allocatable
    named = offered.cpu_milli > 0 and offered.mem_bytes > 0
    return None if named else Unknown.NO_ALLOCATABLE


def _unmeasured(track: NodeTrack | None, freshness: Freshness) -> Unknown | None:
    if track is not None and track.refused is not None:
        return track.refused
    if track is None or track.end_s is None:
        return Unknown.NO_SAMPLE
    return freshness.judge(track.end_s)


def _percent(amount: float, allocatable: int) -> float:
    return 100.0 * amount / allocatable if allocatable > 0 else nan
