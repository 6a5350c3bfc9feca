# SPDX-License-Identifier: Apache-2.0
"""Custom resources: a definition makes routes, and its schema is kept."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from common.kube.api import PatchKind
from common.kube.resources import Resource
from simulator.api.catalog import DEFINITIONS
from tests.support.stands.conformance import Json, Stand, case, typed

_SPEC: Json = {
    "type": "object",
    "required": ["pod"],
    "properties": {
        "pod": {"type": "string", "minLength": 1, "maxLength": 10, "pattern": "^[a-z]+$"},
        "count": {"type": "integer", "minimum": 0, "maximum": 5, "default": 2},
        "mode": {"type": "string", "enum": ["A", "B"]},
        "list": {
            "type": "array",
            "maxItems": 2,
            "items": {"type": "object", "properties": {"x": {"type": "string"}}},
        },
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "amount": {"x-kubernetes-int-or-string": True},
        "when": {"type": "string", "format": "date-time"},
        "fixed": {
            "type": "string",
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "never changes"}],
        },
        "nothing": {"type": "string", "nullable": True},
    },
}
_STATUS: Json = {
    "type": "object",
    "properties": {"phase": {"type": "string"}, "done": {"type": "integer"}},
}


def _definition(api: Stand) -> tuple[Json, Resource]:
    group = f"{api.namespace}.example.com"
    resource = Resource(group, "v1alpha1", "things", "Thing", False)
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": _SPEC, "status": _STATUS},
    }
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "selectableFields": [{"jsonPath": ".spec.pod"}],
        "additionalPrinterColumns": [{"name": "Pod", "type": "string", "jsonPath": ".spec.pod"}],
    }
    names = {"plural": "things", "kind": "Thing", "shortNames": ["th"]}
    spec = {"group": group, "scope": "Cluster", "names": names, "versions": [version]}
    return {"metadata": {"name": f"things.{group}"}, "spec": spec}, resource


@asynccontextmanager
async def _things(api: Stand) -> AsyncIterator[Resource]:
    definition, resource = _definition(api)
    (await api.create(DEFINITIONS, definition)).expect(201)

    async def served() -> bool:
        return (await api.list(resource)).status == 200

    await api.eventually(served)
    try:
        yield resource
    finally:
        await api.delete(DEFINITIONS, definition["metadata"]["name"])


def _thing(resource: Resource, name: str = "a", **spec: Any) -> Json:
    return typed(resource, {"metadata": {"name": name}, "spec": {"pod": "web", **spec}})


@case
async def a_definition_makes_routes(api: Stand) -> None:
    async with _things(api) as things:
        listed = (await api.call("GET", f"/apis/{things.api_version}")).expect(200).body
        entries = {entry["name"]: entry for entry in listed["resources"]}
        assert entries["things"]["kind"] == "Thing"
        assert entries["things"]["shortNames"] == ["th"]
        assert entries["things/status"]["verbs"] == ["get", "patch", "update"]
        assert (await api.call("GET", f"/apis/{things.group}")).expect(200).body[
            "name"
        ] == things.group
        made = (await api.create(things, _thing(things))).expect(201)
        assert (await api.get(things, "a")).expect(200).body == made.body
        found = (await api.list(things)).expect(200)
        assert (found.body["kind"], found.names) == ("ThingList", ["a"])
        # Unlike built-in kinds, custom ones say in lists what they are.
        assert found.body["items"][0]["kind"] == "Thing"


@case
async def a_definition_says_when_it_is_established(api: Stand) -> None:
    definition, _ = _definition(api)
    async with _things(api):
        status = (await api.get(DEFINITIONS, definition["metadata"]["name"])).body["status"]
        conditions = {each["type"]: each["status"] for each in status["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}
        assert status["acceptedNames"]["listKind"] == "ThingList"
        assert status["storedVersions"] == ["v1alpha1"]


@case
async def a_definition_must_be_named_after_its_kind(api: Stand) -> None:
    definition, _ = _definition(api)
    definition["metadata"]["name"] = f"wrong.{api.namespace}.example.com"
    answer = (await api.create(DEFINITIONS, definition)).expect(422, "Invalid")
    assert answer.fields == {"metadata.name"}


@case
async def without_its_definition_a_kind_is_gone(api: Stand) -> None:
    async with _things(api) as things:
        (await api.create(things, _thing(things))).expect(201)

    async def gone() -> bool:
        return (await api.call("GET", f"/apis/{things.api_version}/things")).status == 404

    await api.eventually(gone)


@case
async def unknown_fields_are_pruned_with_a_warning(api: Stand) -> None:
    async with _things(api) as things:
        given = _thing(things, color="red", list=[{"x": "1", "y": "2"}], free={"any": {"thing": 1}})
        made = (await api.create(things, given)).expect(201)
        assert "color" not in made.body["spec"]
        assert made.body["spec"]["list"] == [{"x": "1"}]
        assert made.body["spec"]["free"] == {"any": {"thing": 1}}
        assert "unknown field" in made.headers["Warning"]


@case
async def strict_validation_refuses_unknown_fields(api: Stand) -> None:
    async with _things(api) as things:
        given = _thing(things, color="red")
        answer = await api.create(things, given, fieldValidation="Strict")
        assert 'unknown field "spec.color"' in answer.expect(400, "BadRequest").message


@case
async def defaults_of_a_schema_are_filled_in(api: Stand) -> None:
    async with _things(api) as things:
        made = (await api.create(things, _thing(things, nothing=None))).expect(201).body
        assert made["spec"] == {"pod": "web", "count": 2, "nothing": None}


@case
async def a_schema_is_enforced(api: Stand) -> None:
    async with _things(api) as things:
        for spec, field in (
            ({"pod": ""}, "spec.pod"),
            ({"pod": "UPPER"}, "spec.pod"),
            ({"pod": "waytoolonganame"}, "spec.pod"),
            ({"pod": 5}, "spec.pod"),
            ({"count": 9}, "spec.count"),
            ({"count": -1}, "spec.count"),
            ({"count": "2"}, "spec.count"),
            ({"mode": "C"}, "spec.mode"),
            ({"list": [{}, {}, {}]}, "spec.list"),
            ({"labels": {"a": 1}}, "spec.labels.a"),
            ({"amount": []}, "spec.amount"),
            ({"when": "yesterday"}, "spec.when"),
            ({"pod": None}, "spec.pod"),
        ):
            answer = (await api.create(things, _thing(things, **spec))).expect(422, "Invalid")
            assert field in answer.fields, spec
        bare = typed(things, {"metadata": {"name": "a"}, "spec": {}})
        answer = (await api.create(things, bare)).expect(422, "Invalid")
        assert answer.causes[0]["reason"] == "FieldValueRequired"


@case
async def a_custom_resource_must_say_what_it_is(api: Stand) -> None:
    async with _things(api) as things:
        path = api.path(things)
        untyped = {"metadata": {"name": "a"}, "spec": {"pod": "web"}}
        (await api.call("POST", path, untyped)).expect(400, "BadRequest")
        other = {**_thing(things), "apiVersion": f"{things.group}/v2"}
        (await api.call("POST", path, other)).expect(400, "BadRequest")


@case
async def a_custom_status_is_changed_alone(api: Stand) -> None:
    async with _things(api) as things:
        given = {**_thing(things), "status": {"phase": "Done"}}
        made = (await api.create(things, given)).expect(201)
        assert "status" not in made.body
        changed = copy.deepcopy(made.body)
        changed["status"] = {"phase": "Going", "unknown": 1}
        changed["spec"]["pod"] = "ignored"
        changed["metadata"]["labels"] = {"not": "taken"}
        told = (await api.put(things, changed, "status")).expect(200)
        assert told.body["status"] == {"phase": "Going"}
        assert told.body["spec"] == made.body["spec"]
        assert "labels" not in told.metadata
        assert told.metadata["generation"] == 1
        body = {"spec": {"pod": "new"}, "status": {"phase": "Ignored"}}
        moved = (await api.patch(things, "a", body)).expect(200)
        assert moved.body["status"] == {"phase": "Going"}
        assert moved.metadata["generation"] == 2
        wrong = await api.patch(things, "a", {"status": {"done": "x"}}, "status")
        assert wrong.expect(422, "Invalid").fields >= {"status.done"}


@case
async def metadata_of_a_custom_resource_raises_no_generation(api: Stand) -> None:
    async with _things(api) as things:
        (await api.create(things, _thing(things))).expect(201)
        body = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}
        assert (await api.patch(things, "a", body)).expect(200).metadata["generation"] == 1


@case
async def a_custom_resource_demands_a_version_for_updates(api: Stand) -> None:
    async with _things(api) as things:
        made = (await api.create(things, _thing(things))).expect(201).body
        answer = (await api.put(things, _thing(things))).expect(422, "Invalid")
        assert answer.fields == {"metadata.resourceVersion"}
        (await api.patch(things, "a", {"spec": {"count": 3}})).expect(200)
        (await api.put(things, made)).expect(409, "Conflict")


@case
async def custom_resources_take_no_strategic_patches(api: Stand) -> None:
    async with _things(api) as things:
        (await api.create(things, _thing(things))).expect(201)
        body = {"spec": {"count": 3}}
        answer = await api.patch(things, "a", body, kind=PatchKind.STRATEGIC)
        answer.expect(415, "UnsupportedMediaType")
        operations = [{"op": "replace", "path": "/spec/count", "value": 3}]
        (await api.patch(things, "a", operations, kind=PatchKind.JSON)).expect(200)


@case
async def an_unchanging_field_never_changes(api: Stand) -> None:
    async with _things(api) as things:
        (await api.create(things, _thing(things, fixed="one"))).expect(201)
        answer = (await api.patch(things, "a", {"spec": {"fixed": "two"}})).expect(422, "Invalid")
        assert answer.fields == {"spec.fixed"}
        assert "never changes" in answer.message


@case
async def custom_fields_can_be_selected(api: Stand) -> None:
    async with _things(api) as things:
        (await api.create(things, _thing(things, "a"))).expect(201)
        (await api.create(things, _thing(things, "b", pod="db"))).expect(201)
        assert (await api.list(things, fieldSelector="spec.pod=db")).expect(200).names == ["b"]
        (await api.list(things, fieldSelector="spec.count=2")).expect(400, "BadRequest")


@case
async def custom_resources_are_watched(api: Stand) -> None:
    async with _things(api) as things:
        version = (await api.list(things)).expect(200).version
        async with api.watch(things, resourceVersion=version) as events:
            (await api.create(things, _thing(things))).expect(201)
            assert await events.brief() == ("ADDED", "a")
            await api.patch(things, "a", {"status": {"phase": "Going"}}, "status")
            assert await events.brief() == ("MODIFIED", "a")
            (await api.delete(things, "a")).expect(200)
            assert await events.brief() == ("DELETED", "a")


@case
async def custom_resources_have_columns(api: Stand) -> None:
    async with _things(api) as things:
        (await api.create(things, _thing(things))).expect(201)
        accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
        table = (await api.call("GET", api.path(things), accept=accept)).expect(200).body
        assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Pod"]
        assert table["rows"][0]["cells"] == ["a", "web"]
