# SPDX-License-Identifier: Apache-2.0
"""Creating: what the server fills in, and what it refuses."""

from __future__ import annotations

import re
from typing import Any

from common.kube.resources import (
    NAMESPACES,
    PODS,
    REPLICASETS,
)
from simulator import build
from tests.support.stands.conformance import Json, Stand, case

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def _pod(name: str, **metadata: Any) -> Json:
    made = build.pod(name, spec={"schedulerName": "nobody"})
    del made["metadata"]["namespace"]
    made["metadata"].update(metadata)
    return made


@case
async def create_fills_in_metadata(api: Stand) -> None:
    made = (await api.create(PODS, _pod("web"))).expect(201)
    metadata = made.metadata
    assert (metadata["name"], metadata["namespace"]) == ("web", api.namespace)
    assert _UUID.fullmatch(metadata["uid"])
    assert _TIME.fullmatch(metadata["creationTimestamp"])
    assert metadata["generation"] == 1
    assert int(metadata["resourceVersion"]) > 0
    assert (await api.get(PODS, "web")).expect(200).body == made.body


@case
async def create_ignores_what_only_the_server_decides(api: Stand) -> None:
    given = _pod("web", uid="mine", creationTimestamp="2020-01-01T00:00:00Z", generation=7)
    made = (await api.create(PODS, {**given, "status": {"phase": "Running"}})).expect(201)
    assert made.metadata["uid"] != "mine"
    assert not made.metadata["creationTimestamp"].startswith("2020")
    assert made.metadata["generation"] == 1
    assert made.body["status"]["phase"] == "Pending"


@case
async def create_of_an_existing_name_is_refused(api: Stand) -> None:
    await api.pod("web")
    answer = (await api.create(PODS, _pod("web"))).expect(409, "AlreadyExists")
    assert answer.message == 'pods "web" already exists'


@case
async def generate_name_draws_a_free_name(api: Stand) -> None:
    given = _pod("x", generateName="web-")
    del given["metadata"]["name"]
    names = {(await api.create(PODS, given)).expect(201).metadata["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch(r"web-[a-z0-9]{5}", name) for name in names)


@case
async def dry_run_answers_and_keeps_nothing(api: Stand) -> None:
    made = (await api.create(PODS, _pod("web"), dryRun="All")).expect(201)
    assert made.body["spec"]["restartPolicy"] == "Always"
    assert "resourceVersion" not in made.metadata
    (await api.get(PODS, "web")).expect(404, "NotFound")


@case
async def dry_run_refuses_any_other_value(api: Stand) -> None:
    answer = (await api.create(PODS, _pod("web"), dryRun="Some")).expect(422, "Invalid")
    assert answer.fields == {"dryRun"}


@case
async def create_with_a_resource_version_is_refused(api: Stand) -> None:
    (await api.create(PODS, _pod("web", resourceVersion="5"))).expect(500)


@case
async def create_for_another_namespace_is_refused(api: Stand) -> None:
    (await api.create(PODS, _pod("web", namespace="other"))).expect(400, "BadRequest")


@case
async def create_in_a_missing_namespace_is_refused(api: Stand) -> None:
    path = PODS.path(namespace="no-such-namespace")
    answer = (await api.call("POST", path, _pod("web"))).expect(404, "NotFound")
    assert answer.message == 'namespaces "no-such-namespace" not found'


@case
async def a_name_must_be_a_dns_name(api: Stand) -> None:
    for name in ("Upper", "under_score", "-dash", "x" * 254):
        given = _pod(name, labels={})
        assert "metadata.name" in (await api.create(PODS, given)).expect(422, "Invalid").fields
    answer = (await api.create(NAMESPACES, build.namespace("dotted.name"))).expect(422, "Invalid")
    assert "metadata.name" in answer.fields


@case
async def a_name_is_required(api: Stand) -> None:
    answer = await api.create(PODS, {"spec": {}})
    assert answer.expect(422, "Invalid").fields == {"metadata.name", "spec.containers"}


@case
async def labels_must_be_valid(api: Stand) -> None:
    for labels in ({"a b": "c"}, {"a": "b c"}, {"a": "x" * 64}, {"x" * 64: "b"}, {"/a": "b"}):
        answer = (await api.create(PODS, _pod("web", labels=labels))).expect(422, "Invalid")
        assert answer.fields == {"metadata.labels"}
        assert all(cause["reason"] == "FieldValueInvalid" for cause in answer.causes)


@case
async def a_label_value_of_63_characters_is_taken(api: Stand) -> None:
    labels = {"example.com/" + "k" * 63: "v" * 63}
    assert (await api.create(PODS, _pod("web", labels=labels))).expect(201).metadata[
        "labels"
    ] == labels


@case
async def annotations_must_have_valid_keys(api: Stand) -> None:
    given = _pod("web", annotations={"a b": "anything: goes!"})
    answer = (await api.create(PODS, given)).expect(422, "Invalid")
    assert answer.fields == {"metadata.annotations"}


@case
async def owner_references_must_be_complete(api: Stand) -> None:
    given = _pod("web", ownerReferences=[{"apiVersion": "v1", "kind": "Pod"}])
    answer = (await api.create(PODS, given)).expect(422, "Invalid")
    path = "metadata.ownerReferences"
    assert answer.fields == {f"{path}.name", f"{path}.uid"}


@case
async def only_one_owner_may_be_the_controller(api: Stand) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "controller": True}
    owners = [{**owner, "uid": "1"}, {**owner, "uid": "2"}]
    answer = (await api.create(PODS, _pod("web", ownerReferences=owners))).expect(422, "Invalid")
    assert answer.fields == {"metadata.ownerReferences"}


@case
async def finalizers_need_a_domain(api: Stand) -> None:
    answer = (await api.create(PODS, _pod("web", finalizers=["bare"]))).expect(422, "Invalid")
    assert answer.fields == {"metadata.finalizers[0]"}


@case
async def malformed_json_is_a_bad_request(api: Stand) -> None:
    (await api.call("POST", api.path(PODS), "{nope")).expect(400, "BadRequest")


@case
async def another_kind_is_a_bad_request(api: Stand) -> None:
    for body in ({"kind": "Node", "apiVersion": "v1"}, {"kind": "Pod", "apiVersion": "v2"}):
        (await api.call("POST", api.path(PODS), body)).expect(400, "BadRequest")


@case
async def a_text_where_a_number_belongs_is_a_bad_request(api: Stand) -> None:
    given = build.replica_set("web", 1, namespace=api.namespace)
    given["spec"]["replicas"] = "3"
    (await api.create(REPLICASETS, given)).expect(400, "BadRequest")
    pod = _pod("web")
    pod["spec"]["terminationGracePeriodSeconds"] = "x"
    (await api.create(PODS, pod)).expect(400, "BadRequest")


@case
async def an_unknown_body_format_is_unsupported(api: Stand) -> None:
    path = api.path(PODS)
    answer = await api.call("POST", path, "name: web", content_type="text/plain")
    answer.expect(415, "UnsupportedMediaType")


@case
async def too_large_a_body_is_refused(api: Stand) -> None:
    given = _pod("web", annotations={"a": "x" * 4 * 1024 * 1024})
    (await api.create(PODS, given)).expect(413, "RequestEntityTooLarge")
