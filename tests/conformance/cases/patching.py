# SPDX-License-Identifier: Apache-2.0
"""Patches: merge, JSON and strategic merge."""

from __future__ import annotations

from common.kube.api import PatchKind
from common.kube.resources import DEPLOYMENTS, NODES, PODS
from simulator import build
from tests.support.stands.conformance import Stand, case

JSON, MERGE, STRATEGIC = PatchKind.JSON, PatchKind.MERGE, PatchKind.STRATEGIC


def _labels(**labels: str | None) -> dict[str, object]:
    return {"metadata": {"labels": labels}}


@case
async def a_merge_patch_adds_and_removes(api: Stand) -> None:
    await api.pod("web", labels={"app": "web"})
    added = (await api.patch(PODS, "web", _labels(x="1"))).expect(200)
    assert added.metadata["labels"] == {"app": "web", "x": "1"}
    removed = (await api.patch(PODS, "web", _labels(x=None))).expect(200)
    assert removed.metadata["labels"] == {"app": "web"}


@case
async def a_merge_patch_replaces_lists(api: Stand) -> None:
    await api.pod("web", finalizers=["a.example/one"])
    body = {"metadata": {"finalizers": ["a.example/two"]}}
    assert (await api.patch(PODS, "web", body)).expect(200).metadata["finalizers"] == [
        "a.example/two"
    ]
    await api.patch(PODS, "web", {"metadata": {"finalizers": None}})


@case
async def a_patch_that_changes_nothing_keeps_the_version(api: Stand) -> None:
    pod = await api.pod("web", labels={"app": "web"})
    same = (await api.patch(PODS, "web", _labels(app="web"))).expect(200)
    assert same.version == pod["metadata"]["resourceVersion"]


@case
async def a_patch_with_an_old_version_is_a_conflict(api: Stand) -> None:
    await api.pod("web")
    body = {"metadata": {"resourceVersion": "1", "labels": {"x": "1"}}}
    (await api.patch(PODS, "web", body)).expect(409, "Conflict")


@case
async def a_patch_cannot_change_what_an_object_is(api: Stand) -> None:
    await api.pod("web")
    answer = (await api.patch(PODS, "web", {"metadata": {"uid": "other"}})).expect(422, "Invalid")
    assert answer.fields == {"metadata.uid"}
    (await api.patch(PODS, "web", {"metadata": {"name": "other"}})).expect(400, "BadRequest")
    (await api.patch(PODS, "web", {"kind": "Node"})).expect(422, "Invalid")


@case
async def a_patch_must_leave_a_valid_object(api: Stand) -> None:
    await api.pod("web")
    answer = (await api.patch(PODS, "web", _labels(x="not valid"))).expect(422, "Invalid")
    assert answer.fields == {"metadata.labels"}
    body = {"metadata": {"labels": {"x": 1}}}
    (await api.patch(PODS, "web", body)).expect(422, "Invalid")


@case
async def a_malformed_patch_is_a_bad_request(api: Stand) -> None:
    await api.pod("web")
    (await api.patch(PODS, "web", "{nope")).expect(400, "BadRequest")
    (await api.patch(PODS, "web", [1])).expect(400, "BadRequest")
    (await api.patch(PODS, "web", {"op": "add"}, kind=JSON)).expect(400, "BadRequest")


@case
async def a_patch_of_a_missing_object_is_not_found(api: Stand) -> None:
    (await api.patch(PODS, "missing", _labels(x="1"))).expect(404, "NotFound")


@case
async def an_unknown_patch_type_is_unsupported(api: Stand) -> None:
    await api.pod("web")
    path = api.path(PODS, "web")
    answer = await api.call("PATCH", path, {}, content_type="text/plain")
    answer.expect(415, "UnsupportedMediaType")


@case
async def a_dry_patch_keeps_nothing(api: Stand) -> None:
    pod = await api.pod("web")
    tried = (await api.patch(PODS, "web", _labels(x="1"), dryRun="All")).expect(200)
    assert tried.metadata["labels"]["x"] == "1"
    assert (await api.get(PODS, "web")).expect(200).body == pod


@case
async def a_json_patch_works_through_its_operations(api: Stand) -> None:
    await api.pod("web", labels={"app": "web"}, annotations={"keep": "1"})
    operations = [
        {"op": "test", "path": "/metadata/labels/app", "value": "web"},
        {"op": "add", "path": "/metadata/labels/x", "value": "1"},
        {"op": "replace", "path": "/metadata/labels/app", "value": "new"},
        {"op": "add", "path": "/metadata/annotations/example.com~1y", "value": "2"},
        {"op": "copy", "from": "/metadata/labels/x", "path": "/metadata/labels/z"},
        {"op": "move", "from": "/metadata/labels/x", "path": "/metadata/labels/w"},
        {"op": "remove", "path": "/metadata/annotations/keep"},
    ]
    made = (await api.patch(PODS, "web", operations, kind=JSON)).expect(200)
    assert made.metadata["labels"] == {"app": "new", "z": "1", "w": "1"}
    assert made.metadata["annotations"] == {"example.com/y": "2"}


@case
async def a_json_patch_that_does_not_apply_is_invalid(api: Stand) -> None:
    pod = await api.pod("web")
    for operation in (
        {"op": "test", "path": "/metadata/labels/app", "value": "other"},
        {"op": "remove", "path": "/metadata/labels/missing"},
        {"op": "add", "path": "/metadata/missing/x", "value": "1"},
        {"op": "nonsense", "path": "/metadata/labels/x"},
    ):
        good = {"op": "add", "path": "/metadata/labels/x", "value": "1"}
        (await api.patch(PODS, "web", [good, operation], kind=JSON)).expect(422, "Invalid")
    assert (await api.get(PODS, "web")).expect(200).body == pod


@case
async def a_strategic_patch_merges_lists_by_key(api: Stand) -> None:
    given = build.deployment("web", 0, namespace=api.namespace)
    (await api.create(DEPLOYMENTS, given)).expect(201)
    containers = [{"name": "app", "image": "registry.invalid/app:2"}, {"name": "new", "image": "x"}]
    body = {"spec": {"template": {"spec": {"containers": containers}}}}
    made = (await api.patch(DEPLOYMENTS, "web", body, kind=STRATEGIC)).expect(200).body
    found = {each["name"]: each for each in made["spec"]["template"]["spec"]["containers"]}
    assert found["app"]["image"] == "registry.invalid/app:2"
    assert found["app"]["resources"]["requests"] == {"cpu": "100m", "memory": "128Mi"}
    assert set(found) == {"app", "new"}


@case
async def a_strategic_patch_deletes_by_key(api: Stand) -> None:
    await api.pod("web", ready=True)
    body = {"status": {"conditions": [{"type": "Extra", "status": "True"}]}}
    (await api.patch(PODS, "web", body, "status", kind=STRATEGIC)).expect(200)
    body = {"status": {"conditions": [{"type": "Extra", "$patch": "delete"}]}}
    made = (await api.patch(PODS, "web", body, "status", kind=STRATEGIC)).expect(200).body
    assert [each["type"] for each in made["status"]["conditions"]] == ["Ready"]


@case
async def a_strategic_patch_keeps_the_order_it_is_told(api: Stand) -> None:
    await api.pod("web", ready=True)
    conditions = [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]
    order = [{"type": "A"}, {"type": "Ready"}, {"type": "B"}]
    body = {"status": {"conditions": conditions, "$setElementOrder/conditions": order}}
    made = (await api.patch(PODS, "web", body, "status", kind=STRATEGIC)).expect(200).body
    assert [each["type"] for each in made["status"]["conditions"]] == ["A", "Ready", "B"]


@case
async def a_strategic_patch_merges_finalizers(api: Stand) -> None:
    await api.pod("web", finalizers=["a.example/one"])
    body = {"metadata": {"finalizers": ["a.example/two"]}}
    made = (await api.patch(PODS, "web", body, kind=STRATEGIC)).expect(200)
    assert set(made.metadata["finalizers"]) == {"a.example/one", "a.example/two"}
    body = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.example/one"]}}
    made = (await api.patch(PODS, "web", body, kind=STRATEGIC)).expect(200)
    assert made.metadata["finalizers"] == ["a.example/two"]
    await api.patch(PODS, "web", {"metadata": {"finalizers": None}})


@case
async def a_strategic_patch_may_replace_a_map(api: Stand) -> None:
    await api.pod("web", labels={"app": "web"})
    body = {"metadata": {"labels": {"$patch": "replace", "only": "1"}}}
    made = (await api.patch(PODS, "web", body, kind=STRATEGIC)).expect(200)
    assert made.metadata["labels"] == {"only": "1"}


@case
async def a_strategic_patch_replaces_taints(api: Stand) -> None:
    name = api.unique("node")
    taints = [{"key": "a", "effect": "NoSchedule"}]
    (await api.create(NODES, build.node(name, taints=taints))).expect(201)
    body = {"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}
    made = (await api.patch(NODES, name, body, kind=STRATEGIC)).expect(200).body
    assert [taint["key"] for taint in made["spec"]["taints"]] == ["b"]
    await api.delete(NODES, name)


@case
async def a_strategic_patch_without_its_key_is_an_error(api: Stand) -> None:
    await api.pod("web")
    body = {"spec": {"containers": [{"image": "x"}]}}
    answer = (await api.patch(PODS, "web", body, kind=STRATEGIC)).expect(500)
    assert "does not contain declared merge key: name" in answer.message
