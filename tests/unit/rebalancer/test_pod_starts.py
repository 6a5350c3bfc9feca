# SPDX-License-Identifier: Apache-2.0
"""Which nodes start no pods, by what is seen of their pods and of moves to them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from common.api.migrations import Migration
from common.cache.state import ClusterState
from common.cluster.interning import Interner
from common.cluster.records import NodeName, PodRecord, pod_record
from rebalancer.pod_starts import start_failures, starts_no_pods, why_not_started
from simulator import build
from tests.support.worlds.wire import wire, wire_node, wire_pod

NOW_S = 1_800_000_000.0
COOLDOWN_S = 1800.0
PULL = "ImagePullBackOff"


def ago(seconds: float) -> str:
    return datetime.fromtimestamp(NOW_S - seconds, UTC).isoformat()


class World:
    """Six nodes, and what is put on them."""

    def __init__(self, nodes: int = 6) -> None:
        self.state = ClusterState()
        for number in range(1, nodes + 1):
            self.state.nodes.upsert(wire_node(build.node(f"n{number}")))

    def pod(
        self,
        name: str,
        node: str,
        *,
        namespace: str = "shop",
        image: str = "web:1",
        waits: str = "",
        age: float = 60.0,
        **metadata: Any,
    ) -> None:
        """Put a pod on a node; it runs, unless it waits for something."""
        container = {**build.container(), "image": image}
        made = build.pod(name, namespace=namespace, node=node, spec={"containers": [container]})
        running = {"running": {"startedAt": ago(age)}}
        state = {"waiting": {"reason": waits}} if waits else running
        conditions = [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(age)},
            {
                "type": "Ready",
                "status": "False" if waits else "True",
                "lastTransitionTime": ago(age),
            },
        ]
        status = {"conditions": conditions, "containerStatuses": [{"name": "app", "state": state}]}
        self.state.pods.upsert(wire_pod(made, status=status, **metadata))

    def move(
        self,
        pod: str,
        node: str,
        *,
        reason: str = PULL,
        namespace: str = "shop",
        message: str = "DeadlineExceeded: too late",
    ) -> None:
        """Let the replacement of a pod of `web` not have started on a node, a minute ago."""
        ref = {"kind": "ReplicaSet", "name": "web", "uid": "u-web"}
        said = {"type": "Ready", "status": "False", "reason": reason, "lastTransitionTime": ago(60)}
        spec = {
            "pod": {"namespace": namespace, "name": pod, "uid": f"{namespace}-{pod}"},
            "controller": ref,
            "source": "n1",
            "target": node,
            "strategy": "LoadBalancing",
            "reason": "Spread",
            "deadline": ago(60),
        }
        status = {
            "phase": "Failed",
            "message": message,
            "evictedAt": ago(400),
            "finishedAt": ago(60),
            "replacement": {"name": f"{pod}-new", "uid": "gone", "node": node},
            "conditions": [said],
        }
        meta = {"name": f"{namespace}-{pod}", "uid": pod, "creationTimestamp": ago(500)}
        made = {"metadata": meta, "spec": spec, "status": status}
        self.state.migrations.upsert(wire(Migration, made))

    def closed(self, now_s: float = NOW_S) -> dict[str, str]:
        found = start_failures(self.state.snapshot(), now_s=now_s, cooldown_s=COOLDOWN_S)
        return {str(name): refusal.message for name, refusal in found.items()}


OWNED: dict[str, Any] = {
    "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "u-web", "controller": True}]
}


def test_a_node_where_an_image_is_not_pulled_that_runs_elsewhere_is_named() -> None:
    world = World()
    world.pod("good", "n1")
    world.pod("bad", "n2", waits=PULL)
    found = world.closed()
    assert list(found) == ["n2"]
    assert "shop/bad did not start (ImagePullBackOff), and the same runs on n1" in found["n2"]


@pytest.mark.parametrize("reason", ["ErrImagePull", "CreateContainerError", "RunContainerError"])
def test_other_reasons_of_a_node_count_too(reason: str) -> None:
    world = World()
    world.pod("good", "n1")
    world.pod("bad", "n2", waits=reason)
    assert list(world.closed()) == ["n2"]


@pytest.mark.parametrize(
    "reason", ["CrashLoopBackOff", "CreateContainerConfigError", "InvalidImageName"]
)
def test_what_is_the_pods_own_fault_says_nothing_about_a_node(reason: str) -> None:
    world = World()
    world.pod("good", "n1")
    for namespace in ("shop", "blog"):
        world.pod("bad", "n2", namespace=namespace, waits=reason)
    assert world.closed() == {}


def test_an_image_that_runs_nowhere_closes_no_node() -> None:
    world = World()
    for number in range(1, 7):
        world.pod(f"bad-{number}", f"n{number}", image="typo:1", waits=PULL)
    assert world.closed() == {}


def test_an_image_that_runs_only_on_the_same_node_closes_it_not() -> None:
    world = World()
    world.pod("good", "n2", age=900)
    world.pod("bad", "n2", waits=PULL)
    assert world.closed() == {}


def test_pods_of_two_namespaces_close_a_node() -> None:
    world = World()
    world.pod("bad", "n2", image="a:1", waits=PULL)
    world.pod("bad", "n2", namespace="blog", image="b:1", waits="ErrImagePull")
    [words] = world.closed().values()
    assert "blog/bad" in words
    assert "shop/bad" in words


def test_a_pod_that_started_there_later_opens_it_again() -> None:
    world = World()
    world.pod("good", "n1")
    world.pod("bad", "n2", waits=PULL, age=600)
    world.pod("before", "n2", namespace="blog", image="other:1", age=900)
    assert list(world.closed()) == ["n2"]
    world.pod("since", "n2", namespace="blog", image="other:1", age=300)
    assert world.closed() == {}


def test_one_namespace_cannot_close_more_than_half_of_the_nodes() -> None:
    world = World()
    world.pod("good", "n1", namespace="owner")
    for number in (2, 3, 4):
        world.pod(f"bad-{number}", f"n{number}", waits=PULL)
    assert sorted(world.closed()) == ["n2", "n3", "n4"]
    world.pod("bad-5", "n5", waits=PULL)
    assert world.closed() == {}


def test_containers_that_are_being_created_for_long_count_beside_another_namespace() -> None:
    world = World()
    world.pod("good", "n1")
    world.pod("slow", "n2", waits="ContainerCreating", age=301)
    assert world.closed() == {}
    world.pod("slow", "n2", namespace="blog", waits="ContainerCreating", age=299)
    assert world.closed() == {}
    world.pod("slow", "n2", namespace="blog", waits="ContainerCreating", age=301)
    assert list(world.closed()) == ["n2"]


def test_a_move_that_was_called_off_says_nothing() -> None:
    world = World()
    world.pod("web-b", "n3", age=3600, **OWNED)
    world.move("web-a", "n2", message="Withdrawn: the Migration is being deleted")
    assert world.closed() == {}


@pytest.mark.parametrize("reason", [PULL, "ContainerCreating", "UnexpectedAdmissionError"])
def test_a_move_that_failed_closes_its_target_while_a_sibling_runs_elsewhere(reason: str) -> None:
    world = World()
    world.move("web-a", "n2", reason=reason)
    assert world.closed() == {}
    world.pod("web-b", "n3", age=3600, **OWNED)
    assert list(world.closed()) == ["n2"]


def test_a_move_that_failed_is_forgotten_after_a_while() -> None:
    world = World()
    world.pod("web-b", "n3", age=3600, **OWNED)
    world.move("web-a", "n2")
    assert list(world.closed(NOW_S - 60 + COOLDOWN_S - 1)) == ["n2"]
    assert world.closed(NOW_S - 60 + COOLDOWN_S) == {}


def test_moves_that_failed_for_their_own_reasons_close_a_node_only_together() -> None:
    world = World()
    world.pod("web-b", "n3", age=3600, **OWNED)
    world.move("web-a", "n2", reason="CrashLoopBackOff")
    assert world.closed() == {}
    world.move("web-a", "n2", reason="NotReady", namespace="blog")
    assert list(world.closed()) == ["n2"]


def test_a_replacement_that_started_late_speaks_for_its_node() -> None:
    world = World()
    world.pod("web-b", "n3", age=3600, **OWNED)
    world.move("web-a", "n2")
    world.pod("web-a-new", "n2", age=400, uid="gone")
    assert world.closed() == {}


def test_one_node_is_judged_by_what_fails_there_now() -> None:
    world = World()
    world.pod("good", "n1")
    world.pod("bad", "n2", waits=PULL)
    world.pod("web-b", "n4", age=3600, **OWNED)
    world.move("web-a", "n3")
    snapshot = world.state.snapshot()
    for name, refused in (("n1", False), ("n2", True), ("n3", False), ("n9", False)):
        found = starts_no_pods(NodeName(name), snapshot, now_s=NOW_S)
        assert (found is not None) is refused


def record(status: dict[str, Any], *, node: str | None = "n1", phase: str = "Pending") -> PodRecord:
    made = build.pod("p", node=node)
    return pod_record(wire_pod(made, status={"conditions": [], **status}, phase=phase), Interner())


def test_why_a_pod_did_not_start_is_said_in_words() -> None:
    waiting = {"name": "app", "state": {"waiting": {"reason": PULL}}}
    found = why_not_started(record({"containerStatuses": [waiting]}))
    assert (found.name, found.message) == (
        PULL,
        "container app of default/p on n1 does not run "
        "(ImagePullBackOff, image registry.invalid/app:1)",
    )


def test_a_pod_that_its_kubelet_rejected_says_so() -> None:
    found = why_not_started(record({"reason": "OutOfcpu"}, phase="Failed"))
    assert found.name == "OutOfcpu"
    assert why_not_started(record({}, phase="Failed")).name == "PodFailed"


def test_a_reason_that_is_no_word_is_not_passed_on() -> None:
    waiting = {"name": "app", "state": {"waiting": {"reason": "\x1b[31mno"}}}
    assert why_not_started(record({"containerStatuses": [waiting]})).name == "ContainerCreating"


def test_a_pod_without_a_node_says_why() -> None:
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    assert why_not_started(record({"conditions": [refused]}, node=None)).name == "Unschedulable"
    assert why_not_started(record({}, node=None)).name == "NotScheduled"
