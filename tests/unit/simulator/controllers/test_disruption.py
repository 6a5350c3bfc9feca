# SPDX-License-Identifier: Apache-2.0
"""The disruption controller on a clock turned by hand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from common.kube.resources import DEPLOYMENTS, PDBS, PODS, REPLICASETS, STATEFULSETS, Resource
from simulator import build
from simulator.api import DeleteOptions, Json, Store
from simulator.controllers.disruption import DisruptionController
from tests.support.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> Store:
    return Store(clock=clock, rng=random.Random(1))


@pytest.fixture
def controller(store: Store, clock: FakeClock) -> DisruptionController:
    return DisruptionController(store, clock=clock)


def _pod(store: Store, name: str, owner: Json | None = None, *, ready: bool = True) -> None:
    pod = build.pod(name, node="n", labels={"app": "web"})
    if owner is not None:
        pod["metadata"]["ownerReferences"] = [_reference(owner)]
    store.create(PODS, pod)
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    status = {"phase": "Running", "conditions": [condition]}
    store.patch(PODS, name, {"status": status}, namespace="default", status=True)


def _reference(owner: Json) -> Json:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


def _budget(store: Store, **limits: Any) -> None:
    store.create(PDBS, build.pdb("budget", match={"app": "web"}, **limits))


def _status(store: Store) -> Json:
    status: Json = store.get(PDBS, "budget", "default")["status"]
    return status


@pytest.mark.parametrize(
    ("resource", "manifest"),
    [
        (REPLICASETS, build.replica_set("web", 7)),
        (STATEFULSETS, build.stateful_set("web", 7)),
    ],
)
def test_expects_what_the_owner_wants(
    store: Store, controller: DisruptionController, resource: Resource, manifest: Json
) -> None:
    owner = store.create(resource, manifest)
    _pod(store, "a", owner)
    _budget(store, max_unavailable=6)
    controller.work_off()
    assert _status(store)["expectedPods"] == 7
    assert _status(store)["desiredHealthy"] == 1


def test_expects_what_the_deployment_wants_not_its_replica_set(
    store: Store, controller: DisruptionController
) -> None:
    deployment = store.create(DEPLOYMENTS, build.deployment("web", 10))
    replica_set = build.replica_set("web-1", 3)
    replica_set["metadata"]["ownerReferences"] = [_reference(deployment)]
    _pod(store, "a", store.create(REPLICASETS, replica_set))
    _budget(store, min_available="10%")
    controller.work_off()
    assert _status(store)["expectedPods"] == 10


def test_counts_every_controller_once(store: Store, controller: DisruptionController) -> None:
    for name, replicas in (("one", 3), ("two", 4)):
        owner = store.create(REPLICASETS, build.replica_set(name, replicas))
        _pod(store, f"{name}-a", owner)
        _pod(store, f"{name}-b", owner)
    _budget(store, max_unavailable=1)
    controller.work_off()
    assert _status(store)["expectedPods"] == 7


def test_fails_safe_when_a_controller_is_missing(
    store: Store, controller: DisruptionController
) -> None:
    owner = store.create(REPLICASETS, build.replica_set("web", 1))
    _pod(store, "a", owner)
    _budget(store, max_unavailable=1)
    controller.work_off()
    assert _status(store)["disruptionsAllowed"] == 1
    store.delete(REPLICASETS, "web", namespace="default")
    store.patch(PDBS, "budget", {"spec": {"maxUnavailable": 2}}, namespace="default")
    controller.work_off()
    status = _status(store)
    assert status["disruptionsAllowed"] == 0
    (condition,) = status["conditions"]
    assert (condition["reason"], condition["message"]) == (
        "SyncFailed",
        'found no controllers for pod "a"',
    )


def test_writes_nothing_when_nothing_has_changed(
    store: Store, controller: DisruptionController
) -> None:
    _pod(store, "a")
    _budget(store, min_available=0)
    controller.work_off()
    version = store.resource_version
    controller.sync(("default", "budget"))
    assert store.resource_version == version


def test_a_condition_keeps_its_time_until_its_status_changes(
    store: Store, controller: DisruptionController, clock: FakeClock
) -> None:
    _pod(store, "a")
    _budget(store, min_available=0)
    controller.work_off()
    (first,) = _status(store)["conditions"]
    clock.jump_wall(60)
    _pod(store, "b")
    controller.work_off()
    (second,) = _status(store)["conditions"]
    assert second["lastTransitionTime"] == first["lastTransitionTime"]
    store.patch(PDBS, "budget", {"spec": {"minAvailable": 5}}, namespace="default")
    controller.work_off()
    (third,) = _status(store)["conditions"]
    assert third["lastTransitionTime"] > first["lastTransitionTime"]


@asynccontextmanager
async def running(controller: DisruptionController) -> AsyncIterator[None]:
    task = asyncio.create_task(controller.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_eviction_that_never_comes_is_forgotten_after_two_minutes(
    store: Store, controller: DisruptionController, clock: FakeClock
) -> None:
    async with running(controller):
        for name in ("a", "b"):
            _pod(store, name)
        _budget(store, min_available=1)
        await clock.advance(0)
        options = DeleteOptions(uid="another")
        with pytest.raises(Exception, match="the UID in the precondition"):
            store.evict("a", "default", options=options)
        await clock.advance(0)
        assert list(_status(store)["disruptedPods"]) == ["a"]
        assert _status(store)["currentHealthy"] == 1
        await clock.advance(119)
        assert _status(store)["disruptionsAllowed"] == 0
        await clock.advance(3)
        assert "disruptedPods" not in _status(store)
        assert _status(store)["disruptionsAllowed"] == 1


async def test_follows_pods_as_they_change(
    store: Store, controller: DisruptionController, clock: FakeClock
) -> None:
    async with running(controller):
        _budget(store, min_available=1)
        for name in ("a", "b"):
            _pod(store, name)
        await clock.advance(0)
        assert _status(store)["disruptionsAllowed"] == 1
        store.patch(PODS, "a", {"metadata": {"labels": {"app": "other"}}}, namespace="default")
        await clock.advance(0)
        assert _status(store)["expectedPods"] == 1
        store.delete(PODS, "b", namespace="default", options=DeleteOptions(grace_s=0))
        await clock.advance(0)
        assert _status(store)["expectedPods"] == 0
