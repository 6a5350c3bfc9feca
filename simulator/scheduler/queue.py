# SPDX-License-Identifier: Apache-2.0
"""The queue of pods that wait for a node.

Three sub-queues, as in pkg/scheduler/backend/queue of v1.36: *active* pods are tried by priority
and waiting time; *backoff* pods have failed lately; *unschedulable* pods wait for an event that
may help them, or for five minutes. An idle scheduler does not wait for a backoff to end, unless
an error was the cause. Pure: times are passed in, in simulated seconds.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from common.cluster.records import PodUid
from simulator.scheduler.cluster_events import ClusterEvent, may_help

MAX_UNSCHEDULABLE_S: Final = 300.0

Clock = Callable[[], float]


class SubQueue(Enum):
    """The sub-queue of a pending pod."""

    ACTIVE = auto()
    BACKOFF = auto()
    UNSCHEDULABLE = auto()
    IN_FLIGHT = auto()
    """Being scheduled now."""


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod that waits for a node."""

    key: str
    uid: PodUid
    priority: int
    since_s: float
    sub_queue: SubQueue = field(default=SubQueue.ACTIVE, init=False)
    attempts: int = field(default=0, init=False)
    plugins: frozenset[str] = field(default=frozenset(), init=False)
    """The plugins that rejected it last."""
    error: bool = field(default=False, init=False)
    until_s: float = field(default=0.0, init=False)
    events: list[ClusterEvent] = field(default_factory=list, init=False)
    """Events while it was being scheduled."""


class SchedulingQueue:
    """All pending pods of this scheduler."""

    def __init__(
        self, now_s: Clock, *, initial_backoff_s: float = 1.0, max_backoff_s: float = 10.0
    ) -> None:
        self._now_s = now_s
        self._initial_s = initial_backoff_s
        self._max_s = max_backoff_s
        self._pods: dict[PodUid, QueuedPod] = {}
        self._active: list[tuple[int, float, int, QueuedPod]] = []
        self._backoff: list[tuple[float, int, QueuedPod]] = []
        self._order = itertools.count()
        # Every bound pod causes an event: only these few pods are checked then.
        self._unschedulable: dict[PodUid, QueuedPod] = {}
        self._in_flight: dict[PodUid, QueuedPod] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: PodUid) -> bool:
        return uid in self._pods

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(tuple(self._pods.values()))

    def add(self, key: str, uid: PodUid, priority: int) -> None:
        """Add a pod; a known one stays where it is."""
        if uid not in self._pods:
            pod = self._pods[uid] = QueuedPod(key, uid, priority, self._now_s())
            self._activate(pod)

    def remove(self, uid: PodUid) -> None:
        """Remove a pod that is bound or gone."""
        self._pods.pop(uid, None)
        self._unschedulable.pop(uid, None)
        self._in_flight.pop(uid, None)

    def pop(self) -> QueuedPod | None:
        """Return the next pod to schedule, if any."""
        self._recall()
        pod = self._next_active() or self._next_backing_off()
        if pod is not None:
            self._move_to(pod, SubQueue.IN_FLIGHT)
            pod.attempts += 1
            pod.events.clear()
        return pod

    def failed(self, pod: QueuedPod, plugins: frozenset[str], *, error: bool = False) -> None:
        """Return a pod to the queue that these plugins rejected, or after an error."""
        if pod.uid not in self._pods:
            return
        pod.plugins, pod.error = plugins, error
        pod.since_s = self._now_s()
        pod.until_s = pod.since_s + self._backoff_s(pod.attempts)
        helped = any(may_help(event, plugins) for event in pod.events)
        if error or helped:
            self._back_off(pod)
        else:
            self._move_to(pod, SubQueue.UNSCHEDULABLE)

    def update(self, uid: PodUid) -> None:
        """Retry a pod because it has changed."""
        pod = self._pods.get(uid)
        if pod is not None and pod.sub_queue is SubQueue.UNSCHEDULABLE:
            self._wake(pod)

    def on_event(self, event: ClusterEvent) -> bool:
        """Move the unschedulable pods that an event may help; return whether there was one."""
        for pod in self._in_flight.values():
            pod.events.append(event)
        woken = [pod for pod in self._unschedulable.values() if may_help(event, pod.plugins)]
        for pod in woken:
            self._wake(pod)
        return bool(woken)

    def next_due_s(self) -> float | None:
        """Return the time of the next backoff or timeout."""
        moments = [entry[0] for entry in self._backoff[:1]]
        moments += [pod.since_s + MAX_UNSCHEDULABLE_S for pod in self._unschedulable.values()]
        return min(moments, default=None)

    def _recall(self) -> None:
        """Activate pods whose backoff or timeout is over."""
        now = self._now_s()
        while self._backoff and self._backoff[0][0] <= now:
            pod = heapq.heappop(self._backoff)[2]
            if self._is_at(pod, SubQueue.BACKOFF):
                self._activate(pod)
        for pod in tuple(self._unschedulable.values()):
            if now - pod.since_s >= MAX_UNSCHEDULABLE_S:
                self._wake(pod)

    def _next_active(self) -> QueuedPod | None:
        while self._active:
            pod = heapq.heappop(self._active)[3]
            if self._is_at(pod, SubQueue.ACTIVE):
                return pod
        return None

    def _next_backing_off(self) -> QueuedPod | None:
        """Return a pod before its backoff is over, because the scheduler is idle."""
        waiting = [
            entry
            for entry in self._backoff
            if self._is_at(entry[2], SubQueue.BACKOFF) and not entry[2].error
        ]
        return min(waiting)[2] if waiting else None

    def _is_at(self, pod: QueuedPod, sub_queue: SubQueue) -> bool:
        return self._pods.get(pod.uid) is pod and pod.sub_queue is sub_queue

    def _wake(self, pod: QueuedPod) -> None:
        if pod.until_s > self._now_s():
            self._back_off(pod)
        else:
            self._activate(pod)

    def _activate(self, pod: QueuedPod) -> None:
        self._move_to(pod, SubQueue.ACTIVE)
        heapq.heappush(self._active, (-pod.priority, pod.since_s, next(self._order), pod))

    def _back_off(self, pod: QueuedPod) -> None:
        self._move_to(pod, SubQueue.BACKOFF)
        heapq.heappush(self._backoff, (pod.until_s, next(self._order), pod))

    def _move_to(self, pod: QueuedPod, sub_queue: SubQueue) -> None:
        pod.sub_queue = sub_queue
        for where, held in (
            (SubQueue.UNSCHEDULABLE, self._unschedulable),
            (SubQueue.IN_FLIGHT, self._in_flight),
        ):
            if sub_queue is where:
                held[pod.uid] = pod
            else:
                held.pop(pod.uid, None)

    def _backoff_s(self, attempts: int) -> float:
        return min(self._initial_s * 2.0 ** min(attempts - 1, 30), self._max_s)
