"""One kubelet: the pods it runs, and since when.

Times are simulated seconds since the start of the cluster, so that load and windows can be
computed from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from common.cluster.records import PodRecord, PodUid
from simulator.nodes.load import PodLoad
from simulator.pace import Appointment


@dataclass(slots=True, eq=False)
class RunningPod:
    """A pod that a kubelet has taken."""

    record: PodRecord
    load: PodLoad
    containers: tuple[str, ...]
    started_s: float | None = None
    """When its containers began to use anything."""
    ended_s: float | None = None
    next_step: Appointment | None = None
    stop_at_s: float | None = None
    """When it ends at the latest, once it was told to."""

    def reschedule(self, step: Appointment | None) -> None:
        """Replace what would happen to it next."""
        if self.next_step is not None:
            self.next_step.cancel()
        self.next_step = step


@dataclass(slots=True, eq=False)
class Kubelet:
    """The agent of one node."""

    node: str
    address: str
    overhead: PodLoad
    alive: bool = True
    ready: bool = True
    refusing: bool = False
    """Rejects every pod that is assigned to it."""
    silent_since_s: float = 0.0
    pods: dict[PodUid, RunningPod] = field(default_factory=dict)
    rejected: set[PodUid] = field(default_factory=set)
    left: list[RunningPod] = field(default_factory=list)
    """Pods that ended since the node was last measured: they are in its counters."""

    def drop(self, uid: PodUid, now_s: float) -> None:
        """Forget a pod that is gone; what it used still counts."""
        self.rejected.discard(uid)
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        pod.reschedule(None)
        if pod.started_s is not None:
            pod.ended_s = now_s
            self.left.append(pod)
