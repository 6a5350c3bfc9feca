# SPDX-License-Identifier: Apache-2.0
"""HTTP as kube-scheduler speaks it (HTTPExtender.send in pkg/scheduler/extender.go), and as no
client should speak it: clear answers, never a 5xx.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import structlog

from common import __version__
from extender.service import server_options
from tests.support.clock import FakeClock
from tests.support.stands.extender_service import (
    VERBS,
    Json,
    Service,
    args,
    go_json,
    preemption_args,
    running,
    strictly,
)

if TYPE_CHECKING:
    import httpx

MIB = 1 << 20
QUESTIONS: dict[str, Json] = {
    "filter": args("a", "closed-1"),
    "prioritize": args("a", "b"),
    "preempt": preemption_args({"a": ["u1"], "closed-1": ["u2"]}),
}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def line_to(
    service: Service,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a bare connection."""
    reader, writer = await asyncio.open_connection(*service.endpoint)
    try:
        yield reader, writer
    finally:
        writer.close()


async def one_answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return head and body of an answer that says its length."""
    head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:] if line)
    return head, await reader.readexactly(int(fields[b"content-length"]))


def head_of(verb: str, *fields: str) -> bytes:
    lines = [f"POST /{verb} HTTP/1.1", "Host: x", "Content-Type: application/json", *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """Return status and reason of a refusal, which must be proper in every way."""
    content = strictly(answer.content)
    assert list(content) == ["error", "reason"]
    assert content["error"]
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["content-length"]) == len(answer.content)
    return answer.status_code, content["reason"]


@pytest.mark.parametrize("verb", VERBS)
class TestAnAnswer:
    async def test_it_is_exactly_200_and_json(self, service: Service, verb: str) -> None:
        answer = await service.post(verb, go_json(QUESTIONS[verb]))
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"

    async def test_it_says_its_length_and_is_not_streamed(
        self, service: Service, verb: str
    ) -> None:
        answer = await service.post(verb, go_json(QUESTIONS[verb]))
        assert int(answer.headers["content-length"]) == len(answer.content)
        assert "transfer-encoding" not in answer.headers

    async def test_it_is_not_compressed_though_gzip_is_accepted(
        self, service: Service, verb: str
    ) -> None:
        answer = await service.post(verb, go_json(QUESTIONS[verb]), Accept_Encoding="gzip")
        assert "content-encoding" not in answer.headers

    async def test_fifty_calls_use_one_connection(self, service: Service, verb: str) -> None:
        body = go_json(QUESTIONS[verb])
        async with line_to(service) as (reader, writer):
            for _ in range(50):
                writer.write(head_of(verb, f"Content-Length: {len(body)}") + body)
                head, answer = await one_answer(reader)
                assert head.startswith(b"HTTP/1.1 200 OK\r\n")
                strictly(answer)

    async def test_questions_sent_ahead_are_answered_in_turn(
        self, service: Service, verb: str
    ) -> None:
        body = go_json(QUESTIONS[verb])
        async with line_to(service) as (reader, writer):
            writer.write((head_of(verb, f"Content-Length: {len(body)}") + body) * 3)
            answers = [await one_answer(reader) for _ in range(3)]
        assert answers[0] == answers[1] == answers[2]

    async def test_a_chunked_question_is_understood(self, service: Service, verb: str) -> None:
        body = go_json(QUESTIONS[verb])

        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(body), 50):
                yield body[at : at + 50]

        whole = await service.post(verb, body)
        assert (await service.post(verb, pieces())).content == whole.content

    async def test_a_question_may_come_in_pieces(self, service: Service, verb: str) -> None:
        body = go_json(QUESTIONS[verb])
        async with line_to(service) as (reader, writer):
            for piece in (head_of(verb, f"Content-Length: {len(body)}"), body[:7], body[7:]):
                writer.write(piece)
                await writer.drain()
            head, _ = await one_answer(reader)
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")

    async def test_a_client_that_expects_100_continue_gets_it(
        self, service: Service, verb: str
    ) -> None:
        body = go_json(QUESTIONS[verb])
        async with line_to(service) as (reader, writer):
            writer.write(head_of(verb, f"Content-Length: {len(body)}", "Expect: 100-continue"))
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(body)
            head, _ = await one_answer(reader)
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")

    @pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded"])
    async def test_what_the_client_calls_its_json_does_not_matter(
        self, service: Service, verb: str, content_type: str
    ) -> None:
        answer = await service.post(verb, go_json(QUESTIONS[verb]), Content_Type=content_type)
        assert answer.status_code == 200


BAD_BODIES = {
    "empty": (b"", "EmptyBody"),
    "text": (b"hello", "NotJson"),
    "cut off": (go_json(args("a"))[:-1], "NotJson"),
    "trailing": (go_json(args("a")) + b"{}", "NotJson"),
    "utf-16": ('{"Pod":{}}'.encode("utf-16"), "NotJson"),
    "byte order mark": (b"\xef\xbb\xbf" + go_json(args("a")), "NotJson"),
    "invalid utf-8 key": (b'{"\xff": 1}', "NotJson"),
    "array": (b"[]", "WrongType"),
    "null": (b"null", "WrongType"),
    "number": (b"1", "WrongType"),
    "no pod": (go_json({"NodeNames": ["a"]}), "NoPod"),
    "null pod": (go_json(args("a", Pod=None)), "NoPod"),
    "no nodes": (go_json(args("a", NodeNames=None)), "NoNodes"),
    "pod is a list": (go_json(args("a", Pod=[])), "WrongType"),
    "uid is a number": (go_json(args("a", Pod={"metadata": {"uid": 1}})), "WrongType"),
    "names are a string": (go_json(args("a", NodeNames="a")), "WrongType"),
    "names are an object": (go_json(args("a", NodeNames={"a": 1})), "WrongType"),
    "a name is a number": (go_json(args("a", NodeNames=[1])), "WrongType"),
    "nodes are a list": (go_json(args(NodeNames=None, Nodes=[])), "WrongType"),
    "a node has no name": (go_json(args(NodeNames=None, Nodes={"items": [{}]})), "WrongType"),
    "deep array": (b"[" * 100_000, "WrongType"),
    "deep pod": (b'{"NodeNames":["a"],"Pod":' + b"[" * 100_000, "TooDeep"),
    "lone surrogate": (go_json(args("?")).replace(b'"?"', b'"\\ud800"'), "NotJson"),
}


@pytest.mark.parametrize("name", BAD_BODIES)
@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_a_body_that_is_no_question_is_refused_with_a_reason(
    service: Service, verb: str, name: str
) -> None:
    body, reason = BAD_BODIES[name]
    assert refusal(await service.post(verb, body)) == (400, reason)
    assert service.metric("extender_bad_requests_total", reason=reason) == 1
    assert service.metric("extender_requests_total", verb=verb, code="400") == 1


BAD_PREEMPTIONS = {
    "empty": (b"", "EmptyBody"),
    "text": (b"hello", "NotJson"),
    "null": (b"null", "WrongType"),
    "no pod": (go_json(preemption_args({}, Pod=None)), "NoPod"),
    "no victims": (go_json(preemption_args({}, NodeNameToMetaVictims=None)), "NoNodes"),
    "victims are a list": (go_json(preemption_args({}, NodeNameToMetaVictims=[])), "WrongType"),
    "pods are a string": (
        go_json(preemption_args({}, NodeNameToMetaVictims={"a": {"Pods": "u1"}})),
        "WrongType",
    ),
    "beyond 64 bits": (
        go_json(preemption_args({}, NodeNameToMetaVictims={"a": {"NumPDBViolations": 1 << 63}})),
        "WrongType",
    ),
    "deep": (b'{"Pod":{},"NodeNameToMetaVictims":' + b'{"a":' * 100_000, "TooDeep"),
}


@pytest.mark.parametrize("name", BAD_PREEMPTIONS)
async def test_a_body_that_is_no_preemption_is_refused_with_a_reason(
    service: Service, name: str
) -> None:
    body, reason = BAD_PREEMPTIONS[name]
    assert refusal(await service.post("preempt", body)) == (400, reason)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("verb", VERBS)
async def test_verbs_are_asked_with_post(service: Service, verb: str, method: str) -> None:
    answer = await service.client.request(method, f"/{verb}")
    assert refusal(answer) == (405, "MethodNotAllowed")
    assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize(
    "path", ["/bind", "/filter/", "/a/filter", "/docs", "/FILTER", "/version/"]
)
async def test_what_does_not_exist_is_not_redirected(service: Service, path: str) -> None:
    assert refusal(await service.client.post(path, content=b"{}")) == (404, "NotFound")
    assert service.metric("extender_requests_total", verb="other", code="404") == 1


async def test_it_says_what_it_is(service: Service) -> None:
    about = (await service.client.get("/")).json()
    assert about["name"] == "evenkeel extender"
    assert (await service.client.get("/version")).json() == {"version": __version__}
    assert (await service.client.head("/")).status_code == 200
    answer = await service.client.post("/version")
    assert refusal(answer) == (405, "MethodNotAllowed")
    assert sorted(answer.headers["allow"].split(", ")) == ["GET", "HEAD"]


@pytest.mark.parametrize("encoding", ["gzip", "br", "GZIP"])
async def test_compressed_questions_are_refused(service: Service, encoding: str) -> None:
    body = gzip.compress(go_json(args("a")))
    answer = await service.post("filter", body, Content_Encoding=encoding)
    assert refusal(answer) == (415, "Compressed")


class TestSize:
    async def test_64_mib_are_read(self, service: Service) -> None:
        body = go_json(args("a"))
        answer = await service.post("filter", body + b" " * (64 * MIB - len(body)))
        assert answer.status_code == 200

    async def test_more_is_refused_by_its_announcement(self, service: Service) -> None:
        async with line_to(service) as (reader, writer):
            writer.write(head_of("filter", f"Content-Length: {64 * MIB + 1}"))
            head, body = await one_answer(reader)
        assert head.startswith(b"HTTP/1.1 413 ")
        assert strictly(body)["reason"] == "TooLarge"

    async def test_more_is_refused_while_it_is_read(self, service: Service) -> None:
        async def endless() -> AsyncIterator[bytes]:
            for _ in range(65):
                yield b" " * MIB

        assert refusal(await service.post("filter", endless())) == (413, "TooLarge")

    async def test_the_next_question_is_answered_after_a_refusal(self, service: Service) -> None:
        await service.post("filter", b" " * (65 * MIB))
        assert (await service.ask("filter", args("a")))["NodeNames"] == ["a"]

    async def test_large_bodies_share_what_may_be_held_and_small_ones_are_read_all_the_same(
        self, service: Service
    ) -> None:
        async with line_to(service) as (_, slow), line_to(service) as (reader, writer):
            slow.write(head_of("filter", f"Content-Length: {64 * MIB}") + b" " * (60 * MIB))
            await slow.drain()
            writer.write(head_of("filter", f"Content-Length: {16 * MIB}") + b" " * (16 * MIB - 1))
            head, body = await one_answer(reader)
            assert head.startswith(b"HTTP/1.1 429 ")
            assert strictly(body)["reason"] == "TooLarge"
            assert (await service.ask("filter", args("a")))["NodeNames"] == ["a"]
        # What was held by a client that has gone is free again.
        body = go_json(args("a"))
        answer = await service.post("filter", body + b" " * (60 * MIB))
        assert answer.status_code == 200


@pytest.mark.parametrize("sent", [0, 1, 100])
async def test_a_client_that_leaves_in_the_middle_makes_no_noise(
    service: Service, sent: int, caplog: pytest.LogCaptureFixture
) -> None:
    body = go_json(args("a"))
    with structlog.testing.capture_logs() as logs:
        async with line_to(service) as (_, writer):
            writer.write(head_of("filter", f"Content-Length: {len(body)}") + body[:sent])
            await writer.drain()
        await service.ask("filter", args("a"))
    assert (logs, caplog.records) == ([], [])
    assert service.metric("extender_bad_requests_total", reason="EmptyBody") == 0
    assert service.metric("extender_requests_total", verb="filter", code="200") == 1


async def test_an_idle_connection_outlives_the_schedulers_patience() -> None:
    assert server_options()["timeout_keep_alive"] == 120


class TestFailedDecision:
    async def test_any_internal_failure_gets_a_neutral_answer(self, service: Service) -> None:
        service.policy.fails = RuntimeError("bug")
        kept = await service.ask("filter", args("a", "closed-1"))
        assert kept["NodeNames"] == ["a", "closed-1"]
        assert kept["FailedAndUnresolvableNodes"] == {}
        scores = await service.ask("prioritize", args("a", "closed-1"))
        assert [entry["Score"] for entry in scores] == [5, 5]
        question = preemption_args({"a": ["u1"], "closed-1": ["u2"]})
        answer = await service.ask("preempt", question)
        assert answer["NodeNameToMetaVictims"] == question["NodeNameToMetaVictims"]
        for verb in VERBS:
            assert service.metric("neutral_answers_total", verb=verb, cause="internal") == 1
            assert service.metric("extender_requests_total", verb=verb, code="200") == 1

    async def test_it_is_logged_once_a_second_with_the_number_of_suppressed_lines(self) -> None:
        clock = FakeClock()
        async with running(clock=clock) as service:
            service.policy.fails = RuntimeError("bug")
            with structlog.testing.capture_logs() as logs:
                for _ in range(5):
                    await service.ask("filter", args("a"))
                await clock.advance(1.0)
                await service.ask("filter", args("a"))
        assert [(line["event"], line["suppressed"]) for line in logs] == [
            ("decision failed", 0),
            ("decision failed", 4),
        ]


class TestFigures:
    async def test_nodes_are_counted_as_seen_and_refused(self, service: Service) -> None:
        await service.ask("filter", args("a", "closed-1", "closed-2"))
        await service.ask("prioritize", args("a", "b"))
        await service.ask("preempt", preemption_args({"a": ["u1"]}))
        seen = [service.metric("nodes_seen_total", verb=verb) for verb in VERBS]
        assert seen == [3, 2, 1]
        refused = service.metric("nodes_refused_total", reason="node under maintenance")
        assert refused == 2

    @pytest.mark.parametrize("verb", VERBS)
    async def test_every_answer_is_timed(self, service: Service, verb: str) -> None:
        await service.ask(verb, QUESTIONS[verb])
        await service.post(verb, b"hello")
        name = "extender_request_duration_seconds_count"
        assert service.metric(name, verb=verb) == 1
