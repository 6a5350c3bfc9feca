# SPDX-License-Identifier: Apache-2.0
"""Requests of kube-scheduler are read in any letter case, and remembered lists are the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from common.cluster.records import PodRecord, PodUid
from extender.errors import BadRequest, Reason, UnreadablePod
from extender.requests import NameLists, PodReader, read_preemption_request, read_request
from tests.support.stands.extender_service import (
    a_pod,
    args,
    full_args,
    go_json,
    nothing_known,
    preemption_args,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NO_SELECTOR = {"matchExpressions": [{"key": "app", "operator": "Perhaps"}]}
NAMES = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=6)


@st.composite
def any_case(draw: st.DrawFn, question: dict[str, Any]) -> dict[str, Any]:
    """Return a question with letters of its keys in either case."""

    def shaken(key: str) -> str:
        upper = draw(st.lists(st.booleans(), min_size=len(key), max_size=len(key)))
        return "".join(c.upper() if up else c.lower() for c, up in zip(key, upper, strict=True))

    return {shaken(key): value for key, value in question.items()}


@given(names=NAMES)
def test_names_are_read_as_they_are(names: list[str]) -> None:
    assert read_request(go_json(args(*names)), NameLists()).names == names


@given(data=st.data())
def test_letter_case_makes_no_difference(data: st.DataObject) -> None:
    question = data.draw(st.sampled_from([args("a", "b"), full_args("a", "b")]))
    plain = read_request(go_json(question), NameLists())
    shaken = read_request(go_json(data.draw(any_case(question))), NameLists())
    assert shaken.names == plain.names
    assert (shaken.items is None) is (plain.items is None)
    assert bytes(shaken.pod) == bytes(plain.pod)


@given(data=st.data())
def test_letter_case_makes_no_difference_to_victims(data: st.DataObject) -> None:
    question = preemption_args({"A": ["u1"], "a": ["u2", "u3"], "b": []})
    shaken = data.draw(any_case(question))
    assert read_preemption_request(go_json(shaken)).candidates == (
        read_preemption_request(go_json(question)).candidates
    )


@given(keys=st.lists(st.sampled_from(["NodeNames", "nodenames", "NODENAMES"]), unique=True))
def test_of_keys_that_differ_only_in_case_the_last_wins(keys: list[str]) -> None:
    question = {"Pod": a_pod(), "Nodes": None, **{key: [key] for key in keys}}
    if keys:
        assert read_request(go_json(question), NameLists()).names == keys[-1:]


def test_names_of_nodes_keep_their_case() -> None:
    question = preemption_args({"Node": ["u1"], "node": ["u2"]}, Further=1)
    assert sorted(read_preemption_request(go_json(question)).candidates) == ["Node", "node"]


def test_further_keys_of_victims_are_passed_over() -> None:
    victims = {"Pods": [{"UID": "u1", "Name": "x"}], "NumPDBViolations": 1, "Cost": 3}
    read = read_preemption_request(
        go_json(preemption_args({}, NodeNameToMetaVictims={"a": victims}))
    )
    assert (read.candidates["a"].pods, read.candidates["a"].violations) == (["u1"], 1)


def test_the_number_of_violations_may_be_missing() -> None:
    question = preemption_args({}, NodeNameToMetaVictims={"a": {"Pods": []}})
    assert read_preemption_request(go_json(question)).candidates["a"].violations == 0


class TestRememberedLists:
    def test_a_list_that_comes_again_is_the_same_object(self) -> None:
        lists = NameLists()
        body = go_json(args("a", "b"))
        assert read_request(body, lists).names is read_request(body, lists).names

    def test_what_a_filter_left_is_expected(self) -> None:
        lists, left = NameLists(), ["a", "c"]
        lists.remember(b'["a","c"]', left)
        assert read_request(go_json(args("a", "c")), lists).names is left

    def test_only_the_last_few_are_kept(self) -> None:
        lists = NameLists()
        first, _ = lists.read(b'["a"]')
        for number in range(10):
            lists.read(b'["%d"]' % number)
        assert lists.read(b'["a"]')[0] is not first

    def test_huge_ones_are_not_kept(self) -> None:
        lists, huge = NameLists(), go_json(["n" * 100] * 11_000)
        assert lists.read(huge)[0] is not lists.read(huge)[0]

    def test_what_is_no_list_is_not_kept(self) -> None:
        lists = NameLists()
        for _ in range(2):
            with pytest.raises(BadRequest):
                lists.read(b'["a",1]')


class TestPods:
    def test_the_cache_is_asked_by_uid(self) -> None:
        record = PodReader(nothing_known).read(Raw(go_json(a_pod("web")))).record
        asked: list[str] = []

        def lookup(uid: PodUid) -> PodRecord:
            asked.append(uid)
            return record

        pod = {"metadata": {"name": "other", "uid": "u1"}, "status": {"nominatedNodeName": "n"}}
        read = PodReader(lookup).read(Raw(go_json(pod)))
        assert asked == ["u1"]
        assert read.record is record
        assert (read.name, read.nominated_node) == ("other", "n")

    @pytest.mark.parametrize(
        "spoil",
        [
            {"spec": {"containers": [{"resources": {"requests": {"cpu": "lots"}}}]}},
            {"spec": {"affinity": {"podAffinity": {REQUIRED: [{"labelSelector": NO_SELECTOR}]}}}},
        ],
        ids=["no quantity", "no selector"],
    )
    def test_contents_that_make_no_sense_are_no_mistake_of_the_request(
        self, spoil: dict[str, Any]
    ) -> None:
        with pytest.raises(UnreadablePod, match="default/web"):
            PodReader(nothing_known).read(Raw(go_json(a_pod() | spoil)))

    def test_a_pod_that_is_asked_about_again_is_the_same(self) -> None:
        reader, data = PodReader(nothing_known), go_json(a_pod("web"))
        first = reader.read(Raw(data))
        assert reader.read(Raw(data)) == first
        other = reader.read(Raw(go_json(a_pod("db"))))
        assert (other.name, other.record.key) == ("db", "default/db")
        assert reader.read(Raw(data)) == first

    def test_watch_events_between_two_requests_count(self) -> None:
        known: list[PodRecord | None] = [None]
        reader, data = PodReader(lambda _: known[0]), Raw(go_json(a_pod("web")))
        parsed = reader.read(data).record
        known[0] = PodReader(nothing_known).read(Raw(go_json(a_pod("db")))).record
        assert reader.read(data).record is known[0]
        known[0] = None
        assert reader.read(data).record == parsed

    def test_contents_that_make_no_sense_make_none_when_they_come_again(self) -> None:
        spoilt = {"spec": {"containers": [{"resources": {"requests": {"cpu": "lots"}}}]}}
        reader, data = PodReader(nothing_known), Raw(go_json(a_pod() | spoilt))
        for _ in range(2):
            with pytest.raises(UnreadablePod):
                reader.read(data)

    def test_wrong_types_are(self) -> None:
        with pytest.raises(BadRequest) as caught:
            PodReader(nothing_known).read(Raw(go_json(a_pod() | {"spec": []})))
        assert caught.value.reason is Reason.WRONG_TYPE


def test_the_message_names_the_place_of_the_error() -> None:
    with pytest.raises(BadRequest, match=r"NodeNames: Expected `str`, got `int` - at `\$\[1\]`"):
        read_request(go_json(args(NodeNames=["a", 1])), NameLists())


def test_bytes_that_could_not_be_sent_back_are_refused() -> None:
    body = json.dumps(full_args("a")).encode().replace(b'"spec"', b'"\xff"')
    with pytest.raises(BadRequest) as caught:
        read_request(body, NameLists())
    assert caught.value.reason is Reason.NOT_JSON
