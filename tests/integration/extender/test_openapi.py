# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI description: published, served, and true of real requests and responses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from jsonschema import Draft202012Validator

from common.clock import SYSTEM
from common.metrics import Metrics
from extender.openapi import document
from extender.service import make_app
from tests.support.stands.extender_service import (
    VERBS,
    ByName,
    Json,
    Service,
    a_pod,
    args,
    full_args,
    go_json,
    nothing_known,
    preemption_args,
    running,
)

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

DOCS = Path(__file__).parents[3] / "docs"
API: Json = json.loads(document())
WHOLE_VICTIMS = {"a": {"Pods": [a_pod("x"), a_pod("y")], "NumPDBViolations": 1}}
# As captured from kube-scheduler 1.36.4 (see docs/scheduler.md), in both cache modes.
REQUESTS: dict[str, tuple[str, Json]] = {
    "filter names": ("filter", args("a", "closed-1")),
    "filter no names": ("filter", args()),
    "filter nodes": ("filter", full_args("a", "closed-1")),
    "prioritize names": ("prioritize", args("a", "b")),
    "prioritize nodes": ("prioritize", full_args("a", "b")),
    "preempt victims by uid": ("preempt", preemption_args({"a": ["u1"], "closed-1": ["u2"]})),
    "preempt no victims": ("preempt", preemption_args({"a": []})),
    "preempt null victims": (
        "preempt",
        preemption_args({}, NodeNameToMetaVictims={"a": {"Pods": None, "NumPDBViolations": 0}}),
    ),
    "preempt whole victims": (
        "preempt",
        preemption_args({}, NodeNameToMetaVictims=None, NodeNameToVictims=WHOLE_VICTIMS),
    ),
}
NOT_REQUESTS: dict[str, tuple[str, Json]] = {
    "no pod": ("filter", {"NodeNames": ["a"]}),
    "names are a string": ("prioritize", args("a", NodeNames="a")),
    "a name is a number": ("filter", args("a", NodeNames=[1])),
    "nodes are a list": ("filter", args(NodeNames=None, Nodes=[])),
    "victims are a list": ("preempt", preemption_args({}, NodeNameToMetaVictims=[])),
}

shared_loop = pytest.mark.asyncio(loop_scope="module")


def operation(verb: str) -> Json:
    found: Json = API["paths"][f"/{verb}"]["post"]
    return found


def schema_of(content: Json) -> Draft202012Validator:
    """Return the validator of a request or a response, with the components it refers to."""
    schema: Json = content["content"]["application/json"]["schema"]
    return Draft202012Validator({**schema, "components": API["components"]})


@shared_loop
async def test_the_service_serves_the_published_description(service: Service) -> None:
    served = await service.client.get("/openapi.json")
    assert served.headers["content-type"] == "application/json"
    assert served.json() == json.loads((DOCS / "extender.openapi.json").read_text())


def test_the_published_description_is_up_to_date() -> None:
    assert (DOCS / "extender.openapi.json").read_text() == document(), "run `make docs`"


def test_the_verbs_are_routes_of_a_fastapi_application() -> None:
    app = make_app(ByName(), nothing_known, Metrics("extender"), clock=SYSTEM)
    assert isinstance(app, FastAPI)
    routes = {route.path: route.methods for route in app.routes if isinstance(route, APIRoute)}
    assert {verb: routes[f"/{verb}"] for verb in VERBS} == {verb: {"POST"} for verb in VERBS}


@pytest.mark.parametrize("name", API["components"]["schemas"])
def test_every_schema_is_valid_and_described(name: str) -> None:
    schema = API["components"]["schemas"][name]
    Draft202012Validator.check_schema(schema)
    assert schema["description"]


@pytest.mark.parametrize("name", API["components"]["schemas"])
def test_examples_match_their_schema(name: str) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": API["components"]}
    for example in API["components"]["schemas"][name].get("examples", ()):
        Draft202012Validator(schema).validate(example)


@pytest.mark.parametrize("verb", VERBS)
def test_requests_responses_and_errors_have_examples(verb: str) -> None:
    contents = [operation(verb)["requestBody"], *operation(verb)["responses"].values()]
    for content in contents:
        name = content["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert API["components"]["schemas"][name]["examples"]


@pytest.mark.parametrize("name", REQUESTS)
@shared_loop
async def test_requests_and_responses_match_the_schemas(service: Service, name: str) -> None:
    verb, question = REQUESTS[name]
    schema_of(operation(verb)["requestBody"]).validate(question)
    schema_of(operation(verb)["responses"]["200"]).validate(await service.ask(verb, question))


@pytest.mark.parametrize("name", NOT_REQUESTS)
@shared_loop
async def test_errors_match_the_schema_and_their_requests_do_not(
    service: Service, name: str
) -> None:
    verb, question = NOT_REQUESTS[name]
    assert not schema_of(operation(verb)["requestBody"]).is_valid(question)
    answer = await service.post(verb, go_json(question))
    schema_of(operation(verb)["responses"][str(answer.status_code)]).validate(answer.json())


@pytest.mark.parametrize(
    "answer",
    [
        {"NodeNames": None},
        {"NodeNames": ["a"], "FailedNodes": {"b": "x"}, "FailedAndUnresolvableNodes": {}},
        [{"Host": "a", "Score": 11}],
        [{"Host": "a", "Score": 5.5}],
        {"NodeNameToMetaVictims": {"a": None}},
        {"NodeNameToMetaVictims": {"a": {"Pods": [None], "NumPDBViolations": 0}}},
    ],
    ids=str,
)
@pytest.mark.parametrize("verb", VERBS)
def test_answers_that_would_harm_the_scheduler_match_no_schema(verb: str, answer: Any) -> None:
    assert not schema_of(operation(verb)["responses"]["200"]).is_valid(answer)


@shared_loop
async def test_neutral_answers_match_the_schemas(service: Service) -> None:
    service.policy.fails = RuntimeError("bug")
    for verb, question in REQUESTS.values():
        schema_of(operation(verb)["responses"]["200"]).validate(await service.ask(verb, question))


async def through(app: Any, path: str, body: bytes) -> list[Message]:
    """Return what an application sends for a POST request."""
    sent: list[Message] = []
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


@pytest.mark.parametrize("body", [None, b"hello", b""], ids=["request", "text", "empty"])
@pytest.mark.parametrize("name", REQUESTS)
@shared_loop
async def test_the_routes_answer_like_the_shortcut_past_the_router(
    name: str, body: bytes | None
) -> None:
    verb, question = REQUESTS[name]
    app = make_app(ByName(), nothing_known, Metrics("extender"), clock=SYSTEM)
    sent = go_json(question) if body is None else body

    async def routed(scope: Scope, receive: Receive, send: Send) -> None:
        await FastAPI.__call__(app, scope, receive, send)

    assert await through(routed, f"/{verb}", sent) == await through(app, f"/{verb}", sent)


@shared_loop
async def test_a_method_that_is_not_allowed_is_counted_for_its_verb() -> None:
    async with running() as service:
        await service.client.get("/filter")
        await service.client.post("/version")
        assert service.metric("extender_requests_total", verb="filter", code="405") == 1
        assert service.metric("extender_requests_total", verb="other", code="405") == 1
        assert service.metric("extender_bad_requests_total", reason="MethodNotAllowed") == 2
