# SPDX-License-Identifier: Apache-2.0
"""The real API server from further away: watches of one kind arrive late.

A proxy on loopback that passes everything on as the user of a kubeconfig. What a watch of
that kind says is held back for `delay_s`, in order and losing nothing, as a slow network or
a busy watch cache would.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from common.clock import SYSTEM

# What belongs to one connection, not to the request or its answer.
HOP = frozenset({"host", "connection", "transfer-encoding", "content-length", "keep-alive"})


class SlowApi:
    """Passes requests on; `delay_s` may be changed at any time."""

    def __init__(self, upstream: aiohttp.ClientSession, server: str, plural: str) -> None:
        self.delay_s = 0.0
        self.kubeconfig = Path()
        self._upstream = upstream
        self._server = server
        self._ending = f"/{plural}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP}
        async with self._upstream.request(
            request.method,
            self._server + request.raw_path,
            headers=headers,
            data=await request.read() or None,
        ) as answer:
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in HOP}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            await self._pass_on(answer, response, late=self._is_late(request))
            return response

    def _is_late(self, request: web.Request) -> bool:
        return request.path.endswith(self._ending) and "watch" in request.query

    async def _pass_on(
        self, answer: aiohttp.ClientResponse, response: web.StreamResponse, *, late: bool
    ) -> None:
        """Write every piece when its time has come; reading goes on meanwhile."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            async for piece in answer.content.iter_any():
                due = SYSTEM.monotonic() + (self.delay_s if late else 0.0)
                pieces.put_nowait((due, piece))
            pieces.put_nowait((0.0, b""))

        reading = asyncio.create_task(read())
        try:
            while (item := await pieces.get())[1]:
                await SYSTEM.sleep(max(0.0, item[0] - SYSTEM.monotonic()))
                await response.write(item[1])
        except ConnectionResetError:
            pass  # the client has gone
        finally:
            reading.cancel()


@asynccontextmanager
async def slow_api(kubeconfig: Path, folder: Path, plural: str) -> AsyncIterator[SlowApi]:
    """Serve the proxy for the user of `kubeconfig`; its own kubeconfig needs no login."""
    config = yaml.safe_load(await asyncio.to_thread(kubeconfig.read_text))
    server = config["clusters"][0]["cluster"]["server"]
    connector = aiohttp.TCPConnector(ssl=_tls(config, folder), limit=0)
    limit = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        connector=connector, timeout=limit, auto_decompress=False
    ) as upstream:
        proxy = SlowApi(upstream, server, plural)
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", proxy.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        proxy.kubeconfig = _plain_kubeconfig(folder, f"http://{host}:{port}")
        try:
            yield proxy
        finally:
            await runner.cleanup()


def _tls(config: dict[str, Any], folder: Path) -> ssl.SSLContext:
    authority = config["clusters"][0]["cluster"]["certificate-authority-data"]
    tls = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
    user = config["users"][0]["user"]
    pair = folder / "proxy.pem"
    pair.touch(mode=0o600)
    pair.write_bytes(
        base64.b64decode(user["client-key-data"])
        + base64.b64decode(user["client-certificate-data"])
    )
    tls.load_cert_chain(pair)
    return tls


def _plain_kubeconfig(folder: Path, server: str) -> Path:
    path = folder / "proxy.kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "slow",
        "clusters": [{"name": "slow", "cluster": {"server": server}}],
        "users": [{"name": "slow", "user": {}}],
        "contexts": [{"name": "slow", "context": {"cluster": "slow", "user": "slow"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path
