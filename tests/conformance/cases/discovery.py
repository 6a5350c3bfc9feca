# SPDX-License-Identifier: Apache-2.0
"""Discovery, and answers about what does not exist."""

from __future__ import annotations

from common.kube.resources import DEPLOYMENTS, NODES, PDBS, PODS
from tests.support.stands.conformance import Json, Stand, case


@case
async def discovery_names_groups_and_versions(api: Stand) -> None:
    core = (await api.call("GET", "/api")).expect(200).body
    assert (core["kind"], core["versions"]) == ("APIVersions", ["v1"])
    groups = (await api.call("GET", "/apis")).expect(200).body
    assert groups["kind"] == "APIGroupList"
    preferred = {g["name"]: g["preferredVersion"]["groupVersion"] for g in groups["groups"]}
    for group in ("apps", "batch", "coordination.k8s.io", "events.k8s.io", "policy"):
        assert preferred[group] == f"{group}/v1"
    apps = (await api.call("GET", "/apis/apps")).expect(200).body
    assert (apps["kind"], apps["name"]) == ("APIGroup", "apps")


@case
async def discovery_describes_kinds(api: Stand) -> None:
    core = await _resources(api, "/api/v1")
    pods = core["pods"]
    assert (pods["kind"], pods["namespaced"], pods["singularName"]) == ("Pod", True, "pod")
    assert pods["shortNames"] == ["po"]
    every = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
    assert set(pods["verbs"]) == every
    assert core["nodes"]["namespaced"] is False
    apps = await _resources(api, "/apis/apps/v1")
    assert apps["deployments"]["shortNames"] == ["deploy"]


@case
async def discovery_describes_subresources(api: Stand) -> None:
    core = await _resources(api, "/api/v1")
    assert core["pods/status"]["verbs"] == ["get", "patch", "update"]
    assert core["pods/binding"]["verbs"] == ["create"]
    eviction = core["pods/eviction"]
    assert (eviction["group"], eviction["version"]) == ("policy", "v1")
    apps = await _resources(api, "/apis/apps/v1")
    assert apps["deployments/scale"]["kind"] == "Scale"
    assert "daemonsets/scale" not in apps


async def _resources(api: Stand, path: str) -> dict[str, Json]:
    answer = (await api.call("GET", path)).expect(200).body
    assert answer["kind"] == "APIResourceList"
    return {entry["name"]: entry for entry in answer["resources"]}


@case
async def the_server_tells_its_health_and_version(api: Stand) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert (await api.call("GET", path)).expect(200).body == "ok"
    version = (await api.call("GET", "/version")).expect(200).body
    assert (version["major"], version["minor"]) == ("1", "36")


@case
async def an_unknown_kind_is_not_found(api: Stand) -> None:
    for path in ("/api/v1/nopes", "/apis/apps/v1/nopes", "/api/v2"):
        answer = (await api.call("GET", path)).expect(404, "NotFound")
        assert answer.message == "the server could not find the requested resource"


@case
async def an_unknown_group_is_a_plain_not_found(api: Stand) -> None:
    for path in ("/apis/nope.example.com", "/apis/nope.example.com/v1", "/nope"):
        assert (await api.call("GET", path)).expect(404).body == "404 page not found\n"


@case
async def an_unknown_object_is_named_in_the_refusal(api: Stand) -> None:
    pod = (await api.get(PODS, "missing")).expect(404, "NotFound")
    assert pod.message == 'pods "missing" not found'
    assert pod.body["details"] == {"name": "missing", "kind": "pods"}
    deployment = (await api.get(DEPLOYMENTS, "missing")).expect(404, "NotFound")
    assert deployment.message == 'deployments.apps "missing" not found'
    details = {"name": "missing", "group": "apps", "kind": "deployments"}
    assert deployment.body["details"] == details


@case
async def an_unknown_subresource_is_not_found(api: Stand) -> None:
    await api.pod("web")
    (await api.get(PODS, "web", "nope")).expect(404, "NotFound")
    (await api.get(PDBS, "web", "scale")).expect(404, "NotFound")


@case
async def a_method_that_does_not_fit_is_not_allowed(api: Stand) -> None:
    await api.pod("web")
    pod = api.path(PODS, "web")
    (await api.call("POST", pod, {})).expect(405, "MethodNotAllowed")
    (await api.call("POST", PODS.path(), {})).expect(405, "MethodNotAllowed")
    (await api.call("PUT", NODES.path(), {})).expect(405, "MethodNotAllowed")
    (await api.call("DELETE", "/api/v1/namespaces")).expect(405, "MethodNotAllowed")
    (await api.get(PODS, "web", "binding")).expect(405, "MethodNotAllowed")
    (await api.get(PODS, "web", "eviction")).expect(405, "MethodNotAllowed")


@case
async def an_unacceptable_media_type_is_refused(api: Stand) -> None:
    (await api.call("GET", NODES.path(), accept="application/xml")).expect(406, "NotAcceptable")


@case
async def lists_can_be_asked_for_as_tables(api: Stand) -> None:
    await api.pod("web", ready=True)
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    table = (await api.call("GET", api.path(PODS), accept=accept)).expect(200).body
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert columns[:3] == ["Name", "Ready", "Status"]
    (row,) = table["rows"]
    cells = dict(zip(columns, row["cells"], strict=True))
    assert (cells["Name"], cells["Status"]) == ("web", "Running")
    assert row["object"]["metadata"]["name"] == "web"


@case
async def lists_can_be_asked_for_as_metadata(api: Stand) -> None:
    await api.pod("web")
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    listed = (await api.call("GET", api.path(PODS), accept=accept)).expect(200).body
    assert listed["kind"] == "PartialObjectMetadataList"
    (item,) = listed["items"]
    assert item["metadata"]["name"] == "web"
    assert "spec" not in item
