# SPDX-License-Identifier: Apache-2.0
"""The simulator's store in place of a `KubeClient`, without a socket in between.

For tests that play minutes of a clock of their own. `before` runs ahead of each call and
may wait (the call is stalled) or raise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from common.clock import Clock
from common.kube.api import Params
from common.kube.errors import api_error
from common.kube.resources import LEASES, NAMESPACES, Resource
from simulator import build
from simulator.api import Store
from simulator.api.deletion import DeleteOptions
from simulator.api.errors import Refusal
from tests.support.stands.kube_api import PartialKubeApi

Json = dict[str, Any]
Hook = Callable[[str], Awaitable[None]]


async def nothing(_: str) -> None:
    """The hook that does no harm."""


class StoreClient(PartialKubeApi):
    """Leases of one namespace, with the manners of the API server."""

    def __init__(self, clock: Clock, namespace: str = "here") -> None:
        self.store = Store(clock=clock)
        self.store.create(NAMESPACES, build.namespace(namespace))
        self.namespace = namespace
        self.calls: list[str] = []
        self.before: Hook = nothing

    def leases(self) -> dict[str, Json]:
        """Return all Leases by name."""
        found = self.store.storage.collection(LEASES).within(self.namespace).values()
        return {entry.obj["metadata"]["name"]: entry.obj for entry in found}

    async def get(self, path: str, *, params: Params | None = None, **_: Any) -> bytes:
        await self._called("list")
        assert path == LEASES.path(namespace=self.namespace)
        assert params is not None
        wanted = dict(pair.split("=") for pair in str(params["labelSelector"]).split(","))
        items = [
            lease
            for lease in self.leases().values()
            if wanted.items() <= lease["metadata"].get("labels", {}).items()
        ]
        return msgspec.json.encode({"items": items})

    async def create(
        self, resource: Resource, body: Any, *, namespace: str | None = None, **_: Any
    ) -> bytes:
        await self._called("create")
        with _translated():
            return msgspec.json.encode(self.store.create(resource, body, namespace=namespace))

    async def patch(
        self, resource: Resource, body: Any, *, name: str, namespace: str | None = None, **_: Any
    ) -> bytes:
        await self._called("patch")
        with _translated():
            made = self.store.patch(resource, name, body, namespace=namespace)
        return msgspec.json.encode(made)

    async def delete(
        self,
        resource: Resource,
        *,
        name: str,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> bytes:
        await self._called("delete")
        options = DeleteOptions(uid=uid, resource_version=resource_version)
        with _translated():
            self.store.delete(resource, name, namespace=namespace, options=options)
        return b"{}"

    async def _called(self, verb: str) -> None:
        self.calls.append(verb)
        await self.before(verb)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except Refusal as no:
        raise api_error(no.code, no.message, reason=no.reason) from no
