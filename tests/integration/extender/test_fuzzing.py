# SPDX-License-Identifier: Apache-2.0
"""Whatever comes in, what goes out is an answer or a refusal: JSON, never a 5xx, never silence.

An answer keeps the promises that kube-scheduler relies on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from tests.integration.extender.mutations import JSON, mutated
from tests.support.stands.extender_service import VERBS, Service, closed, running

if TYPE_CHECKING:
    import httpx

Fuzz = Callable[[str, bytes], None]


@pytest.fixture(scope="module")
def fuzz() -> Iterator[Fuzz]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = AsyncExitStack()
        service = runner.run(stack.enter_async_context(running()))

        def fuzz(verb: str, body: bytes) -> None:
            service.policy.forget()
            check(verb, runner.run(service.post(verb, body)), service)

        yield fuzz
        runner.run(stack.aclose())


def check(verb: str, answer: httpx.Response, service: Service) -> None:
    response = proper_json(answer.content)
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["content-length"]) == len(answer.content)
    if answer.status_code == 200:
        CHECKS[verb](response, service.policy.names)
    else:
        assert 400 <= answer.status_code < 500
        assert list(response) == ["error", "reason"]


def proper_json(data: bytes) -> Any:
    def refuse(literal: str) -> None:
        raise AssertionError(f"{literal} is no JSON")

    return json.loads(data.decode(), parse_constant=refuse)


def check_filter(response: Any, asked: list[str] | None) -> None:
    failed = response["FailedAndUnresolvableNodes"]
    assert (response["FailedNodes"], response["Error"]) == ({}, "")
    kept = response["NodeNames"]
    if kept is None:
        kept = [node["metadata"]["name"] for node in response["Nodes"]["items"]]
    assert kept == [name for name in kept if name not in failed]
    if asked is not None:
        assert kept == [name for name in asked if not closed(name)]
        assert set(failed) == {name for name in asked if closed(name)}


def check_prioritize(response: Any, asked: list[str] | None) -> None:
    assert all(type(entry["Score"]) is int and 0 <= entry["Score"] <= 10 for entry in response)
    if asked is not None:
        assert [entry["Host"] for entry in response] == asked


def check_preempt(response: Any, asked: list[str] | None) -> None:
    kept = response["NodeNameToMetaVictims"]
    for victims in kept.values():
        assert type(victims["NumPDBViolations"]) is int
        assert all(type(pod["UID"]) is str for pod in victims["Pods"])
    if asked is not None:
        assert list(kept) == [name for name in asked if not closed(name)]


CHECKS = {"filter": check_filter, "prioritize": check_prioritize, "preempt": check_preempt}


@given(verb=st.sampled_from(VERBS), body=st.binary(max_size=200))
def test_any_bytes_are_answered(fuzz: Fuzz, verb: str, body: bytes) -> None:
    fuzz(verb, body)


@given(verb=st.sampled_from(VERBS), value=JSON)
def test_any_json_is_answered(fuzz: Fuzz, verb: str, value: Any) -> None:
    fuzz(verb, json.dumps(value).encode())


@pytest.mark.parametrize("verb", VERBS)
@given(data=st.data())
def test_damaged_requests_are_answered(fuzz: Fuzz, verb: str, data: st.DataObject) -> None:
    fuzz(verb, data.draw(mutated(verb)))


@pytest.mark.parametrize("verb", VERBS)
@given(data=st.data())
def test_requests_with_damaged_bytes_are_answered(
    fuzz: Fuzz, verb: str, data: st.DataObject
) -> None:
    body = bytearray(data.draw(mutated(verb)))
    for at in data.draw(st.lists(st.integers(0, len(body)), max_size=3)):
        body[at : at + 1] = data.draw(st.binary(max_size=3))
    fuzz(verb, bytes(body))
