# SPDX-License-Identifier: Apache-2.0
"""Answers of extenders are read as Go reads them (EXTENDER-CONTRACT §1, measured)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.scheduler.wire import (
    FilterAnswer,
    HostScore,
    Victims,
    WireError,
    arguments,
    filter_answer,
    preemption_arguments,
    scores_answer,
    victims_answer,
)

POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "p", "managedFields": [{"manager": "x"}]},
    "spec": {},
    "status": {},
}


def test_names_are_sent_in_pascal_case_and_nothing_is_left_out() -> None:
    assert json.loads(arguments(POD, ["a", "b"], None)) == {
        "Pod": {"metadata": {"name": "p"}, "spec": {}, "status": {}},
        "Nodes": None,
        "NodeNames": ["a", "b"],
    }


def test_whole_nodes_are_sent_as_a_list_without_types() -> None:
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a"}, "spec": {}}
    sent = json.loads(arguments(POD, None, [node]))
    assert sent["NodeNames"] is None
    assert sent["Nodes"] == {"metadata": {}, "items": [{"metadata": {"name": "a"}, "spec": {}}]}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{}", FilterAnswer()),
        (b"null", FilterAnswer()),
        (b'{"NodeNames":null}', FilterAnswer()),
        (b'{"NodeNames":[]}', FilterAnswer(node_names=())),
        (b'{"node_names":["a"]}', FilterAnswer()),
        (b'{"nodenames":["a"]}', FilterAnswer(node_names=("a",))),
        (b'{"NodeNames":["a"],"NODENAMES":["b"]}', FilterAnswer(node_names=("b",))),
        (b'{"NodeNames":["a"]} trailing', FilterAnswer(node_names=("a",))),
        (b'{"NodeNames":["a","a"]}', FilterAnswer(node_names=("a", "a"))),
        (b'{"NodeNames":[null]}', FilterAnswer(node_names=("",))),
        (b'{"FailedNodes":{"a":"why"}}', FilterAnswer(failed={"a": "why"})),
        (
            b'{"FailedAndUnresolvableNodes":{"a":"why"}}',
            FilterAnswer(unresolvable={"a": "why"}),
        ),
        (b'{"Error":"down"}', FilterAnswer(error="down")),
        (
            b'{"Nodes":{"items":[{"metadata":{"name":"g"}}]}}',
            FilterAnswer(nodes=({"metadata": {"name": "g"}},)),
        ),
    ],
)
def test_filter_answers_are_taken_as_go_takes_them(body: bytes, expected: FilterAnswer) -> None:
    assert filter_answer(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  ",
        b"{",
        b"[]",
        b'"a"',
        b'{"FailedNodes":["a"]}',
        b'{"NodeNames":"a"}',
        b'{"NodeNames":[1]}',
        b'{"Error":1}',
        b'{"NodeNames":[NaN]}',
        b"\xff",
    ],
)
def test_filter_answers_that_go_refuses_are_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        filter_answer(body)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"null", ()),
        (b"[]", ()),
        (b'[{"Host":"a","Score":10}]', (HostScore("a", 10),)),
        (b'[{"host":"a","score":-7}]', (HostScore("a", -7),)),
        (b'[{"Host":"a","Score":null}]', (HostScore("a", 0),)),
        (b'[{"Host":"a"}]', (HostScore("a", 0),)),
    ],
)
def test_scores_are_whole_numbers(body: bytes, expected: tuple[HostScore, ...]) -> None:
    assert scores_answer(body) == expected


@pytest.mark.parametrize("score", ["5.0", "5.5", "1e1", '"5"', "9223372036854775808", "true"])
def test_one_score_that_is_no_whole_number_drops_the_whole_list(score: str) -> None:
    with pytest.raises(WireError):
        scores_answer(f'[{{"Host":"a","Score":1}},{{"Host":"b","Score":{score}}}]'.encode())


@pytest.mark.parametrize("body", [b"{}", b'{"scores":[]}', b'[["a",1]]'])
def test_scores_must_be_a_bare_list(body: bytes) -> None:
    with pytest.raises(WireError):
        scores_answer(body)


def test_victims_are_sent_by_uid_or_whole() -> None:
    victims = {"n1": Victims(("u1",), 2)}
    sent = json.loads(preemption_arguments(POD, victims, None))
    assert sent["NodeNameToVictims"] is None
    assert sent["NodeNameToMetaVictims"] == {"n1": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 2}}
    sent = json.loads(preemption_arguments(POD, victims, {"n1": [POD]}))
    assert sent["NodeNameToMetaVictims"] is None
    assert sent["NodeNameToVictims"]["n1"]["Pods"][0]["metadata"] == {"name": "p"}


def test_agreed_victims_are_read() -> None:
    body = b'{"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"u1"}],"NumPDBViolations":1}}}'
    assert victims_answer(body) == {"n1": Victims(("u1",), 1)}
    assert victims_answer(b"{}") == {}


def test_an_answer_that_kills_the_real_scheduler_is_an_error_here() -> None:
    with pytest.raises(WireError, match="crash"):
        victims_answer(b'{"NodeNameToMetaVictims":{"n1":null}}')


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_answer_causes_any_other_error(body: bytes) -> None:
    for read in (filter_answer, scores_answer, victims_answer):
        try:
            read(body)
        except WireError as error:
            assert str(error)  # noqa: PT017 - either outcome is fine, nothing else is
