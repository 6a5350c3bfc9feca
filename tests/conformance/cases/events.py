# SPDX-License-Identifier: Apache-2.0
"""Events: one object, two APIs."""

from __future__ import annotations

from typing import Any

from common.kube.resources import EVENTS
from simulator.api.kinds.events import CORE_EVENTS
from tests.support.stands.conformance import Json, Stand, case


def _event(api: Stand, name: str = "e", **changes: Any) -> Json:
    made: Json = {
        "metadata": {"name": name},
        "eventTime": "2026-11-16T09:25:53.123456Z",
        "reportingController": "evenkeel.io/rebalancer",
        "reportingInstance": "one",
        "action": "Evict",
        "reason": "TooHot",
        "type": "Normal",
        "note": "it was too hot",
        "regarding": {"kind": "Pod", "namespace": api.namespace, "name": "web", "uid": "1"},
    }
    made.update(changes)
    return {key: value for key, value in made.items() if value is not None}


@case
async def an_event_is_the_same_under_both_apis(api: Stand) -> None:
    (await api.create(EVENTS, _event(api))).expect(201)
    old = (await api.get(CORE_EVENTS, "e")).expect(200).body
    assert old["apiVersion"] == "v1"
    assert old["involvedObject"]["name"] == "web"
    assert (old["message"], old["reportingComponent"]) == (
        "it was too hot",
        "evenkeel.io/rebalancer",
    )
    new = (await api.get(EVENTS, "e")).expect(200).body
    assert (new["apiVersion"], new["note"]) == ("events.k8s.io/v1", "it was too hot")
    assert (await api.list(CORE_EVENTS)).names == (await api.list(EVENTS)).names == ["e"]


@case
async def an_old_event_has_a_new_face(api: Stand) -> None:
    given = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": api.namespace, "name": "web"},
        "reason": "Killing",
        "message": "bye",
        "type": "Normal",
        "count": 3,
        "source": {"component": "kubelet"},
    }
    (await api.create(CORE_EVENTS, given)).expect(201)
    new = (await api.get(EVENTS, "e")).expect(200).body
    assert (new["note"], new["deprecatedCount"]) == ("bye", 3)
    assert new["deprecatedSource"] == {"component": "kubelet"}


@case
async def a_new_event_must_be_complete(api: Stand) -> None:
    for key in ("reportingController", "reportingInstance", "action", "reason"):
        answer = await api.create(EVENTS, _event(api, "e", **{key: None}))
        assert key in answer.expect(422, "Invalid").fields
    answer = await api.create(EVENTS, _event(api, type="Loud"))
    assert answer.expect(422, "Invalid").fields == {"type"}
    answer = await api.create(EVENTS, _event(api, eventTime=None))
    assert "eventTime" in answer.expect(422, "Invalid").fields


@case
async def an_event_fits_into_its_limits(api: Stand) -> None:
    for key, size, field in (("note", 1024, "message"), ("reason", 128, "reason")):
        (await api.create(EVENTS, _event(api, f"fits-{key}", **{key: "x" * size}))).expect(201)
        answer = await api.create(EVENTS, _event(api, **{key: "x" * (size + 1)}))
        assert answer.expect(422, "Invalid").fields == {field}


@case
async def an_event_about_the_cluster_lives_in_default(api: Stand) -> None:
    regarding = {"kind": "Node", "name": "node-1"}
    answer = await api.create(EVENTS, _event(api, regarding=regarding))
    assert answer.expect(422, "Invalid").fields == {"involvedObject.namespace"}
    path = EVENTS.path(namespace="default")
    name = api.unique("event")
    (await api.call("POST", path, _event(api, name, regarding=regarding))).expect(201)
    await api.call("DELETE", f"{path}/{name}")


@case
async def only_the_series_of_an_event_changes(api: Stand) -> None:
    (await api.create(EVENTS, _event(api))).expect(201)
    series = {"count": 2, "lastObservedTime": "2026-11-16T09:26:53.123456Z"}
    made = (await api.patch(EVENTS, "e", {"series": series})).expect(200).body
    assert made["series"] == series
    answer = (await api.patch(EVENTS, "e", {"note": "other"})).expect(422, "Invalid")
    assert answer.fields == {"message"}
    answer = (await api.patch(EVENTS, "e", {"series": {"count": 1}})).expect(422, "Invalid")
    assert answer.fields == {"series.count"}


@case
async def events_are_selected_by_what_they_are_about(api: Stand) -> None:
    (await api.create(EVENTS, _event(api, "a"))).expect(201)
    other = {"kind": "Pod", "namespace": api.namespace, "name": "db"}
    (await api.create(EVENTS, _event(api, "b", regarding=other, reason="Cold"))).expect(201)
    chosen = await api.list(CORE_EVENTS, fieldSelector="involvedObject.name=db,reason=Cold")
    assert chosen.expect(200).names == ["b"]
    chosen = await api.list(EVENTS, fieldSelector="regarding.name=web")
    assert chosen.expect(200).names == ["a"]
