# SPDX-License-Identifier: Apache-2.0
"""An API server whose cluster stands still: lists what it was given, watches stay silent."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from common.kube.resources import NODE_METRICS, POD_METRICS, Resource

Objects = Mapping[Resource, list[dict[str, Any]]]


class StaticApi:
    """Serves objects by kind; `measured` also serves the metrics API, empty unless given."""

    def __init__(self, objects: Objects, *, measured: bool = False) -> None:
        self._lists = {resource.path(): items for resource, items in objects.items()}
        self._measured = measured
        self.url = ""
        self.spoiled: tuple[bytes, dict[str, str]] | None = None
        """Body and headers of every answer of the metrics API while set."""
        self.down = False
        """Answers 503 to everything while true."""

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[StaticApi]:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
            scheme = "https" if tls else "http"
            self.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self.down:
            return web.json_response({"kind": "Status", "code": 503}, status=503)
        if "watch" in request.query:
            return await self._watch(request)
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.36.4"})
        if request.path.startswith(f"/apis/{NODE_METRICS.group}") and not self._measured:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        if request.path == f"/apis/{NODE_METRICS.api_version}":
            names = [{"name": kind.plural} for kind in (NODE_METRICS, POD_METRICS)]
            return web.json_response({"resources": names})
        if self.spoiled is not None and request.path.startswith(f"/apis/{NODE_METRICS.group}/"):
            body, headers = self.spoiled
            return web.Response(body=body, headers=headers)
        items = self._lists.get(request.path, [])
        return web.json_response({"metadata": {"resourceVersion": "7"}, "items": items})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()
        return response
