# SPDX-License-Identifier: Apache-2.0
"""The disruption controller's arithmetic."""

from __future__ import annotations

from typing import Any

from common.kube.api import PatchKind
from common.kube.resources import PDBS, PODS, REPLICASETS
from simulator import build
from tests.support.stands.conformance import Json, Stand, case


async def _status(api: Stand, *, generation: int = 1, **expected: int) -> Json:
    """Wait until the controller has counted as expected, and return the status."""
    last: Json = {}

    async def counted() -> bool:
        last.clear()
        last.update((await api.get(PDBS, "budget")).expect(200).body["status"])
        seen = last.get("observedGeneration") == generation
        return seen and all(last.get(key) == value for key, value in expected.items())

    try:
        await api.eventually(counted)
    except AssertionError:
        raise AssertionError(f"expected {expected}, last seen {last}") from None
    return last


async def _budget(api: Stand, **spec: Any) -> None:
    given = build.pdb("budget", match={"app": "web"}, namespace=api.namespace)
    given["spec"].update(spec)
    (await api.create(PDBS, given)).expect(201)


async def _replicas(api: Stand, count: int, *, ready: int) -> None:
    """Make a ReplicaSet whose first pods are ready and whose others are not."""
    given = build.replica_set(
        "web", count, namespace=api.namespace, spec={"schedulerName": "nobody"}
    )
    owner = (await api.create(REPLICASETS, given)).expect(201).body
    for index, name in enumerate(sorted(await api.replicas_of(owner, count))):
        target = {"kind": "Node", "name": api.nowhere}
        binding = {"metadata": {"name": name}, "target": target}
        (await api.post(PODS, name, "binding", binding)).expect(201)
        await api.run(name, ready=index < ready)


@case
async def a_budget_starts_at_zero(api: Stand) -> None:
    given = build.pdb("budget", match={"app": "web"}, namespace=api.namespace, min_available=1)
    made = (await api.create(PDBS, given)).expect(201).body
    zero = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
    assert made["status"] == zero
    assert made["metadata"]["generation"] == 1


@case
async def a_budget_without_pods_allows_nothing(api: Stand) -> None:
    await _budget(api, minAvailable=0)
    status = await _status(api, expectedPods=0, disruptionsAllowed=0)
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"]) == ("DisruptionAllowed", "False")
    assert condition["reason"] == "InsufficientPods"


@case
async def min_available_as_a_number_counts_matching_pods(api: Stand) -> None:
    for name in "abc":
        await api.pod(name, labels={"app": "web"}, ready=True)
    await api.pod("d", labels={"app": "web"}, ready=False)
    await _budget(api, minAvailable=2)
    status = await _status(
        api, expectedPods=4, currentHealthy=3, desiredHealthy=2, disruptionsAllowed=1
    )
    (condition,) = status["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "SufficientPods")


@case
async def min_available_as_a_percentage_rounds_up(api: Stand) -> None:
    await _replicas(api, 5, ready=5)
    await _budget(api, minAvailable="50%")
    await _status(api, expectedPods=5, currentHealthy=5, desiredHealthy=3, disruptionsAllowed=2)


@case
async def max_unavailable_as_a_number_counts_what_controllers_want(api: Stand) -> None:
    await _replicas(api, 3, ready=3)
    await _budget(api, maxUnavailable=1)
    await _status(api, expectedPods=3, currentHealthy=3, desiredHealthy=2, disruptionsAllowed=1)


@case
async def max_unavailable_as_a_percentage_rounds_up(api: Stand) -> None:
    await _replicas(api, 4, ready=4)
    await _budget(api, maxUnavailable="30%")
    await _status(api, expectedPods=4, currentHealthy=4, desiredHealthy=2, disruptionsAllowed=2)


@case
async def unready_pods_use_up_the_budget(api: Stand) -> None:
    await _replicas(api, 3, ready=2)
    await _budget(api, maxUnavailable=1)
    await _status(api, expectedPods=3, currentHealthy=2, desiredHealthy=2, disruptionsAllowed=0)


@case
async def a_terminating_pod_is_not_healthy(api: Stand) -> None:
    for name in "ab":
        await api.pod(name, labels={"app": "web"}, ready=True)
    await _budget(api, minAvailable=1)
    await _status(api, currentHealthy=2, disruptionsAllowed=1)
    (await api.delete(PODS, "a", {"gracePeriodSeconds": 600})).expect(200)
    await _status(api, expectedPods=2, currentHealthy=1, disruptionsAllowed=0)


@case
async def a_pod_that_becomes_ready_is_counted(api: Stand) -> None:
    await api.pod("a", labels={"app": "web"}, ready=False)
    await _budget(api, minAvailable=0)
    await _status(api, expectedPods=1, currentHealthy=0, disruptionsAllowed=0)
    await api.run("a")
    await _status(api, currentHealthy=1, disruptionsAllowed=1)


@case
async def a_changed_budget_is_counted_anew(api: Stand) -> None:
    for name in "ab":
        await api.pod(name, labels={"app": "web"}, ready=True)
    await _budget(api, minAvailable=2)
    await _status(api, disruptionsAllowed=0, currentHealthy=2)
    (await api.patch(PDBS, "budget", {"spec": {"minAvailable": 1}})).expect(200)
    await _status(api, generation=2, desiredHealthy=1, disruptionsAllowed=1)


@case
async def pods_without_a_controller_are_not_expected(api: Stand) -> None:
    await api.pod("a", labels={"app": "web"}, ready=True)
    await _budget(api, maxUnavailable=1)
    await _status(api, expectedPods=0, currentHealthy=1, disruptionsAllowed=0)


@case
async def a_pod_of_an_unknown_controller_fails_the_budget(api: Stand) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none", "controller": True}
    await api.pod("a", labels={"app": "web"}, ready=True)
    await _budget(api, maxUnavailable=1)
    await _status(api, currentHealthy=1)
    # An owner of a kind that is not served is not collected, and its scale cannot be asked.
    owner = {**owner, "apiVersion": "nope.example.com/v1", "kind": "Nope", "uid": "1"}
    (await api.patch(PODS, "a", {"metadata": {"ownerReferences": [owner]}})).expect(200)

    async def failed() -> bool:
        conditions = (await api.get(PDBS, "budget")).expect(200).body["status"]["conditions"]
        return bool(conditions[0]["reason"] == "SyncFailed")

    await api.eventually(failed)


@case
async def an_unconfirmed_eviction_counts_as_gone(api: Stand) -> None:
    for name in "ab":
        await api.pod(name, labels={"app": "web"}, ready=True)
    await _budget(api, minAvailable=1)
    status = await _status(api, currentHealthy=2, disruptionsAllowed=1)
    made = (await api.get(PODS, "a")).expect(200).metadata["creationTimestamp"]
    noted = {"status": {**status, "disruptedPods": {"a": made}}}
    kind = PatchKind.MERGE
    (await api.patch(PDBS, "budget", noted, "status", kind=kind)).expect(200)
    status = await _status(api, currentHealthy=1, disruptionsAllowed=0)
    assert list(status["disruptedPods"]) == ["a"]
