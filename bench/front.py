# SPDX-License-Identifier: Apache-2.0
"""A proxy for a simulated cluster that answers requests for single measurements itself.

The simulator searches all measurements to find one, which is slow for a program that requests
thousands one by one. The peer must not be charged with that, so these answers are made in
advance; everything else is passed on.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import aiohttp
import msgspec
from aiohttp import web

API = "/apis/metrics.k8s.io/v1beta1"

Amounts = tuple[float, float]
"""CPU (milli) and memory (MiB)."""


class Front:
    """Passes requests on, except those whose answer it knows."""

    def __init__(self, url: str, nodes: Mapping[str, Amounts], pods: Mapping[str, Amounts]) -> None:
        self._url = url
        self._known = {f"{API}/nodes/{name}": _node(name, used) for name, used in nodes.items()} | {
            f"{API}/namespaces/default/pods/{name}": _pod(name, used) for name, used in pods.items()
        }

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve on a free port as long as the block lasts; give the address."""
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
            self._session = session
            # Otherwise a watch whose client has gone would stay open until the next event.
            server = web.Server(self._handle, handler_cancellation=True)
            runner = web.ServerRunner(server, shutdown_timeout=1.0)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            try:
                yield f"http://127.0.0.1:{runner.addresses[0][1]}"
            finally:
                await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        known = self._known.get(request.path)
        if known is not None:
            return web.Response(body=known, content_type="application/json")
        return await self._pass_on(request)

    async def _pass_on(self, request: web.BaseRequest) -> web.StreamResponse:
        kept = {key: value for key, value in request.headers.items() if key.lower() != "host"}
        async with self._session.request(
            request.method, self._url + request.path_qs, data=await request.read(), headers=kept
        ) as found:
            response = web.StreamResponse(status=found.status)
            for key in ("Content-Type", "Content-Encoding"):
                if key in found.headers:
                    response.headers[key] = found.headers[key]
            with suppress(ConnectionResetError):  # the client closes the connection when it is done
                await response.prepare(request)
                async for chunk in found.content.iter_any():
                    await response.write(chunk)
            return response


def _node(name: str, used: Amounts) -> bytes:
    return _encoded("NodeMetrics", {"name": name}, {"usage": _usage(used)})


def _pod(name: str, used: Amounts) -> bytes:
    containers = [{"name": "app", "usage": _usage(used)}]
    return _encoded(
        "PodMetrics", {"name": name, "namespace": "default"}, {"containers": containers}
    )


def _encoded(kind: str, metadata: Mapping[str, str], measured: Mapping[str, object]) -> bytes:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    head = {"kind": kind, "apiVersion": "metrics.k8s.io/v1beta1", "metadata": metadata}
    return msgspec.json.encode({**head, "timestamp": now, "window": "30s", **measured})


def _usage(used: Amounts) -> dict[str, str]:
    return {"cpu": f"{round(used[0])}m", "memory": f"{round(used[1])}Mi"}
