"""The queue of pods that wait for a node.

Three places, as in pkg/scheduler/backend/queue of v1.36: *active* pods are tried, the most
important and longest waiting first; *backing off* pods have failed lately; *parked* pods wait
for something to happen that may help them, or five minutes. An idle scheduler does not wait
for a backoff to end, unless an error was the cause. Pure: times come in, in simulated seconds.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from common.cluster.records import PodUid
from simulator.scheduler.wakeups import Happening, may_help

LONGEST_PARKED_S: Final = 300.0

Clock = Callable[[], float]


class Place(Enum):
    """Where a waiting pod is."""

    ACTIVE = auto()
    BACKOFF = auto()
    PARKED = auto()
    TRIED = auto()
    """Being scheduled right now."""


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod that waits for a node."""

    key: str
    uid: PodUid
    priority: int
    since_s: float
    place: Place = Place.ACTIVE
    attempts: int = 0
    plugins: frozenset[str] = frozenset()
    """Who refused it last."""
    error: bool = False
    until_s: float = 0.0
    happened: list[Happening] = field(default_factory=list)
    """What happened while it was being tried."""


class SchedulingQueue:
    """All pods without a node that this scheduler is to place."""

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
        # Events come for every pod that is placed: only these few are looked at then.
        self._parked: dict[PodUid, QueuedPod] = {}
        self._tried: dict[PodUid, QueuedPod] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: PodUid) -> bool:
        return uid in self._pods

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(tuple(self._pods.values()))

    def add(self, key: str, uid: PodUid, priority: int) -> None:
        """Take in a new pod; one that is known already stays where it is."""
        if uid not in self._pods:
            pod = self._pods[uid] = QueuedPod(key, uid, priority, self._now_s())
            self._activate(pod)

    def remove(self, uid: PodUid) -> None:
        """Forget a pod: it has a node now, or is gone."""
        self._pods.pop(uid, None)
        self._parked.pop(uid, None)
        self._tried.pop(uid, None)

    def pop(self) -> QueuedPod | None:
        """Return the pod to try next, or nothing."""
        self._recall()
        pod = self._next_active() or self._next_backing_off()
        if pod is not None:
            self._place(pod, Place.TRIED)
            pod.attempts += 1
            pod.happened.clear()
        return pod

    def failed(self, pod: QueuedPod, plugins: frozenset[str], *, error: bool = False) -> None:
        """Take back a pod that found no node, refused by these, or for an error."""
        if pod.uid not in self._pods:
            return
        pod.plugins, pod.error = plugins, error
        pod.since_s = self._now_s()
        pod.until_s = pod.since_s + self._backoff_s(pod.attempts)
        helped = any(may_help(happening, plugins) for happening in pod.happened)
        if error or helped:
            self._back_off(pod)
        else:
            self._place(pod, Place.PARKED)

    def update(self, uid: PodUid) -> None:
        """Try a pod again because it has changed itself."""
        pod = self._pods.get(uid)
        if pod is not None and pod.place is Place.PARKED:
            self._wake(pod)

    def happen(self, happening: Happening) -> bool:
        """Wake the parked pods that this may help; tell whether there was one."""
        for pod in self._tried.values():
            pod.happened.append(happening)
        woken = [pod for pod in self._parked.values() if may_help(happening, pod.plugins)]
        for pod in woken:
            self._wake(pod)
        return bool(woken)

    def next_due_s(self) -> float | None:
        """Return when something happens in the queue by itself."""
        moments = [entry[0] for entry in self._backoff[:1]]
        moments += [pod.since_s + LONGEST_PARKED_S for pod in self._parked.values()]
        return min(moments, default=None)

    def _recall(self) -> None:
        """Bring back pods whose backoff or patience has run out."""
        now = self._now_s()
        while self._backoff and self._backoff[0][0] <= now:
            pod = heapq.heappop(self._backoff)[2]
            if self._is_at(pod, Place.BACKOFF):
                self._activate(pod)
        for pod in tuple(self._parked.values()):
            if now - pod.since_s >= LONGEST_PARKED_S:
                self._wake(pod)

    def _next_active(self) -> QueuedPod | None:
        while self._active:
            pod = heapq.heappop(self._active)[3]
            if self._is_at(pod, Place.ACTIVE):
                return pod
        return None

    def _next_backing_off(self) -> QueuedPod | None:
        """Return a pod before its backoff is over, as there is nothing else to do."""
        waiting = [
            entry
            for entry in self._backoff
            if self._is_at(entry[2], Place.BACKOFF) and not entry[2].error
        ]
        return min(waiting)[2] if waiting else None

    def _is_at(self, pod: QueuedPod, place: Place) -> bool:
        return self._pods.get(pod.uid) is pod and pod.place is place

    def _wake(self, pod: QueuedPod) -> None:
        if pod.until_s > self._now_s():
            self._back_off(pod)
        else:
            self._activate(pod)

    def _activate(self, pod: QueuedPod) -> None:
        self._place(pod, Place.ACTIVE)
        heapq.heappush(self._active, (-pod.priority, pod.since_s, next(self._order), pod))

    def _back_off(self, pod: QueuedPod) -> None:
        self._place(pod, Place.BACKOFF)
        heapq.heappush(self._backoff, (pod.until_s, next(self._order), pod))

    def _place(self, pod: QueuedPod, place: Place) -> None:
        pod.place = place
        for where, held in ((Place.PARKED, self._parked), (Place.TRIED, self._tried)):
            if place is where:
                held[pod.uid] = pod
            else:
                held.pop(pod.uid, None)

    def _backoff_s(self, attempts: int) -> float:
        return min(self._initial_s * 2.0 ** min(attempts - 1, 30), self._max_s)
