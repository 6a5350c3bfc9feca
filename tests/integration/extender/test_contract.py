# SPDX-License-Identifier: Apache-2.0
"""What kube-scheduler v1.36.4 was measured to need of an extender, row by row.

The rows are those of pkg/scheduler/extender.go, schedule_one.go and preemption.go that a
service can break: each says what the scheduler would do wrong, and shows that no answer of
ours makes it do so.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from common.api.objects import Pod
from simulator import build
from tests.support.stands.extender_service import (
    REFUSED,
    Json,
    Service,
    a_pod,
    args,
    full_args,
    go_json,
    preemption_args,
    running,
    score,
)
from tests.support.worlds.null_fields import full, nulled, paths

FILTER_KEYS = ["NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"]


pytestmark = pytest.mark.asyncio(loop_scope="module")


MIXED = ("a", "closed-1", "b", "closed-2", "c")


class TestFilter:
    """Table 1.1."""

    @pytest.mark.parametrize("names", [(), ("a",), ("closed-1",), MIXED], ids=len)
    async def test_the_list_is_never_null_or_missing(
        self, service: Service, names: tuple[str, ...]
    ) -> None:
        answer = await service.ask("filter", args(*names))
        assert isinstance(answer["NodeNames"], list)

    async def test_an_empty_list_comes_with_a_reason_for_every_node(self, service: Service) -> None:
        answer = await service.ask("filter", args("closed-1", "closed-2"))
        assert answer["NodeNames"] == []
        assert answer["FailedAndUnresolvableNodes"] == {"closed-1": REFUSED, "closed-2": REFUSED}

    async def test_keys_are_go_field_names(self, service: Service) -> None:
        assert list(await service.ask("filter", args(*MIXED))) == FILTER_KEYS

    async def test_no_node_is_claimed_that_was_not_asked_about(self, service: Service) -> None:
        answer = await service.ask("filter", args(*MIXED))
        named = {*answer["NodeNames"], *answer["FailedAndUnresolvableNodes"]}
        assert named <= set(MIXED)

    async def test_kept_and_failed_partition_the_input_in_its_order(self, service: Service) -> None:
        answer = await service.ask("filter", args(*MIXED))
        assert answer["NodeNames"] == ["a", "b", "c"]
        assert list(answer["FailedAndUnresolvableNodes"]) == ["closed-1", "closed-2"]

    async def test_refused_nodes_are_unresolvable(self, service: Service) -> None:
        answer = await service.ask("filter", args(*MIXED))
        assert answer["FailedNodes"] == {}
        assert set(answer["FailedAndUnresolvableNodes"].values()) == {REFUSED}

    async def test_failed_nodes_are_maps(self, service: Service) -> None:
        answer = await service.ask("filter", args("a"))
        assert (answer["FailedNodes"], answer["FailedAndUnresolvableNodes"]) == ({}, {})

    async def test_a_policy_decision_is_no_error(self, service: Service) -> None:
        assert (await service.ask("filter", args("closed-1")))["Error"] == ""

    async def test_duplicate_names_are_kept_twice_and_failed_once(self, service: Service) -> None:
        answer = await service.ask("filter", args("a", "closed-1", "a", "closed-1"))
        assert answer["NodeNames"] == ["a", "a"]
        assert answer["FailedAndUnresolvableNodes"] == {"closed-1": REFUSED}

    async def test_names_win_over_nodes(self, service: Service) -> None:
        answer = await service.ask("filter", full_args("x", "y", NodeNames=["a", "b"]))
        assert list(answer) == FILTER_KEYS
        assert answer["NodeNames"] == ["a", "b"]

    async def test_an_empty_list_of_names_is_still_names(self, service: Service) -> None:
        answer = await service.ask("filter", full_args("x", NodeNames=[]))
        assert list(answer) == FILTER_KEYS
        assert answer["NodeNames"] == []

    async def test_whole_nodes_are_answered_with_whole_nodes(self, service: Service) -> None:
        question = full_args(*MIXED)
        answer = await service.ask("filter", question)
        items = question["Nodes"]["items"]
        assert answer["Nodes"] == {"metadata": {}, "items": [items[0], items[2], items[4]]}
        assert answer["NodeNames"] is None
        assert list(answer["FailedAndUnresolvableNodes"]) == ["closed-1", "closed-2"]
        assert (answer["FailedNodes"], answer["Error"]) == ({}, "")

    async def test_whole_nodes_come_back_byte_for_byte(self, service: Service) -> None:
        item = '{ "metadata": {"name":"\\u0061"}, "spec":{"x":1.50e3,"ü":null} }'
        body = f'{{"Pod":{json.dumps(a_pod())},"Nodes":{{"items":[{item}]}},"NodeNames":null}}'
        answer = await service.post("filter", body.encode())
        assert f'"items":[{item}]' in answer.text

    @pytest.mark.parametrize("items", [[], None], ids=["empty", "null"])
    async def test_a_list_of_no_nodes_is_answered_with_one(
        self, service: Service, items: list[Json] | None
    ) -> None:
        answer = await service.ask("filter", full_args(Nodes={"metadata": {}, "items": items}))
        assert (answer["Nodes"]["items"], answer["NodeNames"]) == ([], None)

    @pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity"])
    async def test_literals_that_are_no_json_are_refused(
        self, service: Service, literal: str
    ) -> None:
        body = go_json(args("a", Nodes="?")).replace(b'"?"', literal.encode())
        assert (await service.post("filter", body)).status_code == 400


class TestPrioritize:
    """Section 1.2."""

    @pytest.mark.parametrize("question", [args(*MIXED), full_args(*MIXED)], ids=["names", "nodes"])
    async def test_every_node_gets_a_score_in_the_order_of_the_list(
        self, service: Service, question: Json
    ) -> None:
        answer = await service.ask("prioritize", question)
        assert answer == [{"Host": name, "Score": score(name)} for name in MIXED]

    async def test_the_answer_is_a_bare_array_even_of_nothing(self, service: Service) -> None:
        assert await service.ask("prioritize", args()) == []

    async def test_scores_are_written_as_plain_integers(self, service: Service) -> None:
        names = ["n" * (length + 1) for length in range(22)]
        text = (await service.post("prioritize", go_json(args(*names)))).text
        assert sorted(map(int, re.findall(r'"Score":(\d+)}', text))) == sorted([*range(11)] * 2)
        assert text.count('"Score":') == len(names)

    @pytest.mark.parametrize(
        "scores",
        [[11, 5], [-1, 5], [5], [5, 5, 5], [], [5.5, 5], ["5", 5], [None, 5]],
        ids=str,
    )
    async def test_a_list_that_would_be_dropped_or_untie_nodes_is_never_sent(
        self, service: Service, scores: list[Any]
    ) -> None:
        service.policy.fixed_scores = scores
        answer = await service.ask("prioritize", args("a", "b"))
        assert answer == [{"Host": "a", "Score": 5}, {"Host": "b", "Score": 5}]
        assert service.metric("neutral_answers_total", verb="prioritize", cause="internal") == 1

    async def test_only_hosts_that_were_asked_about_are_scored(self, service: Service) -> None:
        answer = await service.ask("prioritize", full_args("x", NodeNames=["a"]))
        assert [entry["Host"] for entry in answer] == ["a"]

    async def test_names_that_json_must_escape_survive(self, service: Service) -> None:
        names = ('quo"te', "back\\slash", "new\nline", "ünï", "\x00")
        answer = await service.ask("prioritize", args(*names))
        assert tuple(entry["Host"] for entry in answer) == names


class TestPreempt:
    """Section 1.3."""

    async def test_only_known_nodes_and_victims_come_back_unchanged(self, service: Service) -> None:
        question = preemption_args({"a": ["u1", "u2"], "closed-1": ["u3"], "b": ["u4"]})
        question["NodeNameToMetaVictims"]["a"]["NumPDBViolations"] = 2
        kept = question["NodeNameToMetaVictims"]
        answer = await service.ask("preempt", question)
        assert answer == {"NodeNameToMetaVictims": {"a": kept["a"], "b": kept["b"]}}

    async def test_a_veto_is_an_empty_map(self, service: Service) -> None:
        answer = await service.ask("preempt", preemption_args({"closed-1": ["u1"]}))
        assert answer == {"NodeNameToMetaVictims": {}}

    async def test_whole_victims_are_answered_in_the_short_form(self, service: Service) -> None:
        victims = {"Pods": [a_pod("x"), a_pod("y")], "NumPDBViolations": 1}
        long = {"a": victims, "closed-1": victims}
        question = {"Pod": a_pod(), "NodeNameToVictims": long, "NodeNameToMetaVictims": None}
        pods = [{"UID": "uid-of-x"}, {"UID": "uid-of-y"}]
        expected = {"a": {"Pods": pods, "NumPDBViolations": 1}}
        assert await service.ask("preempt", question) == {"NodeNameToMetaVictims": expected}

    @pytest.mark.parametrize("pods", [[], None], ids=["empty", "null"])
    @pytest.mark.parametrize("key", ["NodeNameToMetaVictims", "NodeNameToVictims"])
    async def test_candidates_without_victims_are_accepted_and_hold_no_null(
        self, service: Service, key: str, pods: list[Json] | None
    ) -> None:
        candidates = {"a": {"Pods": pods, "NumPDBViolations": 0}}
        question = preemption_args({}, NodeNameToMetaVictims=None) | {key: candidates}
        expected = {"a": {"Pods": [], "NumPDBViolations": 0}}
        assert await service.ask("preempt", question) == {"NodeNameToMetaVictims": expected}

    async def test_the_short_form_wins_over_the_long_one(self, service: Service) -> None:
        long = {"b": {"Pods": [a_pod("x")], "NumPDBViolations": 0}}
        answer = await service.ask("preempt", preemption_args({"a": ["u"]}, NodeNameToVictims=long))
        assert list(answer["NodeNameToMetaVictims"]) == ["a"]

    @pytest.mark.parametrize(
        "victims",
        [None, {"Pods": [None], "NumPDBViolations": 0}, {"Pods": [{"UID": None}]}],
        ids=["null node", "null pod", "null uid"],
    )
    @pytest.mark.parametrize("key", ["NodeNameToMetaVictims", "NodeNameToVictims"])
    async def test_nulls_that_would_crash_the_scheduler_are_not_sent_back(
        self, service: Service, key: str, victims: Json | None
    ) -> None:
        question = preemption_args({}, NodeNameToMetaVictims=None) | {key: {"a": victims}}
        assert await service.ask("preempt", question) == {"NodeNameToMetaVictims": {}}


class TestNull:
    """On the wire null is absent; none is ever sent back."""

    @pytest.mark.parametrize("verb", ["filter", "prioritize"])
    async def test_any_part_of_the_pod_may_be_null(self, service: Service, verb: str) -> None:
        pod = full(Pod)
        pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1", "memory": 5}
        for path in paths(pod):
            question = args(*MIXED) | {"Pod": nulled(pod, path)}
            answer = await service.post(verb, go_json(question))
            assert answer.status_code == 200, path

    async def test_null_names_are_left_out(self, service: Service) -> None:
        question = args("a") | {"NodeNames": ["a", None, "null", "closed-1", None]}
        answer = await service.ask("filter", question)
        assert answer["NodeNames"] == ["a", "null"]
        assert list(answer["FailedAndUnresolvableNodes"]) == ["closed-1"]
        open_ones = question | {"NodeNames": [None, "a", None]}
        assert (await service.ask("filter", open_ones))["NodeNames"] == ["a"]
        assert [each["Host"] for each in await service.ask("prioritize", open_ones)] == ["a"]

    async def test_null_nodes_are_left_out(self, service: Service) -> None:
        question = full_args("a", "closed-1")
        question["Nodes"]["items"] += [None]
        question["Nodes"]["items"][0] |= {"status": None, "spec": None}
        question["Nodes"]["items"][0]["metadata"] |= {"labels": None}
        answer = await service.ask("filter", question)
        assert [node["metadata"]["name"] for node in answer["Nodes"]["items"]] == ["a"]
        assert len(await service.ask("prioritize", question)) == 2

    @pytest.mark.parametrize("key", ["NodeNameToMetaVictims", "NodeNameToVictims"])
    async def test_null_victims_are_left_out(self, service: Service, key: str) -> None:
        pod = {"UID": "u"} if key == "NodeNameToMetaVictims" else {"metadata": {"uid": "u"}}
        candidates = {
            "a": {"Pods": [None, pod, None], "NumPDBViolations": None},
            "b": None,
            "c": {"Pods": [None]},
            "d": {"Pods": [{"UID": None, "metadata": None}, {}], "NumPDBViolations": 1},
        }
        question = preemption_args({}, NodeNameToMetaVictims=None) | {key: candidates}
        expected = {"a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}}
        assert await service.ask("preempt", question) == {"NodeNameToMetaVictims": expected}


def lower(question: Any, depth: int) -> Any:
    """Return an object with its keys in lower case, down to a depth."""
    if depth == 0 or not isinstance(question, dict):
        return question
    return {key.lower(): lower(value, depth - 1) for key, value in question.items()}


def upper_first(question: Json) -> Json:
    return {key.upper(): value for key, value in question.items()}


class TestLetterCase:
    """Any case in (kube-scheduler up to 1.16 sent lower case), PascalCase out."""

    @pytest.mark.parametrize("fold", [lambda q: lower(q, 1), upper_first], ids=["lower", "upper"])
    @pytest.mark.parametrize("verb", ["filter", "prioritize"])
    @pytest.mark.parametrize("question", [args(*MIXED), full_args(*MIXED)], ids=["names", "nodes"])
    async def test_the_case_of_the_keys_makes_no_difference(
        self, service: Service, verb: str, question: Json, fold: Any
    ) -> None:
        assert await service.ask(verb, fold(question)) == await service.ask(verb, question)

    async def test_the_keys_of_the_first_version_are_understood(self, service: Service) -> None:
        question = {"pod": a_pod(), "nodenames": ["a", "closed-1"]}
        assert (await service.ask("filter", question))["NodeNames"] == ["a"]

    async def test_victims_are_understood_in_lower_case(self, service: Service) -> None:
        question = preemption_args({"a": ["u1"], "closed-1": ["u2"]})
        folded = lower(question, 1)
        folded["nodenametometavictims"] = {
            name: {"pods": [{"uid": pod["UID"]} for pod in each["Pods"]], "numpdbviolations": 3}
            for name, each in question["NodeNameToMetaVictims"].items()
        }
        expected = {"a": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 3}}
        assert await service.ask("preempt", folded) == {"NodeNameToMetaVictims": expected}

    @pytest.mark.parametrize(
        ("first", "last"),
        [("NodeNames", "nodenames"), ("nodenames", "NodeNames"), ("NODENAMES", "nodeNames")],
    )
    async def test_of_two_keys_that_differ_only_in_case_the_last_wins(
        self, service: Service, first: str, last: str
    ) -> None:
        question = {"Pod": a_pod(), "Nodes": None, first: ["a"], last: ["b"]}
        assert (await service.ask("filter", question))["NodeNames"] == ["b"]

    async def test_a_last_null_takes_the_names_back(self, service: Service) -> None:
        question = full_args("x", NodeNames=["a"]) | {"nodenames": None}
        answer = await service.ask("filter", question)
        assert answer["Nodes"]["items"][0]["metadata"]["name"] == "x"

    async def test_further_keys_of_later_versions_are_passed_over(self, service: Service) -> None:
        question = args("a", Attempt=3, Deadline={"seconds": 1})
        assert (await service.ask("filter", question))["NodeNames"] == ["a"]


class TestThePod:
    """What the policy gets to know about the pod."""

    async def test_a_pod_that_the_cache_does_not_know_is_read_from_the_request(
        self, service: Service
    ) -> None:
        pod = a_pod("db", namespace="prod", cpu="1500m")
        pod["status"]["nominatedNodeName"] = "a"
        await service.ask("filter", args("a", Pod=pod))
        (asked,) = service.policy.asked
        assert (asked.namespace, asked.name, asked.uid) == ("prod", "db", "uid-of-db")
        assert asked.nominated_node == "a"
        assert asked.record.requests.cpu_milli == 1500

    async def test_a_known_pod_is_taken_from_the_cache(self) -> None:
        async with running() as first:
            await first.ask("filter", args("a", Pod=a_pod("db", cpu="3")))
        record = first.policy.asked[0].record
        async with running(known={"uid-of-db": record}) as service:
            pod = {"metadata": {"name": "db", "uid": "uid-of-db"}, "status": {}}
            await service.ask("prioritize", args("a", Pod=pod))
        assert service.policy.asked[0].record is record

    async def test_a_pod_that_makes_no_sense_gets_neutral_answers(self, service: Service) -> None:
        pod = a_pod()
        pod["spec"]["containers"] = [build.container(cpu="lots")]
        answer = await service.ask("filter", args("a", "closed-1", Pod=pod))
        assert answer["NodeNames"] == ["a", "closed-1"]
        assert service.metric("neutral_answers_total", verb="filter", cause="pod") == 1
