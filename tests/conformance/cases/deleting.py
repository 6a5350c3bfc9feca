# SPDX-License-Identifier: Apache-2.0
"""Deleting: grace, finalizers, preconditions."""

from __future__ import annotations

from common.kube.resources import LEASES, NAMESPACES, PODS
from simulator import build
from simulator.api.catalog import CONFIGMAPS
from tests.support.stands.conformance import Json, Stand, case


def _grace(answer: Json) -> int:
    return int(answer["metadata"]["deletionGracePeriodSeconds"])


@case
async def a_bound_pod_ends_gracefully(api: Stand) -> None:
    await api.pod("web", spec={"terminationGracePeriodSeconds": 77})
    ending = (await api.delete(PODS, "web")).expect(200)
    assert ending.body["kind"] == "Pod"
    assert _grace(ending.body) == 77
    assert ending.metadata["generation"] == 2
    again = (await api.get(PODS, "web")).expect(200)
    assert again.metadata["deletionTimestamp"] == ending.metadata["deletionTimestamp"]
    assert again.metadata["deletionTimestamp"] > again.metadata["creationTimestamp"]


@case
async def a_grace_period_can_be_given(api: Stand) -> None:
    await api.pod("a")
    assert _grace((await api.delete(PODS, "a", {"gracePeriodSeconds": 9})).expect(200).body) == 9
    await api.pod("b")
    assert _grace((await api.delete(PODS, "b", gracePeriodSeconds=8)).expect(200).body) == 8
    await api.pod("c")
    assert _grace((await api.delete(PODS, "c", {"gracePeriodSeconds": -5})).expect(200).body) == 1


@case
async def an_unbound_pod_is_deleted_at_once(api: Stand) -> None:
    await api.pod("web", bound=False)
    gone = (await api.delete(PODS, "web")).expect(200).body
    assert (gone["kind"], _grace(gone)) == ("Pod", 0)
    (await api.get(PODS, "web")).expect(404, "NotFound")


@case
async def a_finished_pod_is_deleted_at_once(api: Stand) -> None:
    for phase in ("Succeeded", "Failed"):
        await api.pod("web")
        await api.run("web", ready=False, phase=phase)
        (await api.delete(PODS, "web")).expect(200)
        (await api.get(PODS, "web")).expect(404, "NotFound")


@case
async def no_grace_deletes_a_bound_pod_at_once(api: Stand) -> None:
    await api.pod("web")
    (await api.delete(PODS, "web", {"gracePeriodSeconds": 0})).expect(200)
    (await api.get(PODS, "web")).expect(404, "NotFound")


@case
async def grace_can_only_be_shortened(api: Stand) -> None:
    await api.pod("web", spec={"terminationGracePeriodSeconds": 30})
    first = (await api.delete(PODS, "web")).expect(200)
    same = (await api.delete(PODS, "web")).expect(200)
    longer = (await api.delete(PODS, "web", {"gracePeriodSeconds": 60})).expect(200)
    assert first.version == same.version == longer.version
    shorter = (await api.delete(PODS, "web", {"gracePeriodSeconds": 5})).expect(200)
    assert _grace(shorter.body) == 5
    assert shorter.metadata["deletionTimestamp"] < first.metadata["deletionTimestamp"]
    (await api.delete(PODS, "web", {"gracePeriodSeconds": 0})).expect(200)
    (await api.get(PODS, "web")).expect(404, "NotFound")


@case
async def deletion_of_plain_data_answers_with_a_status(api: Stand) -> None:
    made = (await api.create(CONFIGMAPS, {"metadata": {"name": "data"}})).expect(201)
    gone = (await api.delete(CONFIGMAPS, "data")).expect(200).body
    assert (gone["kind"], gone["status"]) == ("Status", "Success")
    details = {"name": "data", "kind": "configmaps", "uid": made.metadata["uid"]}
    assert gone["details"] == details
    (await api.delete(CONFIGMAPS, "data")).expect(404, "NotFound")


@case
async def a_uid_precondition_protects_a_successor(api: Stand) -> None:
    pod = await api.pod("web")
    other = {"preconditions": {"uid": "another"}, "gracePeriodSeconds": 0}
    answer = (await api.delete(PODS, "web", other)).expect(409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on Pod "web": the UID in the precondition (another) does '
        f"not match the UID in record ({pod['metadata']['uid']}). The object might have been "
        "deleted and then recreated"
    )
    own = {"preconditions": {"uid": pod["metadata"]["uid"]}, "gracePeriodSeconds": 0}
    (await api.delete(PODS, "web", own)).expect(200)


@case
async def a_version_precondition_protects_a_change(api: Stand) -> None:
    old = await api.pod("web")
    new = await api.run("web")
    for version, status in ((old, 409), (new, 200)):
        wanted = {"resourceVersion": version["metadata"]["resourceVersion"]}
        options = {"preconditions": wanted, "gracePeriodSeconds": 0}
        (await api.delete(PODS, "web", options)).expect(status)


@case
async def a_dry_deletion_deletes_nothing(api: Stand) -> None:
    pod = await api.pod("web")
    tried = (await api.delete(PODS, "web", dryRun="All")).expect(200)
    assert "deletionTimestamp" in tried.metadata
    assert (await api.get(PODS, "web")).expect(200).body == pod


@case
async def a_finalizer_holds_an_object_back(api: Stand) -> None:
    hold = {"metadata": {"name": "lead", "finalizers": ["a.example/hold"]}, "spec": {}}
    (await api.create(LEASES, hold)).expect(201)
    ending = (await api.delete(LEASES, "lead")).expect(200)
    assert (ending.body["kind"], _grace(ending.body)) == ("Lease", 0)
    assert (await api.delete(LEASES, "lead")).expect(200).version == ending.version
    (await api.patch(LEASES, "lead", {"metadata": {"finalizers": []}})).expect(200)
    (await api.get(LEASES, "lead")).expect(404, "NotFound")


@case
async def no_finalizer_is_added_to_what_is_being_deleted(api: Stand) -> None:
    await api.pod("web", bound=False, finalizers=["a.example/hold"])
    (await api.delete(PODS, "web")).expect(200)
    more = {"metadata": {"finalizers": ["a.example/hold", "a.example/more"]}}
    answer = (await api.patch(PODS, "web", more)).expect(422, "Invalid")
    assert answer.fields == {"metadata.finalizers"}
    (await api.patch(PODS, "web", {"metadata": {"finalizers": None}})).expect(200)
    (await api.get(PODS, "web")).expect(404, "NotFound")


@case
async def a_graceful_pod_outlives_its_finalizers(api: Stand) -> None:
    await api.pod("web", finalizers=["a.example/hold"])
    (await api.delete(PODS, "web", {"gracePeriodSeconds": 30})).expect(200)
    (await api.patch(PODS, "web", {"metadata": {"finalizers": None}})).expect(200)
    assert "deletionTimestamp" in (await api.get(PODS, "web")).expect(200).metadata


@case
async def a_selection_is_deleted_at_once(api: Stand) -> None:
    for name in "abc":
        await api.pod(name, bound=False)
    answer = await api.call("DELETE", api.path(PODS), params={"labelSelector": "app in (a,b)"})
    assert answer.expect(200).body["kind"] == "PodList"
    assert (await api.list(PODS)).expect(200).names == ["c"]


@case
async def nonsense_options_are_refused(api: Stand) -> None:
    await api.pod("web")
    answer = await api.delete(PODS, "web", {"propagationPolicy": "Sideways"})
    assert answer.expect(422, "Invalid").fields == {"propagationPolicy"}
    pod = {"kind": "Pod", "apiVersion": "v1"}
    (await api.delete(PODS, "web", pod)).expect(400, "BadRequest")
    (await api.call("DELETE", api.path(PODS, "web"), "{nope")).expect(400, "BadRequest")


@case
async def a_terminating_namespace_takes_nothing_new(api: Stand) -> None:
    name = api.unique("space")
    (await api.create(NAMESPACES, build.namespace(name))).expect(201)
    path = PODS.path(namespace=name)
    # Graceful and without a kubelet, so that the namespace has something to wait for.
    pod = build.pod("web", namespace=name, node=api.nowhere, spec={"schedulerName": "nobody"})
    pod["spec"]["terminationGracePeriodSeconds"] = 600
    (await api.call("POST", path, pod)).expect(201)
    ending = (await api.delete(NAMESPACES, name)).expect(200).body
    assert ending["status"]["phase"] == "Terminating"
    late = {**pod, "metadata": {"name": "late"}}
    answer = (await api.call("POST", path, late)).expect(403, "Forbidden")
    assert answer.causes[0]["reason"] == "NamespaceTerminating"
    await api.call("DELETE", f"{path}/web", {"gracePeriodSeconds": 0})


@case
async def a_deleted_namespace_takes_its_content_along(api: Stand) -> None:
    name = api.unique("space")
    (await api.create(NAMESPACES, build.namespace(name))).expect(201)
    path = CONFIGMAPS.path(namespace=name)
    (await api.call("POST", path, {"metadata": {"name": "data"}})).expect(201)
    (await api.delete(NAMESPACES, name)).expect(200)
    await api.gone(NAMESPACES, name)
    (await api.call("GET", f"{path}/data")).expect(404, "NotFound")


@case
async def some_namespaces_are_immortal(api: Stand) -> None:
    for name in ("default", "kube-system"):
        (await api.delete(NAMESPACES, name)).expect(403, "Forbidden")
