# SPDX-License-Identifier: Apache-2.0
"""Which pod is tried when (pkg/scheduler/backend/queue)."""

from __future__ import annotations

import pytest

from common.cluster.records import PodUid
from simulator.scheduler.cluster_events import ClusterEvent
from simulator.scheduler.queue import QueuedPod, SchedulingQueue

FIT = frozenset({"NodeResourcesFit"})


class Stand:
    """A queue whose time is turned by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.queue = SchedulingQueue(lambda: self.now)

    def add(self, name: str, priority: int = 0) -> None:
        self.queue.add(f"default/{name}", PodUid(name), priority)

    def pop(self) -> QueuedPod:
        pod = self.queue.pop()
        assert pod is not None
        return pod

    def fail(self, plugins: frozenset[str] = FIT, *, error: bool = False) -> QueuedPod:
        pod = self.pop()
        self.queue.failed(pod, plugins, error=error)
        return pod


@pytest.fixture
def stand() -> Stand:
    return Stand()


def test_important_pods_come_first_then_those_that_waited_longest(stand: Stand) -> None:
    for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5)):
        stand.add(name, priority)
        stand.now += 1
    assert [stand.pop().uid for _ in range(4)] == ["b", "d", "a", "c"]


def test_a_pod_that_fits_nowhere_is_not_tried_again_by_itself(stand: Stand) -> None:
    stand.add("a")
    stand.fail()
    stand.now += 100
    assert stand.queue.pop() is None


def test_after_five_minutes_it_is(stand: Stand) -> None:
    stand.add("a")
    stand.fail()
    assert stand.queue.next_due_s() == pytest.approx(300)
    stand.now += 300
    assert stand.pop().uid == "a"


@pytest.mark.parametrize(
    ("event", "helps"),
    [
        (ClusterEvent.POD_GONE, True),
        (ClusterEvent.NODE_ADDED, True),
        (ClusterEvent.NODE_ROOM, True),
        (ClusterEvent.NODE_LABELS, False),
        (ClusterEvent.NODE_TAINTS, False),
        (ClusterEvent.POD_PLACED, False),
        (ClusterEvent.NODE_OTHER, False),
    ],
)
def test_only_what_may_help_wakes_a_pod(stand: Stand, event: ClusterEvent, helps: bool) -> None:
    stand.add("a")
    stand.fail()
    stand.now += 100
    assert stand.queue.on_event(event) is helps
    assert (stand.queue.pop() is not None) is helps


@pytest.mark.parametrize("event", list(ClusterEvent))
def test_anything_wakes_a_pod_that_an_extender_refused(stand: Stand, event: ClusterEvent) -> None:
    stand.add("a")
    stand.fail(FIT | {"Extender"})
    assert stand.queue.on_event(event)


def test_what_happens_while_a_pod_is_tried_counts(stand: Stand) -> None:
    stand.add("a")
    pod = stand.pop()
    stand.queue.on_event(ClusterEvent.POD_GONE)
    stand.queue.failed(pod, FIT)
    assert stand.queue.pop() is pod


def test_backoff_doubles_up_to_its_limit(stand: Stand) -> None:
    stand.add("a")
    waits = []
    for _ in range(6):
        pod = stand.fail(frozenset(), error=True)
        waits.append(pod.until_s - stand.now)
        stand.now = pod.until_s
    assert waits == [1, 2, 4, 8, 10, 10]


def test_an_error_is_not_retried_before_its_backoff_is_over(stand: Stand) -> None:
    stand.add("a")
    stand.fail(frozenset(), error=True)
    assert stand.queue.pop() is None
    assert stand.queue.next_due_s() == pytest.approx(1)
    stand.now = 1.0
    assert stand.pop().uid == "a"


def test_an_idle_scheduler_does_not_wait_for_a_backoff(stand: Stand) -> None:
    stand.add("a")
    stand.fail()
    stand.queue.on_event(ClusterEvent.POD_GONE)
    stand.add("b")
    assert [stand.pop().uid, stand.pop().uid] == ["b", "a"]


def test_a_pod_that_is_gone_is_not_tried(stand: Stand) -> None:
    stand.add("a")
    stand.queue.remove(PodUid("a"))
    assert stand.queue.pop() is None
    assert len(stand.queue) == 0


def test_a_pod_that_changed_is_tried_again(stand: Stand) -> None:
    stand.add("a")
    stand.fail()
    stand.now += 100
    stand.queue.update(PodUid("a"))
    assert stand.pop().uid == "a"


def test_a_pod_that_left_while_tried_does_not_come_back(stand: Stand) -> None:
    stand.add("a")
    pod = stand.pop()
    stand.queue.remove(pod.uid)
    stand.queue.failed(pod, FIT)
    assert PodUid("a") not in stand.queue
