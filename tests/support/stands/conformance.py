# SPDX-License-Identifier: Apache-2.0
"""One stand of the conformance suite: an API server, seen by one case.

A case is a coroutine that states what an API server must do. It knows only this class, so
the same expectations are held against the simulator and against kube-apiserver. Each case
has a namespace of its own. Its pods are bound to a node that does not exist: no kubelet and
no kwok touches them, so their status is what the case makes it. (The real pod garbage
collector leaves such pods alone for 40 seconds.)
"""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from common.clock import SYSTEM, within
from common.kube.api import PatchKind
from common.kube.resources import PODS, Resource
from simulator import build
from tests.support.repository import ROOT

if TYPE_CHECKING:
    import httpx

# Cases are no test modules, and yet their assertions should explain themselves.
pytest.register_assert_rewrite("tests.conformance.cases")

Json = dict[str, Any]
PATIENCE_S = 20.0
_PAUSE_S = 0.02


@dataclass(frozen=True)
class Answer:
    """What a server said."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def causes(self) -> list[Json]:
        found: list[Json] = (self.body.get("details") or {}).get("causes") or []
        return found

    @property
    def fields(self) -> set[str]:
        """The fields that are named as wrong."""
        return {cause["field"] for cause in self.causes}

    @property
    def metadata(self) -> Json:
        found: Json = self.body["metadata"]
        return found

    @property
    def version(self) -> str:
        return str(self.metadata["resourceVersion"])

    @property
    def names(self) -> list[str]:
        """The names of the objects in a list."""
        return [item["metadata"]["name"] for item in self.body["items"]]

    def expect(self, status: int, reason: str = "") -> Answer:
        """Return this answer if it is the expected one."""
        said = f"{self.status} {json.dumps(self.body)[:2000]}"
        assert self.status == status, f"expected {status}, was told {said}"
        if reason:
            assert self.body["kind"] == "Status", said
            assert self.reason == reason, said
            assert self.body["code"] == status, said
        return self


class Events:
    """The events of a watch, one at a time."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def next(self, timeout_s: float = PATIENCE_S) -> Json | None:
        """Return the next event, or None when the watch has ended."""
        line = await within(SYSTEM, timeout_s, anext(self._lines, ""))
        return json.loads(line) if line else None

    async def take(self, count: int) -> list[tuple[str, str]]:
        """Return the types and names of the next events."""
        return [await self.brief() for _ in range(count)]

    async def brief(self) -> tuple[str, str]:
        event = await self.next()
        assert event is not None, "the watch has ended"
        return event["type"], event["object"]["metadata"].get("name", "")

    async def rest(self) -> list[Json]:
        """Return all events until the watch ends."""
        found = []
        while (event := await self.next()) is not None:
            found.append(event)
        return found


class Stand(ABC):
    """An API server and a namespace in it."""

    name: str

    def __init__(self, http: httpx.AsyncClient, namespace: str) -> None:
        self.http = http
        self.namespace = namespace
        self.nowhere = f"nowhere-{namespace}"
        self._count = 0

    def unique(self, base: str) -> str:
        """Return a name that nothing else in the cluster has."""
        self._count += 1
        return f"{base}-{self.namespace}-{self._count}"

    def path(
        self, resource: Resource, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return a path, in the stand's namespace if the kind has one."""
        namespace = self.namespace if resource.namespaced else None
        return resource.path(namespace=namespace, name=name, subresource=subresource)

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        params: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Send a request and return whatever comes back."""
        content = body if isinstance(body, str | bytes | None) else json.dumps(body)
        headers = {"Accept": accept, **({"Content-Type": content_type} if body is not None else {})}
        response = await self.http.request(
            method, path, content=content, headers=headers, params=params
        )
        plain = response.headers.get("content-type", "").startswith("text/")
        return Answer(
            response.status_code, response.headers, response.text if plain else response.json()
        )

    async def get(
        self, resource: Resource, name: str | None = None, sub: str | None = None, **params: Any
    ) -> Answer:
        return await self.call("GET", self.path(resource, name, sub), params=params)

    async def list(self, resource: Resource, **params: Any) -> Answer:
        return await self.call("GET", self.path(resource), params=params)

    async def create(self, resource: Resource, obj: Json, **params: Any) -> Answer:
        return await self.call("POST", self.path(resource), typed(resource, obj), params=params)

    async def post(
        self, resource: Resource, name: str, sub: str, body: Json, **params: Any
    ) -> Answer:
        return await self.call("POST", self.path(resource, name, sub), body, params=params)

    async def put(
        self, resource: Resource, obj: Json, sub: str | None = None, **params: Any
    ) -> Answer:
        path = self.path(resource, obj["metadata"]["name"], sub)
        return await self.call("PUT", path, obj, params=params)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        sub: str | None = None,
        *,
        kind: PatchKind = PatchKind.MERGE,
        **params: Any,
    ) -> Answer:
        path = self.path(resource, name, sub)
        return await self.call("PATCH", path, body, content_type=kind.value, params=params)

    async def delete(
        self, resource: Resource, name: str, options: Json | None = None, **params: Any
    ) -> Answer:
        return await self.call("DELETE", self.path(resource, name), options, params=params)

    @asynccontextmanager
    async def watch(self, resource: Resource, **params: Any) -> AsyncIterator[Events]:
        """Open a watch that must be granted."""
        query = {"watch": "true", **params}
        # Silence is no failure here; a test that waits for an event says how long.
        async with self.http.stream(
            "GET", self.path(resource), params=query, timeout=None
        ) as response:
            assert response.status_code == 200, await response.aread()
            yield Events(response.aiter_lines())

    async def eventually(
        self, question: Callable[[], Awaitable[Any]], timeout_s: float = PATIENCE_S
    ) -> Any:
        """Ask until the answer is true, because a controller needs a moment."""
        deadline = SYSTEM.monotonic() + timeout_s
        while not (answer := await question()):
            assert SYSTEM.monotonic() < deadline, f"not within {timeout_s:g} s"
            await SYSTEM.sleep(_PAUSE_S)
        return answer

    async def gone(self, resource: Resource, name: str) -> None:
        """Wait until an object no longer exists."""

        async def absent() -> bool:
            return (await self.get(resource, name)).status == 404

        await self.eventually(absent)

    async def pod(
        self, name: str, *, bound: bool = True, ready: bool | None = None, **template: Any
    ) -> Json:
        """Create a pod that no one but the case touches; `ready` makes it run."""
        spec = {"schedulerName": "nobody", **template.pop("spec", {})}
        finalizers = template.pop("finalizers", None)
        owners = template.pop("owners", None)
        made = build.pod(name, namespace=self.namespace, spec=spec, **template)
        if bound:
            made["spec"]["nodeName"] = self.nowhere
        if finalizers:
            made["metadata"]["finalizers"] = finalizers
        if owners:
            made["metadata"]["ownerReferences"] = owners
        created: Json = (await self.create(PODS, made)).expect(201).body
        return created if ready is None else await self.run(name, ready=ready)

    async def run(self, name: str, *, ready: bool = True, phase: str = "Running") -> Json:
        """Give a pod the status of a running one."""
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        body = {"status": {"phase": phase, "conditions": [condition]}}
        answer = await self.patch(PODS, name, body, "status")
        ran: Json = answer.expect(200).body
        return ran

    @abstractmethod
    async def compact(self) -> None:
        """Forget all history, as etcd does every five minutes."""

    @abstractmethod
    async def replicas_of(self, owner: Json, count: int) -> Iterable[str]:
        """Return the names of the pods that the controller of a ReplicaSet has made."""


def typed(resource: Resource, obj: Json) -> Json:
    """Return an object that says what it is."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}


Case = Callable[[Stand], Awaitable[None]]
_CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Make a coroutine part of the suite, under its own name."""
    name = getattr(function, "__name__", "")
    assert name not in _CASES, f"there are two cases named {name}"
    _CASES[name] = function
    return function


def all_cases() -> Mapping[str, Case]:
    """Return the whole suite by name."""
    for file in sorted((ROOT / "tests" / "conformance" / "cases").glob("*.py")):
        importlib.import_module(f"tests.conformance.cases.{file.stem}")
    return _CASES
