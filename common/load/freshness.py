# SPDX-License-Identifier: Apache-2.0
"""Which samples may be believed, and until when.

Three questions are asked of a sample. Is it possible at all (`Limits`, `why_no_pods`)? Can it
have seen the pod (`covers`, `began_before`)? Is it still fresh (`Freshness`)? The last answer
changes as time goes by although nothing happens, so `Freshness` also remembers how long its
answers hold; what was computed from them can be kept until then.
"""

from __future__ import annotations

import sys
from math import inf, nextafter
from typing import Final

from common.api.contract import Unknown
from common.cache.snapshot import Snapshot
from common.cluster.records import NodeRecord, PodRecord
from common.config import LoadSettings
from common.usage.source import Sample, Usage

ABSURD_MULTIPLE: Final = 4.0
"""A sample above this multiple of allocatable is no measurement.

A node may use more than its allocatable, because that leaves out what is reserved for the
system: a GKE e2-small offers 940m of its two cores. Counters that wrapped and units that
were mixed up are off by far more.
"""

_LARGEST: Final = sys.float_info.max

STAMP_PRECISION_S: Final = 1.0
"""The API server cuts times to whole seconds, so a pod may be scheduled this much later."""


class Limits:
    """What a sample of a node, or of a pod on it, can possibly say."""

    __slots__ = ("cpu_milli", "latest_s", "mem_bytes")

    def __init__(self, node: NodeRecord, latest_s: float) -> None:
        self.cpu_milli = ABSURD_MULTIPLE * node.allocatable.cpu_milli or _LARGEST
        self.mem_bytes = ABSURD_MULTIPLE * node.allocatable.mem_bytes or _LARGEST
        self.latest_s = latest_s

    def refuse(self, usage: Usage) -> Unknown | None:
        """Return why this cannot be a measurement; for NaN no comparison holds."""
        if (
            0.0 <= usage.cpu_milli <= self.cpu_milli
            and 0.0 <= usage.mem_bytes <= self.mem_bytes
            and 0.0 <= usage.window_s < usage.end_s < inf
        ):
            return None if usage.end_s <= self.latest_s else Unknown.FUTURE_SAMPLE
        return Unknown.ABSURD_SAMPLE


STARTING_S: Final = 300.0
"""How long after its scheduling a pod may take to start and still be expected to.

Longer than most image pulls. A pod whose volume cannot be mounted waits for ever, and would
be counted for ever on a node that it never uses.
"""

_STARTING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of containers that wait for their first start, in whatever state the kubelet says.

Every other reason (CrashLoopBackOff, ImagePullBackOff, CreateContainerConfigError, Error) means
that a start was tried and failed.
"""


def began_s(pod: PodRecord) -> float:
    """Return when a pod began to use its node; infinity if it has not, or that is not known.

    A pod whose kubelet has not yet said anything about it has no time of scheduling, and
    no sample can know it.
    """
    if pod.scheduled_s is None or pod.is_running_nothing:
        return inf
    started_s = pod.started_s
    # A container that crashes and restarts is not new: its request would be added each time.
    first = started_s is not None and started_s - pod.scheduled_s <= STARTING_S
    return started_s if first and started_s is not None else pod.scheduled_s


def began_before(pod: PodRecord, moment_s: float) -> bool:
    """Tell whether a pod used its node from that moment on."""
    return began_s(pod) + STAMP_PRECISION_S <= moment_s


def covers(usage: Usage, pod: PodRecord) -> bool:
    """Tell whether the pod was there during the whole window.

    Its scheduling counts, not the start of its containers: one that restarts is the same pod.
    """
    since_s = pod.scheduled_s
    return since_s is not None and usage.end_s - usage.window_s >= since_s + STAMP_PRECISION_S


def uses_nothing(pod: PodRecord, now_s: float) -> bool:
    """Tell whether a pod uses nothing now and is not about to."""
    return now_s > uses_until_s(pod)


def uses_until_s(pod: PodRecord) -> float:
    """Return until when a pod counts as using its node if its kubelet says nothing new."""
    if pod.finished:
        return -inf
    if not pod.node:
        return inf  # it has no node yet, and will use the one that it gets
    if pod.running_containers is None and pod.phase != "Pending":
        return inf
    if pod.running_containers:
        return inf
    if any(each.reason not in _STARTING for each in pod.stalled):
        return -inf
    return pod.placed_s + STARTING_S


def why_no_nodes(sample: Sample, snapshot: Snapshot) -> str | None:
    """Say that a round without a single node cannot be true; None where it can.

    A metrics-server that has just started answers so, and a Prometheus that scrapes nothing.
    """
    ready = sum(view.node.ready for view in snapshot.nodes.values())
    return None if sample.nodes or not ready else f"no sample of any of {ready} Ready nodes"


def why_no_pods(sample: Sample, snapshot: Snapshot, now_s: float) -> str | None:
    """Say why a round without a single pod cannot be true; None where it can.

    A pod is measured two windows after it began at the latest. A source that names nodes and
    no pods has lost them: nothing can be said about what could be moved.
    """
    if sample.pods or not sample.nodes:
        return None
    latest_s = now_s - 2 * max(usage.window_s for usage in sample.nodes.values())
    pods = (pod for pod in snapshot.pods.values() if pod.node in sample.nodes)
    missed = sum(began_before(pod, latest_s) and not uses_nothing(pod, now_s) for pod in pods)
    if not missed:
        return None
    words = f"no sample of any pod, although {missed} run for longer than two windows"
    return f"{words}: {sample.no_pods}" if sample.no_pods else words


class Freshness:
    """Judges samples by their age at one moment, and knows when it would judge otherwise."""

    __slots__ = ("_expiry_s", "_skew_s", "from_s", "newest_s", "now_s", "oldest_s", "until_s")

    def __init__(self, now_s: float, settings: LoadSettings) -> None:
        self._expiry_s = settings.metric_expiry.seconds
        self._skew_s = settings.clock_skew.seconds
        self.now_s = now_s
        self.oldest_s = now_s - self._expiry_s
        self.newest_s = now_s + self._skew_s
        self.from_s = -inf
        self.until_s = inf

    def judge(self, end_s: float) -> Unknown | None:
        """Return why a sample that ends then is not used now."""
        if end_s < self.oldest_s:
            self.narrow(nextafter(end_s + self._expiry_s, inf), inf)
            return Unknown.STALE_SAMPLE
        if end_s > self.newest_s:
            self.narrow(-inf, nextafter(end_s - self._skew_s, -inf))
            return Unknown.FUTURE_SAMPLE
        self.used(end_s, end_s)
        return None

    def used(self, earliest_end_s: float, latest_end_s: float) -> None:
        """Note that samples were used which end between these two moments."""
        self.narrow(latest_end_s - self._skew_s, earliest_end_s + self._expiry_s)

    def narrow(self, from_s: float, until_s: float) -> None:
        """Note that an answer holds only between these moments."""
        if from_s > self.from_s:
            self.from_s = from_s
        if until_s < self.until_s:
            self.until_s = until_s
