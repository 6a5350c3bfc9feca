# SPDX-License-Identifier: Apache-2.0
"""What we believe about all nodes and pods at one moment.

A node's load is its newest sample, corrected by named pods and by nothing else: those that
the sample's window cannot contain yet are added, those that have gone since are taken off.
Samples of pods tell how much of it could be moved; what they do not explain cannot.

A view never changes: planning on it in a thread sees one consistent belief while the tracker
goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import fsum, inf
from typing import Final

import msgspec
import numpy as np

from common.api.contract import Unknown
from common.cache.snapshot import NodeView, Snapshot
from common.cluster.records import NodeName, PodRecord, PodUid
from common.config import LoadSettings
from common.load.aggregation import Past, Present, Shares
from common.load.estimates import Estimator, bounded
from common.load.freshness import Freshness, uses_until_s
from common.load.node_tracker import NodeTracker
from common.load.sample_changes import PodLoads, changes_since, leaves
from common.load.values import Basis, Change, FurtherLoad, Load, NodeLoad, PodLoad
from common.usage.source import FurtherSample

_NOTHING: Final = PodLoad(0.0, 0.0, Basis.NOTHING)
_NO_LOAD: Final = Load(0.0, 0.0)

HELD_S: Final = 15.0
"""How long a view is kept where nothing changes: samples of pods expire meanwhile, one by one."""


class Judgement(msgspec.Struct, frozen=True):
    """A node's load, and how long and on what it rests."""

    load: NodeLoad
    view: NodeView
    estimator: Estimator | None
    """What the estimates in it rest on; None if there are none."""
    from_s: float = -inf
    until_s: float = inf
    shares: Shares | None = None
    """What of the load, over the window of ceilings, is due to which pod; None without one."""

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
        "_further",
        "_shares",
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
        further: tuple[FurtherSample, ...] = (),
    ) -> None:
        self._snapshot = snapshot
        self._estimator = estimator
        self._from_requests = from_requests
        self._further = further
        self._from_s = max((found.from_s for found in judgements.values()), default=-inf)
        until_s = min((found.until_s for found in judgements.values()), default=inf)
        self._until_s = min(until_s, now_s + HELD_S)
        self._freshness = Freshness(now_s, settings)
        shares = ((n, j.shares) for n, j in judgements.items())
        self._shares = {name: each for name, each in shares if each is not None}
        self.nodes: Mapping[NodeName, NodeLoad] = {n: j.load for n, j in judgements.items()}
        if further:
            self.nodes = {name: self._with_leaving(load) for name, load in self.nodes.items()}
        self.unknown = sum(load.why is not None for load in self.nodes.values())

    def holds(self, snapshot: Snapshot, estimator: Estimator, now_s: float) -> bool:
        """Tell whether the same would be believed of this snapshot at that time."""
        return (
            self._snapshot is snapshot
            and self._estimator is estimator
            and self._from_s <= now_s <= self._until_s
        )

    @property
    def resting(self) -> bool:
        """Tell whether so little is known that nothing should be moved for load."""
        return 3 * self.unknown > len(self.nodes)

    def pod_load(self, uid: PodUid) -> PodLoad:
        """Return the load of a pod of the snapshot; raise KeyError for any other."""
        return self.load_of(self._snapshot.pods[uid])

    def load_of(self, pod: PodRecord) -> PodLoad:
        """Return the load of a pod, which need not be in the snapshot."""
        if self._from_requests:
            view = self._snapshot.nodes.get(pod.node)
            return _NOTHING if pod.finished else bounded(_requested(pod), view)
        found = pod_load(pod, self._snapshot, self._estimator, self._freshness)
        shares = self._shares.get(pod.node)
        share = shares.of(pod.uid) if shares is not None else None
        if share is not None and found.basis is Basis.MEASURED:
            found = PodLoad(share.cpu_milli, share.mem_bytes, found.basis)
        if not self._further:
            return found
        return msgspec.structs.replace(found, further=self._further_of(pod.key))

    def _further_of(self, key: str) -> tuple[float, ...]:
        return tuple([each.pods.get(key, 0.0) for each in self._further])

    def _with_leaving(self, load: NodeLoad) -> NodeLoad:
        """Return the load of a node with what its terminating pods use of further resources."""
        leaving = [each.pod for each in load.differences if each.change is Change.LEAVING]
        if not leaving or not load.further:
            return load
        sums = np.sum([self._further_of(key) for key in leaving], axis=0).tolist()
        pairs = zip(load.further, sums, strict=True)
        further = tuple(FurtherLoad(each.used, each.offered, amount) for each, amount in pairs)
        return msgspec.structs.replace(load, further=further)


def pod_load(
    pod: PodRecord, snapshot: Snapshot, estimator: Estimator, freshness: Freshness
) -> PodLoad:
    """Return a pod's smoothed sample, or an estimate while no fresh one knows it."""
    until_s = uses_until_s(pod)
    if freshness.now_s > until_s:
        return _NOTHING
    page = estimator.history.get(pod.uid)
    if page is not None and freshness.judge(page.end_s) is None:
        return PodLoad(page.cpu_milli, page.mem_bytes, Basis.MEASURED)
    freshness.narrow(-inf, until_s)
    return estimator.estimate(pod, snapshot, freshness)


def judge_measured(
    view: NodeView,
    tracker: NodeTracker | None,
    snapshot: Snapshot,
    estimator: Estimator,
    freshness: Freshness,
    past: Past | None = None,
) -> Judgement:
    """Return what we believe about a node of a cluster that is measured."""

    def load_of(pod: PodRecord) -> PodLoad:
        return pod_load(pod, snapshot, estimator, freshness)

    shares = None
    why = _no_room(view) or _unmeasured(tracker, freshness)
    if tracker is None or tracker.usage is None:
        load = _guessed(view, load_of, why)
    else:
        found = changes_since(
            tracker.usage, view, tracker, PodLoads(load_of, estimator.history, freshness)
        )
        load = NodeLoad(
            name=view.node.name,
            cpu_milli=found.now.cpu_milli,
            mem_bytes=found.now.mem_bytes,
            offered=_offered(view),
            leaving=found.leaving,
            overhead=tracker.overhead.value or _NO_LOAD,
            why=why,
            sample_end_s=tracker.usage.end_s,
            differences=found.differences,
            pressure=tracker.pressure,
            further=tracker.further,
        )
        if past is not None:
            load, shares = _aggregated(load, view, past, estimator, freshness.now_s)
    estimated = tracker is None or tracker.usage is None or load.estimated_pods
    basis = estimator if estimated else None
    return Judgement(load, view, basis, freshness.from_s, freshness.until_s, shares)


def _aggregated(
    load: NodeLoad, view: NodeView, past: Past, estimator: Estimator, now_s: float
) -> tuple[NodeLoad, Shares | None]:
    """Return a node's load with its figures over a while, and which pods they are due to."""
    new = [each for each in load.arriving if each.uid not in estimator.history]
    leaving = {each.uid for each in load.differences if each.change is Change.LEAVING}
    base = Load(
        load.cpu_milli - fsum(each.cpu_milli for each in new),
        load.mem_bytes - fsum(each.mem_bytes for each in new),
    )
    found = past.shifts(view.node.uid, Present(view.pods, base, load.leaving, leaving), now_s)
    if found is None:
        return load, None
    shifts = {"ceilings_shift": found.ceilings, "targets_shift": found.targets}
    return msgspec.structs.replace(load, **shifts), found.shares


def _guessed(
    view: NodeView, load_of: Callable[[PodRecord], PodLoad], why: Unknown | None
) -> NodeLoad:
    """Return what a node may use that was never measured: what its pods do together."""
    loads = [load_of(pod) for pod in view.pods.values()]
    return NodeLoad(
        name=view.node.name,
        cpu_milli=fsum(load.cpu_milli for load in loads),
        mem_bytes=fsum(load.mem_bytes for load in loads),
        offered=_offered(view),
        why=why,
    )


def judge_requested(view: NodeView, freshness: Freshness) -> Judgement:
    """Return a node's load in a cluster where load is what pods ask for."""
    now = _asked(view)
    gone = (pod for pod in view.pods.values() if leaves(pod, freshness))
    leaving = [bounded(_requested(pod), view) for pod in gone]
    load = NodeLoad(
        name=view.node.name,
        cpu_milli=now.cpu_milli,
        mem_bytes=now.mem_bytes,
        offered=_offered(view),
        leaving=Load(
            min(now.cpu_milli, fsum(each.cpu_milli for each in leaving)),
            min(now.mem_bytes, fsum(each.mem_bytes for each in leaving)),
        ),
        why=_no_room(view),
    )
    return Judgement(load, view, None, freshness.from_s, freshness.until_s)


def requested_load(view: NodeView, now_s: float, settings: LoadSettings) -> NodeLoad:
    """Return what the pods of a node ask for together, where its load is not known."""
    return judge_requested(view, Freshness(now_s, settings)).load


def _asked(view: NodeView) -> Load:
    """Return what pods ask for together, each for no more than the node has."""
    asked, offered = view.requested, view.node.allocatable
    if asked.cpu_milli <= offered.cpu_milli and asked.mem_bytes <= offered.mem_bytes:
        return Load(float(asked.cpu_milli), float(asked.mem_bytes))
    loads = [bounded(_requested(pod), view) for pod in view.pods.values() if not pod.finished]
    return Load(fsum(each.cpu_milli for each in loads), fsum(each.mem_bytes for each in loads))


def _requested(pod: PodRecord) -> PodLoad:
    return PodLoad(float(pod.requests.cpu_milli), float(pod.requests.mem_bytes), Basis.REQUESTS)


def _offered(view: NodeView) -> Load:
    offered = view.node.allocatable
    return Load(float(offered.cpu_milli), float(offered.mem_bytes))


def _no_room(view: NodeView) -> Unknown | None:
    offered = view.node.allocatable
    named = offered.cpu_milli > 0 and offered.mem_bytes > 0
    return None if named else Unknown.NO_ALLOCATABLE


def _unmeasured(tracker: NodeTracker | None, freshness: Freshness) -> Unknown | None:
    if tracker is not None and tracker.refused is not None:
        return tracker.refused
    if tracker is None or tracker.usage is None:
        return Unknown.NO_SAMPLE
    return freshness.judge(tracker.usage.end_s)
