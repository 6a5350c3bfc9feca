# SPDX-License-Identifier: Apache-2.0
"""Subresources: status, scale and binding."""

from __future__ import annotations

import copy

from common.kube.api import PatchKind
from common.kube.resources import DEPLOYMENTS, NODES, PDBS, PODS, STATEFULSETS
from simulator import build
from tests.support.stands.conformance import Json, Stand, case


@case
async def the_status_of_a_pod_is_changed_alone(api: Stand) -> None:
    pod = copy.deepcopy(await api.pod("web"))
    pod["status"] = {"phase": "Running"}
    pod["spec"]["containers"][0]["image"] = "ignored"
    pod["metadata"]["labels"] = {"via": "status"}
    made = (await api.put(PODS, pod, "status")).expect(200)
    assert made.body["status"]["phase"] == "Running"
    assert made.body["status"]["qosClass"] == "Burstable"
    assert made.body["spec"]["containers"][0]["image"] == build.IMAGE
    assert made.metadata["generation"] == 1
    # Of pods the labels go along; deployments keep theirs.
    assert made.metadata["labels"] == {"via": "status"}


@case
async def the_status_of_a_pod_does_not_touch_its_owners(api: Stand) -> None:
    await api.pod("web")
    owner = {"apiVersion": "v1", "kind": "Node", "name": "none", "uid": "1"}
    body = {"metadata": {"ownerReferences": [owner]}, "status": {"phase": "Running"}}
    made = (await api.patch(PODS, "web", body, "status")).expect(200)
    assert made.body["status"]["phase"] == "Running"
    assert "ownerReferences" not in made.metadata


@case
async def the_status_of_a_deployment_is_changed_alone(api: Stand) -> None:
    given = build.deployment("web", 0, namespace=api.namespace)
    (await api.create(DEPLOYMENTS, given)).expect(201)
    body = {
        "metadata": {"labels": {"x": "1"}, "annotations": {"y": "2"}},
        "spec": {"replicas": 9},
        "status": {"observedGeneration": 0, "replicas": 7},
    }
    made = (await api.patch(DEPLOYMENTS, "web", body, "status")).expect(200)
    assert made.body["spec"]["replicas"] == 0
    assert "x" not in made.metadata["labels"]
    assert made.metadata["annotations"]["y"] == "2"


@case
async def the_status_of_a_node_is_changed_alone(api: Stand) -> None:
    name = api.unique("node")
    (await api.create(NODES, build.node(name))).expect(201)
    body = {"spec": {"unschedulable": True}, "status": {"allocatable": {"cpu": "4"}}}
    made = (await api.patch(NODES, name, body, "status")).expect(200).body
    assert made["status"]["allocatable"]["cpu"] == "4"
    assert "unschedulable" not in made["spec"]
    await api.delete(NODES, name)


@case
async def a_status_is_read_with_its_object(api: Stand) -> None:
    pod = await api.pod("web")
    assert (await api.get(PODS, "web", "status")).expect(200).body == pod


@case
async def a_status_update_of_an_old_version_is_a_conflict(api: Stand) -> None:
    pod = await api.pod("web")
    await api.run("web")
    (await api.put(PODS, pod, "status")).expect(409, "Conflict")


@case
async def a_negative_budget_status_is_refused(api: Stand) -> None:
    given = build.pdb("budget", match={"a": "b"}, namespace=api.namespace, min_available=1)
    (await api.create(PDBS, given)).expect(201)
    body = {"status": {"disruptionsAllowed": -1}}
    answer = (await api.patch(PDBS, "budget", body, "status")).expect(422, "Invalid")
    assert answer.fields == {"status.disruptionsAllowed"}


async def _scale(api: Stand, replicas: int = 0) -> Json:
    given = build.deployment("web", replicas, namespace=api.namespace, spec={"schedulerName": "no"})
    (await api.create(DEPLOYMENTS, given)).expect(201)
    scale: Json = (await api.get(DEPLOYMENTS, "web", "scale")).expect(200).body
    return scale


@case
async def a_scale_shows_replicas_and_selector(api: Stand) -> None:
    scale = await _scale(api)
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["status"]["selector"] == "app=web"
    assert scale["metadata"]["name"] == "web"
    assert not scale["spec"].get("replicas")


@case
async def a_scale_is_patched(api: Stand) -> None:
    await _scale(api)
    for kind, body in (
        (PatchKind.MERGE, {"spec": {"replicas": 1}}),
        (PatchKind.STRATEGIC, {"spec": {"replicas": 2}}),
        (PatchKind.JSON, [{"op": "replace", "path": "/spec/replicas", "value": 3}]),
    ):
        made = (await api.patch(DEPLOYMENTS, "web", body, "scale", kind=kind)).expect(200).body
        assert made["kind"] == "Scale"
        deployment = (await api.get(DEPLOYMENTS, "web")).expect(200).body
        assert made["spec"]["replicas"] == deployment["spec"]["replicas"]
    await api.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}}, "scale")


@case
async def a_scale_raises_the_generation(api: Stand) -> None:
    await _scale(api)
    before = (await api.get(DEPLOYMENTS, "web")).expect(200).metadata["generation"]
    (await api.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1}}, "scale")).expect(200)
    after = (await api.get(DEPLOYMENTS, "web")).expect(200).metadata["generation"]
    assert after == before + 1
    await api.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}}, "scale")


@case
async def a_scale_of_an_old_version_is_a_conflict(api: Stand) -> None:
    scale = await _scale(api)
    (await api.patch(DEPLOYMENTS, "web", {"metadata": {"labels": {"x": "1"}}})).expect(200)
    scale["spec"]["replicas"] = 1
    (await api.put(DEPLOYMENTS, scale, "scale")).expect(409, "Conflict")
    del scale["metadata"]["resourceVersion"]
    scale["metadata"]["uid"] = "another"
    (await api.put(DEPLOYMENTS, scale, "scale")).expect(409, "Conflict")


@case
async def a_negative_scale_is_refused(api: Stand) -> None:
    await _scale(api)
    answer = await api.patch(DEPLOYMENTS, "web", {"spec": {"replicas": -1}}, "scale")
    assert answer.expect(422, "Invalid").fields == {"spec.replicas"}


@case
async def stateful_sets_scale_too(api: Stand) -> None:
    given = build.stateful_set("db", 0, namespace=api.namespace)
    (await api.create(STATEFULSETS, given)).expect(201)
    assert (await api.get(STATEFULSETS, "db", "scale")).expect(200).body["kind"] == "Scale"


def _binding(name: str, node: str, **metadata: object) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"kind": "Node", "name": node},
    }


@case
async def a_binding_gives_a_pod_its_node(api: Stand) -> None:
    pod = await api.pod("web", bound=False)
    binding = _binding("web", api.nowhere, uid=pod["metadata"]["uid"], annotations={"a": "b"})
    answer = (await api.post(PODS, "web", "binding", binding)).expect(201)
    assert (answer.body["kind"], answer.body["status"]) == ("Status", "Success")
    bound = (await api.get(PODS, "web")).expect(200).body
    assert bound["spec"]["nodeName"] == api.nowhere
    assert bound["metadata"]["annotations"]["a"] == "b"
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert condition["lastTransitionTime"]


@case
async def a_pod_is_bound_once(api: Stand) -> None:
    await api.pod("web")
    answer = await api.post(PODS, "web", "binding", _binding("web", "other"))
    answer.expect(409, "Conflict")
    assert f'pod web is already assigned to node "{api.nowhere}"' in answer.message


@case
async def a_gated_pod_is_not_bound(api: Stand) -> None:
    await api.pod("web", bound=False, spec={"schedulingGates": [{"name": "wait"}]})
    answer = await api.post(PODS, "web", "binding", _binding("web", api.nowhere))
    assert "non-empty .spec.schedulingGates" in answer.expect(409, "Conflict").message


@case
async def a_terminating_pod_is_not_bound(api: Stand) -> None:
    await api.pod("web", bound=False, finalizers=["a.example/hold"])
    (await api.delete(PODS, "web")).expect(200)
    answer = await api.post(PODS, "web", "binding", _binding("web", api.nowhere))
    assert "is being deleted" in answer.expect(409, "Conflict").message
    await api.patch(PODS, "web", {"metadata": {"finalizers": None}})


@case
async def a_binding_must_mean_its_pod(api: Stand) -> None:
    await api.pod("web", bound=False)
    post = api.post
    (await post(PODS, "web", "binding", _binding("other", "node"))).expect(400, "BadRequest")
    (await post(PODS, "web", "binding", _binding("web", "node", uid="x"))).expect(409, "Conflict")
    old = _binding("web", "node", resourceVersion="1")
    (await post(PODS, "web", "binding", old)).expect(409, "Conflict")
    (await post(PODS, "none", "binding", _binding("none", "node"))).expect(404, "NotFound")


@case
async def a_dry_binding_binds_nothing(api: Stand) -> None:
    pod = await api.pod("web", bound=False)
    (await api.post(PODS, "web", "binding", _binding("web", "node"), dryRun="All")).expect(201)
    assert (await api.get(PODS, "web")).expect(200).body == pod


@case
async def a_bound_pod_is_labelled_with_its_zone(api: Stand) -> None:
    name = api.unique("node")
    (await api.create(NODES, build.node(name, zone="east"))).expect(201)

    async def known() -> bool:
        pod = api.unique("pod")
        await api.pod(pod, bound=False)
        (await api.post(PODS, pod, "binding", _binding(pod, name))).expect(201)
        labels = (await api.get(PODS, pod)).expect(200).metadata["labels"]
        await api.delete(PODS, pod, gracePeriodSeconds=0)
        return bool(labels.get("topology.kubernetes.io/zone") == "east")

    await api.eventually(known)
    await api.delete(NODES, name)
