# SPDX-License-Identifier: Apache-2.0
"""The FastAPI application of the extender and its OpenAPI description.

The three verbs are FastAPI routes, but POST requests to them are handed over before FastAPI's
middleware and router run, which would add about 40 % to a round trip with 500 names
(`python -m bench.extender` prints the current figures). Everything else goes through FastAPI:
the description, the version, and the errors 404 and 405.

    python -m extender.openapi > docs/extender.openapi.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.responses import Response

from common import __version__
from extender.errors import BadRequest, Reason
from extender.schemas import (
    ErrorResponse,
    ExtenderArgs,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriorityList,
)

if TYPE_CHECKING:
    from pydantic import BaseModel
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

Refused = Callable[[str, BadRequest], None]
"""Called with the verb and the error of a request that was not answered."""

_SCHEMA_REF: Final = "#/components/schemas/{model}"
_DESCRIPTION: Final = """\
The HTTP API that kube-scheduler calls for each pod
(`staging/src/k8s.io/kube-scheduler/extender/v1/types.go` and `pkg/scheduler/extender.go` in
Kubernetes 1.36).

Answers have status 200, a `Content-Length` and are never compressed. A request that cannot be
answered gets a 4xx with a reason, never a 5xx. If a decision fails inside the extender, the
answer is neutral: all nodes pass, all scores are equal, all preemption candidates stay.
"""
_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": ErrorResponse, "description": "The body is not a valid request."},
    413: {"model": ErrorResponse, "description": "The body is larger than 64 MiB."},
    415: {"model": ErrorResponse, "description": "The body is compressed."},
    429: {"model": ErrorResponse, "description": "Too many large bodies are being received."},
}


class Operation(NamedTuple):
    """One verb, as the description shows it."""

    verb: str
    summary: str
    description: str
    request: type[BaseModel]
    response: type[BaseModel]
    """Its docstring describes the response."""


OPERATIONS: Final = (
    Operation(
        "filter",
        "Reject nodes for a pod",
        "Rejects nodes under maintenance. The replacement of a moved pod is directed to its "
        "planned node, and other pods do not get room that is reserved for one. Load and moves "
        "never reject the whole list.",
        ExtenderArgs,
        ExtenderFilterResult,
    ),
    Operation(
        "prioritize",
        "Score nodes for a pod",
        "Scores every node by what it will use with the pod on it. The planned node of a moved "
        "pod gets the best score.",
        ExtenderArgs,
        HostPriorityList,
    ),
    Operation(
        "preempt",
        "Drop preemption candidates",
        "Drops candidate nodes that the filter would reject, so that no pod is preempted in "
        "vain. Victims are never changed.",
        ExtenderPreemptionArgs,
        ExtenderPreemptionResult,
    ),
)


class ExtenderApi(FastAPI):
    """Routes the verbs to their handlers and answers everything else itself."""

    def __init__(self, verbs: Mapping[str, ASGIApp], refused: Refused) -> None:
        """`verbs` are the handlers by name; without them it can only describe itself."""
        super().__init__(
            title="Evenkeel scheduler extender",
            version="v1",  # of kube-scheduler's extender API, not of Evenkeel
            description=_DESCRIPTION,
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
        )
        self._handlers = {f"/{name}": handler for name, handler in verbs.items()}
        self._refused = refused
        for operation in OPERATIONS:
            self._add_verb(operation)
        self.add_route("/", self._about)
        self.add_route("/version", self._version)
        self.add_exception_handler(HTTPException, self._refuse)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handlers.get(scope.get("path", ""))
        if handler is not None and scope.get("method") == "POST":
            await handler(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """Return the description; the schemas of requests are added to what FastAPI finds.

        FastAPI knows only the bodies that it decodes itself.
        """
        if self.openapi_schema is None:
            made = super().openapi()
            requests = {operation.request: None for operation in OPERATIONS}
            _, found = models_json_schema(
                [(model, "validation") for model in requests], ref_template=_SCHEMA_REF
            )
            schemas = made["components"]["schemas"] | found["$defs"]
            made["components"]["schemas"] = dict(sorted(schemas.items()))
        return super().openapi()

    def _add_verb(self, operation: Operation) -> None:
        path = f"/{operation.verb}"

        async def endpoint() -> Response:
            return _HandledResponse(self._handlers[path])

        schema = {"$ref": _SCHEMA_REF.format(model=operation.request.__name__)}
        body = {"required": True, "content": {"application/json": {"schema": schema}}}
        self.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            operation_id=operation.verb,
            summary=operation.summary,
            description=operation.description,
            response_model=operation.response,
            response_description="The decision.",
            responses=_ERRORS,
            openapi_extra={"requestBody": body},
        )

    async def _about(self, _: Request) -> Response:
        about: dict[str, Any] = {
            "name": "evenkeel extender",
            "version": __version__,
            "verbs": [f"POST /{operation.verb}" for operation in OPERATIONS],
            "openapi": self.openapi_url,
        }
        return JSONResponse(about)

    async def _version(self, _: Request) -> Response:
        return JSONResponse({"version": __version__})

    async def _refuse(self, request: Request, error: Exception) -> Response:
        """Answer a path or a method that does not exist; see `HTTPException`."""
        assert isinstance(error, HTTPException)
        bad = _bad_request(error)
        path = request.url.path
        self._refused(path[1:] if path in self._handlers else "other", bad)
        content = {"error": str(bad), "reason": bad.reason}
        return JSONResponse(content, status_code=bad.status, headers=error.headers)


class _HandledResponse(Response):
    """Hands the request over to the handler of a verb, which sends the response itself."""

    def __init__(self, handler: ASGIApp) -> None:
        super().__init__()
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._handler(scope, receive, send)


def _bad_request(error: HTTPException) -> BadRequest:
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        method = "POST" if allowed == "POST" else "GET"
        return BadRequest(Reason.METHOD_NOT_ALLOWED, f"use {method} for this path", status=405)
    message = "not found; the verbs are POST /filter, /prioritize and /preempt"
    return BadRequest(Reason.NOT_FOUND, message, status=404)


def document() -> str:
    """Return the OpenAPI description as it is published in docs/."""
    api = ExtenderApi({}, lambda verb, error: None)
    return json.dumps(api.openapi(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
