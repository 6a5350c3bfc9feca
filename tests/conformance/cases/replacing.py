# SPDX-License-Identifier: Apache-2.0
"""PUT: optimistic concurrency, what an update cannot touch, generations."""

from __future__ import annotations

import copy

from common.kube.resources import DEPLOYMENTS, LEASES, NODES, PDBS, PODS, STATEFULSETS
from simulator import build
from tests.support.stands.conformance import Json, Stand, case, typed


def _labelled(obj: Json, **labels: str) -> Json:
    made = copy.deepcopy(obj)
    made["metadata"]["labels"] = {**made["metadata"].get("labels", {}), **labels}
    return made


@case
async def an_update_of_an_old_version_is_a_conflict(api: Stand) -> None:
    old = await api.pod("web")
    new = (await api.put(PODS, _labelled(old, x="1"))).expect(200)
    assert int(new.version) > int(old["metadata"]["resourceVersion"])
    answer = (await api.put(PODS, _labelled(old, x="2"))).expect(409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on pods "web": the object has been modified; please apply '
        "your changes to the latest version and try again"
    )
    assert answer.body["details"] == {"name": "web", "kind": "pods"}


@case
async def an_update_without_a_version_is_unconditional(api: Stand) -> None:
    old = await api.pod("web")
    await api.put(PODS, _labelled(old, x="1"))
    unversioned = _labelled(old, x="2")
    del unversioned["metadata"]["resourceVersion"]
    assert (await api.put(PODS, unversioned)).expect(200).metadata["labels"]["x"] == "2"


@case
async def some_kinds_demand_a_version(api: Stand) -> None:
    lease = typed(LEASES, {"metadata": {"name": "lead"}, "spec": {}})
    (await api.create(LEASES, lease)).expect(201)
    budget = build.pdb("budget", match={"a": "b"}, namespace=api.namespace, min_available=1)
    (await api.create(PDBS, budget)).expect(201)
    for resource, obj in ((LEASES, lease), (PDBS, budget)):
        answer = (await api.put(resource, obj)).expect(422, "Invalid")
        assert answer.fields == {"metadata.resourceVersion"}


@case
async def an_update_of_nothing_changes_nothing(api: Stand) -> None:
    old = await api.pod("web")
    same = (await api.put(PODS, old)).expect(200)
    assert same.version == old["metadata"]["resourceVersion"]


@case
async def an_update_of_another_uid_is_a_conflict(api: Stand) -> None:
    other = copy.deepcopy(await api.pod("web"))
    other["metadata"]["uid"] = "another"
    answer = (await api.put(PODS, other)).expect(409, "Conflict")
    assert "UID in precondition: another" in answer.message


@case
async def an_update_must_mean_the_object_of_its_path(api: Stand) -> None:
    pod = await api.pod("web")
    for key in ("name", "namespace"):
        other = copy.deepcopy(pod)
        other["metadata"][key] = "other"
        (await api.call("PUT", api.path(PODS, "web"), other)).expect(400, "BadRequest")


@case
async def an_update_of_a_missing_object_is_not_found(api: Stand) -> None:
    made = build.pod("web", namespace=api.namespace)
    (await api.put(PODS, made)).expect(404, "NotFound")


@case
async def an_update_may_create_a_lease(api: Stand) -> None:
    lease = typed(LEASES, {"metadata": {"name": "lead"}, "spec": {"holderIdentity": "me"}})
    (await api.put(LEASES, lease)).expect(201)
    assert (await api.get(LEASES, "lead")).expect(200).body["spec"] == lease["spec"]


@case
async def an_update_keeps_what_it_leaves_out(api: Stand) -> None:
    old = await api.pod("web")
    bare = _labelled(old, x="1")
    for key in ("uid", "creationTimestamp", "namespace"):
        del bare["metadata"][key]
    bare["metadata"]["generation"] = 99
    new = (await api.put(PODS, bare)).expect(200)
    for key in ("uid", "creationTimestamp", "generation", "namespace"):
        assert new.metadata[key] == old["metadata"][key]


@case
async def an_update_cannot_begin_a_deletion(api: Stand) -> None:
    pod = copy.deepcopy(await api.pod("web"))
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    answer = (await api.put(PODS, pod)).expect(422, "Invalid")
    assert answer.fields == {"metadata.deletionTimestamp"}


@case
async def an_update_cannot_touch_the_status(api: Stand) -> None:
    pod = _labelled(await api.pod("web"), x="1")
    pod["status"]["phase"] = "Running"
    assert (await api.put(PODS, pod)).expect(200).body["status"]["phase"] == "Pending"


@case
async def generation_counts_changes_of_the_spec(api: Stand) -> None:
    pod = await api.pod("web")
    labelled = (await api.put(PODS, _labelled(pod, x="1"))).expect(200)
    assert labelled.metadata["generation"] == 1
    changed = copy.deepcopy(labelled.body)
    changed["spec"]["containers"][0]["image"] = "registry.invalid/app:2"
    assert (await api.put(PODS, changed)).expect(200).metadata["generation"] == 2


@case
async def generation_of_a_deployment_counts_annotations_too(api: Stand) -> None:
    given = build.deployment("web", 0, namespace=api.namespace)
    (await api.create(DEPLOYMENTS, given)).expect(201)

    async def generation(body: Json) -> int:
        answer = (await api.patch(DEPLOYMENTS, "web", body)).expect(200)
        return int(answer.metadata["generation"])

    first = await generation({"metadata": {"labels": {"x": "1"}}})
    assert await generation({"metadata": {"annotations": {"x": "1"}}}) == first + 1
    assert await generation({"spec": {"minReadySeconds": 1}}) == first + 2


@case
async def a_pod_cannot_move(api: Stand) -> None:
    pod = copy.deepcopy(await api.pod("web", bound=False))
    pod["spec"]["nodeName"] = "elsewhere"
    answer = (await api.put(PODS, pod)).expect(422, "Invalid")
    assert answer.fields == {"spec"}
    assert "pod updates may not change fields other than" in answer.message


@case
async def most_of_a_pod_never_changes(api: Stand) -> None:
    pod = await api.pod("web")
    for key, value in (
        ("restartPolicy", "Never"),
        ("hostname", "other"),
        ("nodeSelector", {"a": "b"}),
    ):
        changed = copy.deepcopy(pod)
        changed["spec"][key] = value
        assert "spec" in (await api.put(PODS, changed)).expect(422, "Invalid").fields


@case
async def a_pod_may_get_more_tolerations(api: Stand) -> None:
    pod = copy.deepcopy(await api.pod("web"))
    pod["spec"]["tolerations"].append({"key": "a", "operator": "Exists"})
    more = (await api.put(PODS, pod)).expect(200).body
    fewer = copy.deepcopy(more)
    fewer["spec"]["tolerations"] = fewer["spec"]["tolerations"][:-1]
    (await api.put(PODS, fewer)).expect(422, "Invalid")


@case
async def the_selector_of_a_deployment_never_changes(api: Stand) -> None:
    given = build.deployment("web", 0, namespace=api.namespace)
    (await api.create(DEPLOYMENTS, given)).expect(201)
    body = {
        "spec": {
            "selector": {"matchLabels": {"app": None, "x": "y"}},
            "template": {"metadata": {"labels": {"x": "y"}}},
        }
    }
    answer = (await api.patch(DEPLOYMENTS, "web", body)).expect(422, "Invalid")
    assert answer.fields == {"spec.selector"}


@case
async def most_of_a_stateful_set_never_changes(api: Stand) -> None:
    given = build.stateful_set("db", 0, namespace=api.namespace)
    (await api.create(STATEFULSETS, given)).expect(201)
    answer = await api.patch(STATEFULSETS, "db", {"spec": {"serviceName": "other"}})
    assert answer.expect(422, "Invalid").fields == {"spec"}
    (await api.patch(STATEFULSETS, "db", {"spec": {"minReadySeconds": 1}})).expect(200)


@case
async def a_dry_update_keeps_nothing(api: Stand) -> None:
    pod = await api.pod("web")
    tried = (await api.put(PODS, _labelled(pod, x="1"), dryRun="All")).expect(200)
    assert tried.metadata["labels"]["x"] == "1"
    assert (await api.get(PODS, "web")).expect(200).body == pod


@case
async def an_update_must_stay_valid(api: Stand) -> None:
    pod = await api.pod("web")
    answer = (await api.put(PODS, _labelled(pod, x="not valid"))).expect(422, "Invalid")
    assert answer.fields == {"metadata.labels"}


@case
async def cordoning_a_node_is_an_update_of_its_spec(api: Stand) -> None:
    name = api.unique("node")
    (await api.create(NODES, build.node(name))).expect(201)
    try:
        body = {"spec": {"unschedulable": True}}
        assert (await api.patch(NODES, name, body)).expect(200).body["spec"]["unschedulable"]
        chosen = {"fieldSelector": f"spec.unschedulable=true,metadata.name={name}"}
        assert (await api.list(NODES, **chosen)).names == [name]
        back = (await api.patch(NODES, name, {"spec": {"unschedulable": False}})).expect(200)
        assert "unschedulable" not in back.body["spec"]
    finally:
        await api.delete(NODES, name)
