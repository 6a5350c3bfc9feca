# SPDX-License-Identifier: Apache-2.0
"""Shortlists: filter leaves only the nodes that are worth scoring.

kube-scheduler encodes and decodes every name of a list twice, and scores every node. With the
coolest 50 of a thousand it does a fraction of that, and takes the same node. Every rule
below names a case in which it might not; such a pod gets all nodes. So does a pod that comes
back, because something behind this filter may have rejected the whole shortlist.

A shortlist is never empty, and contains what must not be hidden: the nominated node, and nodes
whose load is unknown. Pods that a plan directs get none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np

from common.cache.state import ClusterState
from common.clock import Clock
from common.cluster.records import NodeRecord, PodRecord, PodUid
from common.config import ExtenderConfiguration
from common.metrics import Metrics
from extender import preferences
from extender.first_calls import FirstCalls
from extender.protocol import RequestPod
from extender.scoring import Board, Demand, Overlay, Size
from extender.scoring.board import Rows
from extender.scoring.name_index import at
from extender.siblings import Rejected, Siblings

_LEAST: Final = 50
_SHARE: Final = 0.05
_LONELY_SHARE: Final = 0.25
"""How many nodes without a sibling there are for each of the coolest."""
_MAX_TAINTS: Final = 64
"""More different sets of taints than this are not compared with tolerations."""
_GIVEN: Final = "given"


class Call(NamedTuple):
    """A filter call that might get a shortlist."""

    pod: RequestPod
    first: bool
    directed: bool
    """Whether a plan directs the pod, or plans are not known yet."""
    fresh: bool
    """Whether load may decide."""
    board: Board
    rows: Rows
    size: Size | None
    """How many nodes a shortlist would have; None if there shall be none."""
    terms: preferences.OthersTerms
    images: preferences.Images
    rejected: Rejected


def turned_off(call: Call) -> bool:
    return call.size is None


def few_nodes(call: Call) -> bool:
    return call.size is not None and len(call.rows) <= call.size.coolest


def load_unknown(call: Call) -> bool:
    return not call.fresh


def directed(call: Call) -> bool:
    return call.directed


def tried_before(call: Call) -> bool:
    return not call.first or call.pod.tried or call.pod.record.unschedulable


def sibling_rejected(call: Call) -> bool:
    """A kubelet has lately not admitted a pod of the same controller."""
    return call.rejected.concern(call.pod.record)


def own_preferences(call: Call) -> bool:
    return preferences.has_own(call.pod.record.shape)


def devices(call: Call) -> bool:
    """The DynamicResources plugin scores what it would allocate on each node."""
    return call.pod.record.shape.resource_claims > 0


def volume_claims(call: Call) -> bool:
    """The VolumeBinding plugin scores capacity where a volume would be bound or made.

    By default since Kubernetes 1.37; whether a claim is bound already is not read here.
    """
    shape = call.pod.record.shape
    return bool(shape.claims or shape.ephemeral_claims)


def pod_group(call: Call) -> bool:
    """A group is tried as a whole, on one placement after the other."""
    return bool(call.pod.record.shape.pod_group)


def soft_taints(call: Call) -> bool:
    column = call.board.soft_taints
    if len(column.values) == 1:
        return False
    found = np.flatnonzero(np.bincount(column.codes.take(call.rows))).tolist()
    if len(found) > _MAX_TAINTS:
        return True
    shape = call.pod.record.shape
    return any(preferences.avoids(shape, column.values[code]) for code in found)


def others_preferences(call: Call) -> bool:
    return call.terms.concern(call.pod.record)


def images(call: Call) -> bool:
    return call.images.matter(call.pod.record.shape)


ALL_NODES: Final[tuple[Callable[[Call], bool], ...]] = (
    turned_off,
    few_nodes,
    load_unknown,
    directed,
    tried_before,
    sibling_rejected,
    own_preferences,
    devices,
    volume_claims,
    pod_group,
    soft_taints,
    others_preferences,
    images,
)
"""Why a pod gets all nodes, by the name of the rule."""


class Shortlists:
    """Makes shortlists, and knows which pods got one."""

    def __init__(
        self, state: ClusterState, config: ExtenderConfiguration, metrics: Metrics, clock: Clock
    ) -> None:
        self._config = config
        self._calls = FirstCalls()
        self._terms = preferences.OthersTerms()
        self._images = preferences.Images()
        self._siblings = Siblings(state.pods)
        self._rejected = Rejected(clock)
        total = metrics.counter(
            "shortlists_total",
            "Filter answers with several nodes, by whether a shortlist was given or why not.",
            ("result",),
        )
        self._given = total.labels(_GIVEN)
        self._kept = {rule.__name__: total.labels(rule.__name__) for rule in ALL_NODES}
        self._take_in(state)

    def begin(self, pod: RequestPod, names: Sequence[str]) -> bool:
        """Record a filter call; return whether it is the pod's first one with several nodes."""
        return len(names) > 1 and self._calls.begin(pod.uid)

    def hides_nodes(self, pod: RequestPod) -> bool:
        """Return whether the filter answer of this attempt was a shortlist.

        A pod that was tried before comes with its condition. Its filter call may be missing,
        because kube-scheduler makes none if its own filters have rejected all nodes.
        """
        return not pod.tried and self._calls.middle(pod.uid) is not None

    def middle(self, uid: PodUid) -> int | None:
        """Return the score of unknown nodes on the pod's shortlist; None if it has none."""
        return self._calls.middle(uid)

    def shorten(
        self,
        pod: RequestPod,
        names: Sequence[str],
        demand: Callable[[], Demand],
        overlay: Overlay,
        *,
        first: bool,
        directed: bool,
        fresh: bool,
    ) -> Sequence[str]:
        """Return the nodes to answer with: a shortlist, or all of them.

        `demand` tells what the pod will use, and is only called for a shortlist.
        """
        call = Call(
            pod=pod,
            first=first,
            directed=directed,
            fresh=fresh,
            board=overlay.board,
            rows=overlay.rows(names),
            size=self._size(len(names)),
            terms=self._terms,
            images=self._images,
            rejected=self._rejected,
        )
        for rule in ALL_NODES:
            if rule(call):
                self._kept[rule.__name__].inc()
                return names
        return self._shortened(call, names, demand(), overlay)

    def _shortened(
        self, call: Call, names: Sequence[str], demand: Demand, overlay: Overlay
    ) -> Sequence[str]:
        if call.size is None:
            return names
        pod, board = call.pod, call.board
        found = overlay.shortlist(
            names,
            demand,
            call.size,
            siblings=self._siblings.of(pod.record, board.index),
            nominated=pod.nominated_node,
            turn=crc32(pod.uid.encode()),
        )
        if found.keep.all():
            self._kept[few_nodes.__name__].inc()
            return names
        self._calls.shortened(pod.uid, found.middle)
        self._given.inc()
        return at(names, np.flatnonzero(found.keep))

    def _size(self, nodes: int) -> Size | None:
        wanted = self._config.shortlist
        if wanted == "off":
            return None
        if not isinstance(wanted, int):
            wanted = max(_LEAST, math.ceil(nodes * _SHARE))
        return Size(wanted, math.ceil(wanted * _LONELY_SHARE))

    def _take_in(self, state: ClusterState) -> None:
        for name in state.nodes.records:
            self._images.on_node(None, state.nodes.records.get(name))
        for uid in state.pods.by_uid:
            self._on_pod(None, state.pods.by_uid.get(uid))
        state.nodes.listen(self._on_node)
        state.pods.listen(self._on_pod)

    def _on_node(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        self._images.on_node(old, new)

    def _on_pod(self, old: PodRecord | None, new: PodRecord | None) -> None:
        self._calls.on_pod(old, new)
        self._terms.on_pod(old, new)
        self._siblings.on_pod(old, new)
        self._rejected.on_pod(old, new)
