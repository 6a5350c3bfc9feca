# SPDX-License-Identifier: Apache-2.0
"""Answers hold what kube-scheduler survives, whatever the names are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.cluster.records import PodUid
from extender.protocol import FilterResult, Scores, Victims
from extender.requests import NameLists, read_request
from extender.responses import filter_response, preempt_response, prioritize_response
from tests.support.stands.extender_service import args, full_args, go_json

NAME = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def filtered(question: dict[str, Any], failed: dict[str, str], lists: NameLists) -> Any:
    asked = read_request(go_json(question), lists)
    keep = [name for name in asked.names if name not in failed]
    return json.loads(filter_response(asked, FilterResult(keep, failed), lists))


@given(names=st.lists(NAME, max_size=6), data=st.data())
def test_kept_names_and_failed_ones_are_the_question(names: list[str], data: st.DataObject) -> None:
    refused = set(data.draw(st.lists(st.sampled_from(names)))) if names else set()
    response = filtered(args(*names), dict.fromkeys(refused, "why"), NameLists())
    assert response["NodeNames"] == [name for name in names if name not in refused]
    assert response["FailedAndUnresolvableNodes"] == dict.fromkeys(refused, "why")


@given(names=st.lists(NAME, max_size=4), data=st.data())
def test_kept_nodes_and_failed_ones_are_the_question(names: list[str], data: st.DataObject) -> None:
    refused = set(data.draw(st.lists(st.sampled_from(names)))) if names else set()
    question = full_args(*names)
    response = filtered(question, dict.fromkeys(refused, "why"), NameLists())
    items = question["Nodes"]["items"]
    assert response["Nodes"]["items"] == [i for i in items if i["metadata"]["name"] not in refused]
    assert response["NodeNames"] is None


def test_the_list_that_a_filter_leaves_is_remembered() -> None:
    lists = NameLists()
    asked = read_request(go_json(args("a", "b", "c")), lists)
    left = ["a", "c"]
    filter_response(asked, FilterResult(left, {"b": "why"}), lists)
    assert read_request(go_json(args("a", "c")), lists).names is left


@given(scores=st.lists(st.tuples(NAME, st.integers(0, 10)), max_size=8))
def test_every_name_gets_its_score_in_order(scores: list[tuple[str, int]]) -> None:
    names, numbers = [name for name, _ in scores], [number for _, number in scores]
    response = json.loads(prioritize_response(names, Scores(numbers)))
    assert [(entry["Host"], entry["Score"]) for entry in response] == scores


@pytest.mark.parametrize("scores", [[-1], [11], [5, 5], [], ["5"], [5.5]], ids=str)
def test_scores_that_the_scheduler_would_drop_are_not_written(scores: list[Any]) -> None:
    with pytest.raises((KeyError, ValueError)):
        prioritize_response(["a"], Scores(scores))


@given(names=st.lists(NAME | st.sampled_from(["a,b", '"', "é,", ""]), min_size=1, max_size=6))
@pytest.mark.parametrize("separators", [(",", ":"), (" , ", ": ")], ids=["compact", "spaced"])
def test_names_are_written_as_they_came(names: list[str], separators: tuple[str, str]) -> None:
    came = json.dumps(names, separators=separators).encode()
    response = json.loads(prioritize_response(names, Scores([7] * len(names)), came))
    assert [(entry["Host"], entry["Score"]) for entry in response] == [(name, 7) for name in names]


def test_only_candidates_come_back_from_a_preemption() -> None:
    candidates = {"a": Victims([PodUid("u")], 2), "b": Victims([], 0)}
    response = json.loads(preempt_response(candidates, ["b", "ghost", "a"]))
    assert response == {
        "NodeNameToMetaVictims": {
            "a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 2},
            "b": {"Pods": [], "NumPDBViolations": 0},
        }
    }
