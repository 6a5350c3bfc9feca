# SPDX-License-Identifier: Apache-2.0
"""What the product asks of an API server: the one protocol of its client.

Every verb is one `request`, so an implementation supplies `request` and `stream` only.
`KubeClient` is the one of the product; tests put others in its place.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

from common.http_body import MIB
from common.kube.resources import Resource

Params = Mapping[str, str | int]

MAX_OBJECT_BYTES: Final = 16 * MIB
"""The largest object or watch event that is read.

etcd takes requests of 1.5 MiB (--max-request-bytes), and JSON spells a byte with up to six
(`\\u0000`), so an object comes to 9 MiB at most.
"""
JSON_TYPE: Final = "application/json"


class PatchKind(enum.StrEnum):
    """How the server applies a patch; the value is its content type."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


class KubeApi(Protocol):
    """The requests that Evenkeel sends; failures are errors of `common.kube.errors`."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,  # anything that msgspec can encode
        content_type: str = JSON_TYPE,
        timeout_s: float | None = None,
        max_bytes: int = MAX_OBJECT_BYTES,
    ) -> bytes:
        """Send one request and return the response body; raise TooLarge above `max_bytes`."""
        ...

    def stream(
        self, path: str, *, params: Params, connect_s: float, silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch and yield its lines; raise TimedOut when none comes for `silence_s`."""
        ...

    async def get(
        self,
        path: str,
        *,
        params: Params | None = None,
        timeout_s: float | None = None,
        max_bytes: int = MAX_OBJECT_BYTES,
    ) -> bytes:
        """Read an object, a list or anything else that the server serves."""
        return await self.request(
            "GET", path, params=params, timeout_s=timeout_s, max_bytes=max_bytes
        )

    async def create(
        self,
        resource: Resource,
        body: Any,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> bytes:
        """Create an object, or post to a subresource of the object `name`."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        params = {"dryRun": "All"} if dry_run else None
        return await self.request("POST", path, params=params, body=body)

    async def replace(
        self,
        resource: Resource,
        body: Any,
        *,
        name: str,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> bytes:
        """Replace an object; a Conflict if its resourceVersion is not the current one."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self.request("PUT", path, body=body)

    async def patch(
        self,
        resource: Resource,
        body: Any,
        *,
        name: str,
        namespace: str | None = None,
        subresource: str | None = None,
        kind: PatchKind = PatchKind.MERGE,
    ) -> bytes:
        """Patch an object."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self.request("PATCH", path, body=body, content_type=kind.value)

    async def delete(
        self,
        resource: Resource,
        *,
        name: str,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> bytes:
        """Delete an object, only if it is still the one with this uid and version."""
        expected = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in expected.items() if value is not None}
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            options["preconditions"] = preconditions
        path = resource.path(namespace=namespace, name=name)
        return await self.request("DELETE", path, body=options)
