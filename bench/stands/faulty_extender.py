# SPDX-License-Identifier: Apache-2.0
"""An extender that fails in the way a test asks for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum

from aiohttp import web


class Fault(Enum):
    """What it does with every request."""

    SILENT = "takes the request and never answers"
    GARBAGE = "answers 200 and half a JSON value"
    ERROR = "answers 500"


@asynccontextmanager
async def faulty_extender(fault: Fault) -> AsyncIterator[str]:
    """Serve on loopback; give the URL."""

    async def handle(request: web.Request) -> web.Response:
        await request.read()
        if fault is Fault.SILENT:
            await asyncio.Event().wait()
        if fault is Fault.ERROR:
            return web.Response(status=500, text="broken")
        return web.Response(text='{"NodeNames": [', content_type="application/json")

    app = web.Application()
    app.router.add_post("/{verb}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()
