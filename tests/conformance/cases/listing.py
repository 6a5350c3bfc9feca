# SPDX-License-Identifier: Apache-2.0
"""Lists: pages of one moment, versions, selectors."""

from __future__ import annotations

import base64
import json

from common.kube.resources import DEPLOYMENTS, NODES, PODS
from simulator.api.kinds.events import CORE_EVENTS
from tests.support.stands.conformance import Json, Stand, case


async def _pods(api: Stand, names: str = "abcde") -> None:
    for name in names:
        await api.pod(name)


def _event(name: str, namespace: str) -> Json:
    involved = {"kind": "Pod", "name": "web", "namespace": namespace}
    return {"metadata": {"name": name}, "involvedObject": involved, "reason": "R", "type": "Normal"}


@case
async def a_list_says_its_kind_and_version(api: Stand) -> None:
    await _pods(api, "ab")
    listed = (await api.list(PODS)).expect(200)
    assert (listed.body["kind"], listed.body["apiVersion"]) == ("PodList", "v1")
    assert listed.names == ["a", "b"]
    newest = max(int(item["metadata"]["resourceVersion"]) for item in listed.body["items"])
    assert int(listed.version) >= newest


@case
async def items_of_built_in_lists_carry_no_type(api: Stand) -> None:
    await _pods(api, "a")
    (item,) = (await api.list(PODS)).expect(200).body["items"]
    assert set(item) == {"metadata", "spec", "status"}


@case
async def pages_show_one_moment(api: Stand) -> None:
    await _pods(api)
    first = (await api.list(PODS, limit=2)).expect(200)
    assert (first.names, first.metadata["remainingItemCount"]) == (["a", "b"], 3)
    await api.pod("bb")
    await api.delete(PODS, "d", gracePeriodSeconds=0)
    token = first.metadata["continue"]
    second = (await api.list(PODS, limit=2, **{"continue": token})).expect(200)
    assert (second.names, second.metadata["remainingItemCount"]) == (["c", "d"], 1)
    token = second.metadata["continue"]
    third = (await api.list(PODS, limit=2, **{"continue": token})).expect(200)
    assert third.names == ["e"]
    assert not third.metadata.get("continue")
    assert first.version == second.version == third.version


@case
async def pages_of_a_selection_count_nothing(api: Stand) -> None:
    await _pods(api, "abc")
    first = (await api.list(PODS, limit=1, labelSelector="app!=a")).expect(200)
    assert first.names == ["b"]
    assert "remainingItemCount" not in first.metadata
    token = first.metadata["continue"]
    query = {"limit": 1, "labelSelector": "app!=a", "continue": token}
    assert (await api.list(PODS, **query)).expect(200).names == ["c"]


@case
async def a_nonsense_token_is_a_bad_request(api: Stand) -> None:
    (await api.list(PODS, **{"continue": "nonsense"})).expect(400, "BadRequest")


@case
async def a_token_and_a_version_exclude_each_other(api: Stand) -> None:
    await _pods(api, "ab")
    first = (await api.list(PODS, limit=1)).expect(200)
    query = {"continue": first.metadata["continue"], "resourceVersion": first.version}
    (await api.list(PODS, **query)).expect(400, "BadRequest")


@case
async def a_nonsense_limit_is_a_bad_request(api: Stand) -> None:
    (await api.list(PODS, limit="many")).expect(400, "BadRequest")


@case
async def an_old_token_is_expired_after_compaction(api: Stand) -> None:
    for name in "abc":
        (await api.create(CORE_EVENTS, _event(name, api.namespace))).expect(201)
    first = (await api.list(CORE_EVENTS, limit=1)).expect(200)
    for name in "de":
        (await api.create(CORE_EVENTS, _event(name, api.namespace))).expect(201)
    await api.compact()
    token = first.metadata["continue"]
    answer = (await api.list(CORE_EVENTS, limit=1, **{"continue": token})).expect(410, "Expired")
    # The refusal carries a token that goes on from the same place, in the present.
    token = answer.metadata["continue"]
    rest = (await api.list(CORE_EVENTS, **{"continue": token})).expect(200)
    assert rest.names == ["b", "c", "d", "e"]


@case
async def an_exact_version_is_expired_after_compaction(api: Stand) -> None:
    first = (await api.create(CORE_EVENTS, _event("a", api.namespace))).expect(201)
    for name in ("b", "c"):
        (await api.create(CORE_EVENTS, _event(name, api.namespace))).expect(201)
    await api.compact()
    query = {"resourceVersion": first.version, "resourceVersionMatch": "Exact"}
    (await api.list(CORE_EVENTS, **query)).expect(410, "Expired")


@case
async def an_exact_version_shows_the_past(api: Stand) -> None:
    await _pods(api, "ab")
    before = (await api.list(PODS)).expect(200).version
    await api.pod("c")
    await api.delete(PODS, "a", gracePeriodSeconds=0)
    query = {"resourceVersion": before, "resourceVersionMatch": "Exact"}
    past = (await api.list(PODS, **query)).expect(200)
    assert (past.names, past.version) == (["a", "b"], before)


@case
async def not_older_than_shows_the_present(api: Stand) -> None:
    await _pods(api, "a")
    before = (await api.list(PODS)).expect(200).version
    await api.pod("b")
    for query in (
        {"resourceVersion": "0"},
        {"resourceVersion": before},
        {"resourceVersion": before, "resourceVersionMatch": "NotOlderThan"},
    ):
        assert set((await api.list(PODS, **query)).expect(200).names) >= {"a"}
    query = {"resourceVersion": (await api.list(PODS)).version}
    assert (await api.list(PODS, **query)).expect(200).names == ["a", "b"]


@case
async def version_zero_ignores_the_limit(api: Stand) -> None:
    await _pods(api, "abc")

    async def all_at_once() -> bool:
        return len((await api.list(PODS, resourceVersion="0", limit=2)).expect(200).names) == 3

    await api.eventually(all_at_once)


@case
async def a_version_of_the_future_times_out(api: Stand) -> None:
    await _pods(api, "a")
    future = {"resourceVersion": "999999999"}
    for answer in (await api.list(PODS, **future), await api.get(PODS, "a", **future)):
        answer.expect(504, "Timeout")
        assert answer.causes[0]["reason"] == "ResourceVersionTooLarge"
        assert answer.headers["Retry-After"] == "1"


@case
async def a_nonsense_version_is_refused(api: Stand) -> None:
    (await api.list(PODS, resourceVersion="new")).expect(400, "BadRequest")


@case
async def version_match_needs_a_version(api: Stand) -> None:
    for query in (
        {"resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
        {"resourceVersionMatch": "Nearly", "resourceVersion": "1"},
    ):
        answer = (await api.list(PODS, **query)).expect(422, "Invalid")
        assert answer.fields == {"resourceVersionMatch"}


@case
async def a_token_has_the_servers_own_format(api: Stand) -> None:
    await _pods(api, "ab")
    first = (await api.list(PODS, limit=1)).expect(200)
    token = first.metadata["continue"]
    read = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert (read["v"], read["rv"]) == ("meta.k8s.io/v1", int(first.version))


@case
async def label_selectors_choose(api: Stand) -> None:
    await _pods(api, "abc")
    for selector, expected in (
        ("app=a", ["a"]),
        ("app==a", ["a"]),
        ("app!=a", ["b", "c"]),
        ("app in (a,b)", ["a", "b"]),
        ("app notin (a,b)", ["c"]),
        ("app", ["a", "b", "c"]),
        ("!app", []),
        ("app=a,app=b", []),
    ):
        assert (await api.list(PODS, labelSelector=selector)).expect(200).names == expected


@case
async def a_nonsense_label_selector_is_a_bad_request(api: Stand) -> None:
    for selector in ("(((", "a b", "a in b"):
        (await api.list(PODS, labelSelector=selector)).expect(400, "BadRequest")


@case
async def field_selectors_choose(api: Stand) -> None:
    await _pods(api, "ab")
    await api.pod("c", bound=False)
    await api.run("b")
    for selector, expected in (
        ("metadata.name=a", ["a"]),
        ("metadata.name!=a", ["b", "c"]),
        (f"spec.nodeName={api.nowhere}", ["a", "b"]),
        ("spec.nodeName=", ["c"]),
        ("status.phase=Running", ["b"]),
        ("status.phase!=Running,spec.schedulerName=nobody", ["a", "c"]),
        (f"metadata.namespace={api.namespace}", ["a", "b", "c"]),
    ):
        assert (await api.list(PODS, fieldSelector=selector)).expect(200).names == expected


@case
async def an_unknown_field_is_a_bad_request(api: Stand) -> None:
    for resource in (PODS, NODES):
        answer = await api.list(resource, fieldSelector="spec.color=red")
        assert answer.expect(400, "BadRequest").message == "field label not supported: spec.color"
    answer = (await api.list(DEPLOYMENTS, fieldSelector="spec.color=red")).expect(400, "BadRequest")
    assert '"spec.color" is not a known field selector' in answer.message
    (await api.list(PODS, fieldSelector="nonsense")).expect(400, "BadRequest")


@case
async def a_list_of_all_namespaces_holds_this_one(api: Stand) -> None:
    await _pods(api, "a")
    everywhere = (await api.call("GET", PODS.path())).expect(200)
    here = [i for i in everywhere.body["items"] if i["metadata"]["namespace"] == api.namespace]
    assert [item["metadata"]["name"] for item in here] == ["a"]
