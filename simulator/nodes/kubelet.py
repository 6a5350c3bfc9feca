# SPDX-License-Identifier: Apache-2.0
"""One kubelet: the pods it runs, and since when.

Times are simulated seconds since the start of the cluster, so that load and windows can be
computed from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from common.cluster.records import PodRecord, PodUid
from simulator.nodes.load import PodLoad
from simulator.time_scale import Timer


@dataclass(slots=True, eq=False)
class RunningPod:
    """A pod that a kubelet has admitted."""

    record: PodRecord
    load: PodLoad
    containers: tuple[str, ...]
    started_s: float | None = None
    """When its containers began to use anything."""
    ended_s: float | None = None
    next_step: Timer | None = None
    stop_at_s: float | None = None
    """When a terminating pod stops at the latest."""

    def reschedule(self, step: Timer | None) -> None:
        """Replace the pending timer of the pod."""
        if self.next_step is not None:
            self.next_step.cancel()
        self.next_step = step


@dataclass(slots=True, eq=False)
class Kubelet:
    """The agent of one node."""

    node: str
    address: str
    overhead: PodLoad
    alive: bool = field(default=True, init=False)
    ready: bool = field(default=True, init=False)
    refusing: bool = field(default=False, init=False)
    """Rejects every pod that is assigned to it."""
    silent_since_s: float = field(default=0.0, init=False)
    pods: dict[PodUid, RunningPod] = field(default_factory=dict, init=False)
    rejected: set[PodUid] = field(default_factory=set, init=False)
    left: list[RunningPod] = field(default_factory=list, init=False)
    """Pods that ended since the node was last measured: they are in its counters."""

    def drop(self, uid: PodUid, now_s: float) -> None:
        """Remove a pod that is gone; its usage still counts in the current window."""
        self.rejected.discard(uid)
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        pod.reschedule(None)
        if pod.started_s is not None:
            pod.ended_s = now_s
            self.left.append(pod)
