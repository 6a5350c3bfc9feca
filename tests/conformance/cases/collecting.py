# SPDX-License-Identifier: Apache-2.0
"""Owner garbage collection; a controller does it, so the cases wait for it."""

from __future__ import annotations

from common.kube.resources import Resource
from simulator.api.catalog import CONFIGMAPS
from tests.support.stands.conformance import Json, Stand, case


async def _data(api: Stand, name: str, *owners: Json, **metadata: object) -> Json:
    given: Json = {"metadata": {"name": name, **metadata}}
    if owners:
        given["metadata"]["ownerReferences"] = list(owners)
    made: Json = (await api.create(CONFIGMAPS, given)).expect(201).body
    return made


def _owner(obj: Json, resource: Resource = CONFIGMAPS, *, blocks: bool = False) -> Json:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        **({"blockOwnerDeletion": True} if blocks else {}),
    }


@case
async def dependents_follow_their_owner(api: Stand) -> None:
    owner = await _data(api, "owner")
    child = await _data(api, "child", _owner(owner))
    await _data(api, "grandchild", _owner(child))
    (await api.delete(CONFIGMAPS, "owner")).expect(200)
    await api.gone(CONFIGMAPS, "child")
    await api.gone(CONFIGMAPS, "grandchild")


@case
async def dependents_of_a_living_owner_stay(api: Stand) -> None:
    dead, alive = await _data(api, "dead"), await _data(api, "alive")
    await _data(api, "child", _owner(dead), _owner(alive))
    (await api.delete(CONFIGMAPS, "dead")).expect(200)

    async def only_the_living_is_named() -> bool:
        owners = (await api.get(CONFIGMAPS, "child")).expect(200).metadata["ownerReferences"]
        return [owner["name"] for owner in owners] == ["alive"]

    await api.eventually(only_the_living_is_named)


@case
async def orphans_are_kept(api: Stand) -> None:
    owner = await _data(api, "owner")
    await _data(api, "child", _owner(owner))
    (await api.delete(CONFIGMAPS, "owner", {"propagationPolicy": "Orphan"})).expect(200)
    await api.gone(CONFIGMAPS, "owner")
    child = (await api.get(CONFIGMAPS, "child")).expect(200)
    assert "ownerReferences" not in child.metadata


@case
async def a_foreground_deletion_waits_for_dependents(api: Stand) -> None:
    owner = await _data(api, "owner")
    await _data(api, "child", _owner(owner, blocks=True), finalizers=["a.example/hold"])
    ending = (await api.delete(CONFIGMAPS, "owner", {"propagationPolicy": "Foreground"})).expect(
        200
    )
    assert ending.metadata["finalizers"] == ["foregroundDeletion"]

    async def child_is_ending() -> bool:
        return "deletionTimestamp" in (await api.get(CONFIGMAPS, "child")).expect(200).metadata

    await api.eventually(child_is_ending)
    (await api.get(CONFIGMAPS, "owner")).expect(200)
    await api.patch(CONFIGMAPS, "child", {"metadata": {"finalizers": None}})
    await api.gone(CONFIGMAPS, "owner")


@case
async def an_object_with_an_owner_that_never_was_is_collected(api: Stand) -> None:
    other = await _data(api, "other")
    stranger = {**_owner(other), "uid": "00000000-0000-4000-8000-000000000000"}
    await _data(api, "child", stranger)
    await api.gone(CONFIGMAPS, "child")
    (await api.get(CONFIGMAPS, "other")).expect(200)
