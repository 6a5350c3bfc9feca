# SPDX-License-Identifier: Apache-2.0
"""The in-process API: values, seeds, and what only a test can reach."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from common.kube.resources import DEPLOYMENTS, EVENTS, NODES, PDBS, PODS
from simulator import build
from simulator.api import CORE_EVENTS, Change, DeleteOptions, Json, Store
from simulator.api.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    NotFound,
    Refusal,
    TooManyRequests,
)
from tests.support.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> Store:
    return Store(clock=clock, rng=random.Random(1))


def test_the_same_seed_makes_the_same_cluster(clock: FakeClock) -> None:
    made = []
    for _ in range(2):
        store = Store(clock=clock, rng=random.Random(5))
        pod = build.pod("x")
        pod["metadata"]["generateName"] = "web-"
        del pod["metadata"]["name"]
        made.append([store.create(PODS, pod)["metadata"] for _ in range(3)])
    assert made[0] == made[1]


def test_what_is_handed_in_may_be_shared(store: Store) -> None:
    template = build.pod_template(labels={"app": "web"})
    before = copy.deepcopy(template)
    for name in ("a", "b"):
        metadata = {"name": name, "labels": template["metadata"]["labels"]}
        store.create(PODS, {"metadata": metadata, "spec": template["spec"]})
    assert template == before


def test_no_operation_changes_what_was_handed_out(store: Store) -> None:
    seen: list[tuple[Json, Json]] = []

    def remember(change: Change) -> None:
        seen.append((change.obj, copy.deepcopy(change.obj)))

    for resource in (PODS, PDBS, DEPLOYMENTS):
        store.subscribe(resource, remember, replay=True)
    store.create(DEPLOYMENTS, build.deployment("web", 1))
    store.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 2}}, namespace="default")
    store.create(PDBS, build.pdb("b", match={"app": "web"}, min_available=0))
    store.modify(PDBS, "b", _allowing(1), namespace="default", status=True)
    store.create(PODS, build.pod("web", spec={"terminationGracePeriodSeconds": 30}))
    store.bind("web", "default", "node-1")
    store.modify(PODS, "web", _running, namespace="default", status=True)
    pod = store.get(PODS, "web", "default")
    store.update(PODS, {**pod, "metadata": {**pod["metadata"], "labels": {"app": "web", "x": "1"}}})
    store.evict("web", "default")
    store.delete(PODS, "web", namespace="default", options=DeleteOptions(grace_s=0))
    assert len(seen) >= 10
    for obj, at_the_time in seen:
        assert obj == at_the_time


def _running(pod: Json) -> Json:
    ready = {"type": "Ready", "status": "True"}
    return {**pod, "status": {**pod["status"], "phase": "Running", "conditions": [ready]}}


def _allowing(count: int, **status: Any) -> Any:
    known = {"observedGeneration": 1, "currentHealthy": 2, "desiredHealthy": 1}
    return lambda budget: {
        **budget,
        "status": {**budget["status"], **known, "disruptionsAllowed": count, **status},
    }


def test_objects_go_where_they_say(store: Store) -> None:
    store.create(PODS, build.pod("a", namespace="kube-system"))
    store.create(PODS, {"metadata": {"name": "b"}, "spec": build.pod("b")["spec"]})
    store.create(NODES, build.node("n"))
    assert store.get(PODS, "a", "kube-system")["metadata"]["namespace"] == "kube-system"
    assert store.get(PODS, "b", "default")["metadata"]["namespace"] == "default"
    assert "namespace" not in store.get(NODES, "n")["metadata"]
    assert len(store.list(PODS)) == 2
    assert len(store.list(PODS, "kube-system")) == 1


def test_refusals_are_told_apart(store: Store) -> None:
    store.create(PODS, build.pod("a"))
    with pytest.raises(AlreadyExists):
        store.create(PODS, build.pod("a"))
    with pytest.raises(NotFound):
        store.get(PODS, "b", "default")
    assert store.find(PODS, "b", "default") is None
    pod = store.get(PODS, "a", "default")
    store.bind("a", "default", "n")
    with pytest.raises(Conflict):
        store.update(PODS, pod)
    with pytest.raises(Conflict):
        store.bind("a", "default", "m")


def test_a_dry_run_leaves_the_version_alone(store: Store) -> None:
    before = store.resource_version
    store.create(PODS, build.pod("a"), dry_run=True)
    assert store.resource_version == before


def test_owned_objects_are_found(store: Store) -> None:
    owner = store.create(DEPLOYMENTS, build.deployment("web", 1))["metadata"]
    pod = build.pod("a")
    reference = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "web",
        "uid": owner["uid"],
        "controller": True,
    }
    pod["metadata"]["ownerReferences"] = [reference]
    store.create(PODS, pod)
    ((resource, found),) = store.owned_by(owner["uid"])
    assert (resource, found["metadata"]["name"]) == (PODS, "a")


def test_events_are_written_under_either_name(store: Store) -> None:
    event = {
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "namespace": "default", "name": "a"},
        "eventTime": "2026-11-16T09:25:53.123456Z",
        "reportingController": "x",
        "reportingInstance": "y",
        "action": "Act",
        "reason": "Because",
        "type": "Normal",
        "note": "hello",
    }
    assert store.create(EVENTS, event, namespace="default")["note"] == "hello"
    assert store.get(CORE_EVENTS, "e", "default")["message"] == "hello"


def _evictable(store: Store, **status: Any) -> None:
    store.create(PODS, build.pod("web", node="n", labels={"app": "web"}))
    store.modify(PODS, "web", _running, namespace="default", status=True)
    store.create(PDBS, build.pdb("b", match={"app": "web"}, min_available=1))
    store.modify(PDBS, "b", _allowing(1, **status), namespace="default", status=True)


def test_a_budget_that_was_not_counted_yet_asks_to_come_back(store: Store) -> None:
    _evictable(store, observedGeneration=0)
    with pytest.raises(TooManyRequests) as refused:
        store.evict("web", "default")
    status = refused.value.status()
    assert status["details"]["retryAfterSeconds"] == 10
    (cause,) = status["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert "is still being processed by the server" in cause["message"]


def test_too_many_unconfirmed_evictions_are_forbidden(store: Store) -> None:
    noted = {f"pod-{index}": "2026-01-01T00:00:00Z" for index in range(2001)}
    _evictable(store, disruptedPods=noted)
    with pytest.raises(Forbidden, match="DisruptedPods map too big"):
        store.evict("web", "default")


def test_a_failed_count_is_given_as_the_reason(store: Store) -> None:
    failed = {
        "type": "DisruptionAllowed",
        "status": "False",
        "reason": "SyncFailed",
        "message": "no idea",
    }
    _evictable(store, conditions=[failed])
    store.modify(PDBS, "b", _allowing(0, conditions=[failed]), namespace="default", status=True)
    with pytest.raises(TooManyRequests) as refused:
        store.evict("web", "default")
    (cause,) = refused.value.status()["details"]["causes"]
    assert cause["message"].endswith("because it failed sync: no idea")


def test_an_eviction_notes_the_pod_in_its_budget(store: Store, clock: FakeClock) -> None:
    _evictable(store)
    store.evict("web", "default")
    status = store.get(PDBS, "b", "default")["status"]
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["web"]
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"]) == ("DisruptionAllowed", "False")


@pytest.mark.parametrize("grace_s", [None, 0, 5])
def test_a_shorter_grace_never_ends_in_the_past(
    store: Store, clock: FakeClock, grace_s: int | None
) -> None:
    store.create(PODS, build.pod("web", node="n", spec={"terminationGracePeriodSeconds": 30}))
    store.delete(PODS, "web", namespace="default")
    clock.jump_wall(20)
    deleted = store.delete(PODS, "web", namespace="default", options=DeleteOptions(grace_s=grace_s))
    metadata = deleted.obj["metadata"]
    expected = {None: 30, 0: 0, 5: 1}[grace_s]
    assert metadata["deletionGracePeriodSeconds"] == expected
    assert deleted.gone == (grace_s == 0)


def test_every_refusal_is_a_status(store: Store) -> None:
    with pytest.raises(Refusal) as refused:
        store.delete(PODS, "none", namespace="default")
    status = refused.value.status()
    assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", 404)
