# SPDX-License-Identifier: Apache-2.0
"""Evictions, exactly: whom the budget lets go, at what price, in which words."""

from __future__ import annotations

from typing import Any

from common.kube.resources import PDBS, PODS
from simulator import build
from tests.support.stands.conformance import Answer, Json, Stand, case

_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


async def _evict(api: Stand, name: str, options: Json | None = None, **params: Any) -> Answer:
    body: Json = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": api.namespace},
    }
    if options is not None:
        body["deleteOptions"] = options
    return await api.post(PODS, name, "eviction", body, **params)


async def _budget(
    api: Stand, name: str = "budget", *, expected: int, app: str = "web", **spec: Any
) -> Json:
    """Create a budget and wait until the disruption controller has counted its pods."""
    given = build.pdb(name, match={"app": app}, namespace=api.namespace)
    given["spec"].update(spec)
    (await api.create(PDBS, given)).expect(201)

    async def counted() -> Json | None:
        found = (await api.get(PDBS, name)).expect(200).body
        status = found["status"]
        done = status.get("observedGeneration") == 1 and status["expectedPods"] == expected
        return found if done else None

    made: Json = await api.eventually(counted)
    return made


async def _web(api: Stand, *names: str, ready: bool = True) -> None:
    for name in names:
        await api.pod(name, labels={"app": "web"}, ready=ready)


async def _status(api: Stand) -> Json:
    status: Json = (await api.get(PDBS, "budget")).expect(200).body["status"]
    return status


@case
async def an_eviction_deletes_with_the_pods_own_grace(api: Stand) -> None:
    await api.pod("web", ready=True, spec={"terminationGracePeriodSeconds": 600})
    answer = (await _evict(api, "web")).expect(201)
    assert (answer.body["kind"], answer.body["status"]) == ("Status", "Success")
    pod = (await api.get(PODS, "web")).expect(200)
    assert pod.metadata["deletionGracePeriodSeconds"] == 600


@case
async def an_eviction_may_bring_its_own_grace(api: Stand) -> None:
    await api.pod("web", ready=True, spec={"terminationGracePeriodSeconds": 600})
    (await _evict(api, "web", {"gracePeriodSeconds": 5})).expect(201)
    pod = (await api.get(PODS, "web")).expect(200)
    assert pod.metadata["deletionGracePeriodSeconds"] == 5


@case
async def an_evicted_pod_is_told_why(api: Stand) -> None:
    await api.pod("web", ready=True)
    (await _evict(api, "web")).expect(201)
    conditions = (await api.get(PODS, "web")).expect(200).body["status"]["conditions"]
    (target,) = [each for each in conditions if each["type"] == "DisruptionTarget"]
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")
    assert target["message"] == "Eviction API: evicting"


@case
async def an_eviction_of_a_missing_pod_is_not_found(api: Stand) -> None:
    (await _evict(api, "missing")).expect(404, "NotFound")


@case
async def an_eviction_must_mean_its_pod(api: Stand) -> None:
    await api.pod("web", ready=True)
    for body in ({"metadata": {"name": "other"}}, {}):
        answer = await api.post(PODS, "web", "eviction", body)
        answer.expect(400, "BadRequest")
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web"}}
    (await api.post(PODS, "web", "eviction", pod)).expect(400, "BadRequest")


@case
async def an_exhausted_budget_refuses_without_a_hint_when_to_retry(api: Stand) -> None:
    await _web(api, "a", "b")
    await _budget(api, expected=2, minAvailable=2)
    answer = (await _evict(api, "a")).expect(429, "TooManyRequests")
    assert answer.message == _REFUSED
    (cause,) = answer.causes
    assert cause["reason"] == "DisruptionBudget"
    words = "The disruption budget budget needs 2 healthy pods and has 2 currently"
    assert cause["message"] == words
    assert "Retry-After" not in answer.headers
    assert "retryAfterSeconds" not in answer.body["details"]
    assert "deletionTimestamp" not in (await api.get(PODS, "a")).expect(200).metadata


@case
async def an_eviction_takes_one_disruption(api: Stand) -> None:
    await _web(api, "a", "b", "c")
    await _budget(api, expected=3, minAvailable=2)

    async def allowed() -> bool:
        return bool((await _status(api))["disruptionsAllowed"] == 1)

    await api.eventually(allowed)
    (await _evict(api, "a")).expect(201)
    (await _evict(api, "b")).expect(429, "TooManyRequests")

    async def counted() -> bool:
        status = await _status(api)
        return bool(status["currentHealthy"] == 2 and status["disruptionsAllowed"] == 0)

    await api.eventually(counted)


@case
async def several_budgets_are_an_error(api: Stand) -> None:
    await _web(api, "a", "b")
    await _budget(api, "one", expected=2, minAvailable=0)
    await _budget(api, "two", expected=2, minAvailable=0)
    answer = (await _evict(api, "a")).expect(500)
    assert answer.message == (
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
        "support."
    )
    assert not answer.reason
    assert "deletionTimestamp" not in (await api.get(PODS, "a")).expect(200).metadata


@case
async def a_dry_eviction_asks_and_reserves_nothing(api: Stand) -> None:
    await _web(api, "a", "b")
    await _budget(api, expected=2, minAvailable=1)
    before = await _status(api)
    for _ in range(3):
        (await _evict(api, "a", dryRun="All")).expect(201)
        (await _evict(api, "a", {"dryRun": ["All"]})).expect(201)
    assert await _status(api) == before
    pod = (await api.get(PODS, "a")).expect(200)
    assert "deletionTimestamp" not in pod.metadata
    assert [each["type"] for each in pod.body["status"]["conditions"]] == ["Ready"]


@case
async def a_dry_eviction_is_refused_by_an_exhausted_budget(api: Stand) -> None:
    await _web(api, "a")
    await _budget(api, expected=1, minAvailable=1)
    (await _evict(api, "a", dryRun="All")).expect(429, "TooManyRequests")


@case
async def the_budget_is_taken_before_the_uid_is_compared(api: Stand) -> None:
    await _web(api, "a", "b")
    await _budget(api, expected=2, minAvailable=1)
    wrong = {"preconditions": {"uid": "another"}}
    answer = (await _evict(api, "a", wrong)).expect(409, "Conflict")
    assert "the UID in the precondition (another) does not match" in answer.message
    status = await _status(api)
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["a"]
    (await _evict(api, "b")).expect(429, "TooManyRequests")
    pod = (await api.get(PODS, "a")).expect(200)
    assert "deletionTimestamp" not in pod.metadata


@case
async def a_wrong_uid_without_a_budget_is_a_conflict(api: Stand) -> None:
    pod = await api.pod("web", ready=True)
    wrong = {"preconditions": {"uid": "another"}}
    (await _evict(api, "web", wrong)).expect(409, "Conflict")
    unchanged = (await api.get(PODS, "web")).expect(200)
    assert unchanged.version == pod["metadata"]["resourceVersion"]
    right = {"preconditions": {"uid": pod["metadata"]["uid"]}}
    (await _evict(api, "web", right)).expect(201)


@case
async def a_wrong_version_is_a_conflict(api: Stand) -> None:
    pod = await api.pod("web", ready=True)
    wrong = {"preconditions": {"resourceVersion": "1"}}
    answer = (await _evict(api, "web", wrong)).expect(409, "Conflict")
    assert "the ResourceVersion in the precondition (1) does not match" in answer.message
    right = {"preconditions": {"resourceVersion": pod["metadata"]["resourceVersion"]}}
    (await _evict(api, "web", right)).expect(201)


@case
async def a_pending_pod_needs_no_budget(api: Stand) -> None:
    await api.pod("bound", labels={"app": "web"})
    await api.pod("unbound", labels={"app": "web"}, bound=False)
    await _budget(api, expected=2, minAvailable=5)
    (await _evict(api, "bound")).expect(201)
    assert "deletionTimestamp" in (await api.get(PODS, "bound")).expect(200).metadata
    (await _evict(api, "unbound")).expect(201)
    (await api.get(PODS, "unbound")).expect(404, "NotFound")


@case
async def a_pending_pod_may_have_several_budgets(api: Stand) -> None:
    await api.pod("web", labels={"app": "web"})
    await _budget(api, "one", expected=1, minAvailable=5)
    await _budget(api, "two", expected=1, minAvailable=5)
    (await _evict(api, "web")).expect(201)


@case
async def a_finished_pod_needs_no_budget(api: Stand) -> None:
    await api.pod("web", labels={"app": "web"})
    await api.run("web", ready=False, phase="Failed")
    await _budget(api, expected=1, minAvailable=5)
    (await _evict(api, "web")).expect(201)
    (await api.get(PODS, "web")).expect(404, "NotFound")


@case
async def a_terminating_pod_needs_no_budget(api: Stand) -> None:
    await _web(api, "a")
    await _budget(api, expected=1, minAvailable=5)
    (await api.delete(PODS, "a", {"gracePeriodSeconds": 600})).expect(200)
    (await _evict(api, "a")).expect(201)


@case
async def an_unready_pod_of_a_broken_budget_stays(api: Stand) -> None:
    await _web(api, "well")
    await _web(api, "ill", ready=False)
    await _budget(api, expected=2, minAvailable=2)
    answer = (await _evict(api, "ill")).expect(429, "TooManyRequests")
    words = "The disruption budget budget needs 2 healthy pods and has 1 currently"
    assert answer.causes[0]["message"] == words


@case
async def an_unready_pod_may_go_while_enough_are_healthy(api: Stand) -> None:
    await _web(api, "well")
    await _web(api, "ill", ready=False)
    await _budget(api, expected=2, minAvailable=1, unhealthyPodEvictionPolicy="IfHealthyBudget")
    before = await _status(api)
    assert before["disruptionsAllowed"] == 0
    (await _evict(api, "ill")).expect(201)
    assert "disruptedPods" not in await _status(api)


@case
async def always_allow_lets_unready_pods_go(api: Stand) -> None:
    await _web(api, "well")
    await _web(api, "ill", ready=False)
    await _budget(api, expected=2, minAvailable=2, unhealthyPodEvictionPolicy="AlwaysAllow")
    (await _evict(api, "well")).expect(429, "TooManyRequests")
    (await _evict(api, "ill")).expect(201)
    assert "disruptedPods" not in await _status(api)


@case
async def another_namespaces_budget_does_not_count(api: Stand) -> None:
    name = api.unique("budget")
    given = build.pdb(name, match={"app": "web"}, min_available=100)
    path = PDBS.path(namespace="default")
    (await api.call("POST", path, given)).expect(201)
    await _web(api, "a")
    (await _evict(api, "a")).expect(201)
    await api.call("DELETE", f"{path}/{name}")


@case
async def an_empty_selector_covers_the_whole_namespace(api: Stand) -> None:
    await _web(api, "a")
    given = {"metadata": {"name": "budget"}, "spec": {"selector": {}, "minAvailable": 1}}
    (await api.create(PDBS, given)).expect(201)

    async def counted() -> bool:
        return bool((await _status(api)).get("expectedPods") == 1)

    await api.eventually(counted)
    (await _evict(api, "a")).expect(429, "TooManyRequests")
