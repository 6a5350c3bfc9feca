# SPDX-License-Identifier: Apache-2.0
"""Watches: nothing is missed, nothing comes twice, and too late is said plainly."""

from __future__ import annotations

from common.kube.resources import PODS
from simulator.api.kinds.events import CORE_EVENTS
from tests.support.stands.conformance import Json, Stand, case


def _event(name: str, namespace: str) -> Json:
    involved = {"kind": "Pod", "name": "web", "namespace": namespace}
    return {"metadata": {"name": name}, "involvedObject": involved, "reason": "R", "type": "Normal"}


@case
async def a_watch_resumes_where_a_list_ended(api: Stand) -> None:
    await api.pod("a")
    version = (await api.list(PODS)).expect(200).version
    await api.pod("b")
    async with api.watch(PODS, resourceVersion=version) as events:
        assert await events.brief() == ("ADDED", "b")
        await api.pod("c")
        assert await events.brief() == ("ADDED", "c")


@case
async def a_watch_resumes_after_the_last_event_seen(api: Stand) -> None:
    version = (await api.list(PODS)).expect(200).version
    for name in "abc":
        await api.pod(name)
    async with api.watch(PODS, resourceVersion=version) as events:
        first = await events.next()
        assert first is not None
    seen = first["object"]["metadata"]["resourceVersion"]
    async with api.watch(PODS, resourceVersion=seen) as events:
        assert await events.take(2) == [("ADDED", "b"), ("ADDED", "c")]


@case
async def a_watch_without_a_version_begins_with_what_exists(api: Stand) -> None:
    await api.pod("a")
    await api.pod("b")
    for query in ({}, {"resourceVersion": "0"}):
        async with api.watch(PODS, **query) as events:
            assert sorted(await events.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
    async with api.watch(PODS) as events:
        await events.take(2)
        await api.pod("c")
        assert await events.brief() == ("ADDED", "c")


@case
async def events_carry_whole_objects_with_their_type(api: Stand) -> None:
    async with api.watch(PODS) as events:
        made = await api.pod("a")
        event = await events.next()
        assert event is not None
        assert event["object"] == made


@case
async def a_change_is_seen_as_modified(api: Stand) -> None:
    await api.pod("a")
    async with api.watch(PODS) as events:
        await events.take(1)
        await api.run("a")
        event = await events.next()
        assert event is not None
        assert event["type"] == "MODIFIED"
        assert event["object"]["status"]["phase"] == "Running"


@case
async def a_deletion_carries_the_last_state_and_a_new_version(api: Stand) -> None:
    made = await api.pod("a", labels={"app": "last"})
    async with api.watch(PODS, resourceVersion=made["metadata"]["resourceVersion"]) as events:
        await api.delete(PODS, "a", gracePeriodSeconds=0)
        while (event := await events.next()) is not None and event["type"] != "DELETED":
            pass
        assert event is not None
        metadata = event["object"]["metadata"]
        assert metadata["labels"] == {"app": "last"}
        assert int(metadata["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


@case
async def a_graceful_deletion_is_first_a_modification(api: Stand) -> None:
    await api.pod("a")
    async with api.watch(PODS) as events:
        await events.take(1)
        await api.delete(PODS, "a")
        event = await events.next()
        assert event is not None
        assert event["type"] == "MODIFIED"
        assert "deletionTimestamp" in event["object"]["metadata"]


@case
async def a_selection_sees_objects_come_and_go(api: Stand) -> None:
    await api.pod("a", labels={"color": "red"})
    async with api.watch(PODS, labelSelector="color=blue") as events:
        await api.patch(PODS, "a", {"metadata": {"labels": {"color": "blue"}}})
        assert await events.brief() == ("ADDED", "a")
        await api.run("a")
        assert await events.brief() == ("MODIFIED", "a")
        await api.patch(PODS, "a", {"metadata": {"labels": {"color": "red"}}})
        event = await events.next()
        assert event is not None
        assert event["type"] == "DELETED"
        # What leaves the selection is shown as it last was inside.
        assert event["object"]["metadata"]["labels"]["color"] == "blue"


@case
async def a_field_selector_narrows_a_watch(api: Stand) -> None:
    await api.pod("a")
    await api.pod("b")
    async with api.watch(PODS, fieldSelector="metadata.name=b") as events:
        assert await events.brief() == ("ADDED", "b")
        await api.run("a")
        await api.run("b")
        assert await events.brief() == ("MODIFIED", "b")


@case
async def a_watch_of_one_namespace_sees_no_other(api: Stand) -> None:
    async with api.watch(PODS) as events:
        path = PODS.path(namespace="default")
        name = api.unique("elsewhere")
        spec = {"schedulerName": "nobody", "containers": [{"name": "app", "image": "x"}]}
        body = {"metadata": {"name": name}, "spec": spec}
        (await api.call("POST", path, body)).expect(201)
        await api.pod("here")
        assert await events.brief() == ("ADDED", "here")
        await api.call("DELETE", f"{path}/{name}")


@case
async def a_watch_ends_after_its_time(api: Stand) -> None:
    await api.pod("a")
    async with api.watch(PODS, timeoutSeconds=1) as events:
        assert [event["type"] for event in await events.rest()] == ["ADDED"]


@case
async def a_version_before_compaction_is_an_error_event(api: Stand) -> None:
    first = (await api.create(CORE_EVENTS, _event("a", api.namespace))).expect(201)
    for name in ("b", "c"):
        (await api.create(CORE_EVENTS, _event(name, api.namespace))).expect(201)
    await api.compact()
    async with api.watch(CORE_EVENTS, resourceVersion=first.version) as events:
        event = await events.next()
        assert event is not None
        assert event["type"] == "ERROR"
        status = event["object"]
        assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
        assert await events.next() is None


@case
async def the_newest_version_survives_compaction(api: Stand) -> None:
    (await api.create(CORE_EVENTS, _event("a", api.namespace))).expect(201)
    await api.compact()
    version = (await api.list(CORE_EVENTS)).expect(200).version
    (await api.create(CORE_EVENTS, _event("b", api.namespace))).expect(201)
    async with api.watch(CORE_EVENTS, resourceVersion=version) as events:
        assert await events.brief() == ("ADDED", "b")


@case
async def a_version_of_the_future_is_silence(api: Stand) -> None:
    async with api.watch(PODS, resourceVersion="999999999", timeoutSeconds=1) as events:
        await api.pod("a")
        assert await events.rest() == []


@case
async def a_nonsense_version_is_an_error(api: Stand) -> None:
    query = {"watch": "true", "resourceVersion": "new"}
    (await api.list(PODS, **query)).expect(500)


@case
async def a_nonsense_selector_is_refused_before_watching(api: Stand) -> None:
    for query in ({"fieldSelector": "spec.color=red"}, {"labelSelector": "((("}):
        (await api.list(PODS, watch="true", **query)).expect(400, "BadRequest")


@case
async def initial_events_end_with_a_bookmark(api: Stand) -> None:
    made = await api.pod("a")
    query = {
        "sendInitialEvents": "true",
        "allowWatchBookmarks": "true",
        "resourceVersionMatch": "NotOlderThan",
    }
    async with api.watch(PODS, **query) as events:
        assert await events.brief() == ("ADDED", "a")
        event = await events.next()
        assert event is not None
        assert (event["type"], event["object"]["kind"]) == ("BOOKMARK", "Pod")
        metadata = event["object"]["metadata"]
        assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(metadata["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])
        await api.pod("b")
        assert await events.brief() == ("ADDED", "b")


@case
async def initial_events_need_a_version_match(api: Stand) -> None:
    for query in ({"sendInitialEvents": "true"}, {"resourceVersionMatch": "NotOlderThan"}):
        answer = (await api.list(PODS, watch="true", **query)).expect(422, "Invalid")
        assert answer.fields == {"resourceVersionMatch"}


@case
async def bookmarks_tell_how_far_a_quiet_watch_has_seen(api: Stand) -> None:
    """About once a minute, if there is anything new to tell; the real server takes that long."""
    # Unbound, because bound pods would be collected meanwhile.
    made = await api.pod("a", bound=False)
    query = {
        "allowWatchBookmarks": "true",
        "resourceVersion": made["metadata"]["resourceVersion"],
        "fieldSelector": "metadata.name=a",
        "timeoutSeconds": 90,
    }
    async with api.watch(PODS, **query) as events:
        other = await api.pod("b", bound=False)
        event = await events.next(timeout_s=80)
        assert event is not None
        assert event["type"] == "BOOKMARK"
        seen = event["object"]["metadata"]["resourceVersion"]
    assert int(seen) >= int(other["metadata"]["resourceVersion"])
    await api.pod("c", bound=False)
    async with api.watch(PODS, resourceVersion=seen) as events:
        assert await events.brief() == ("ADDED", "c")
