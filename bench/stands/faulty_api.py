# SPDX-License-Identifier: Apache-2.0
"""An API server that fails: a loopback proxy before the real one that spoils some requests.

A request is refused before the API server sees it, or carried out and its answer lost: a client
cannot tell which. Watches and lists pass, because what a reader does without them is tested
elsewhere; the draw is seeded, so a run draws the same faults for the same requests.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

from bench.stands.http import trusted

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
# They belong to one connection, or are set again by the server and the client.
_OWN_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection"})


class FaultyApi:
    """What it spoils, and what it has spoiled."""

    def __init__(self, share: float, seed: int) -> None:
        self.share = share
        self.did: Counter[str] = Counter()
        self._rng = random.Random(seed)

    def draw(self, request: web.Request) -> str:
        """Return what happens to a request: empty, `refused` or `lost`."""
        watched = request.method == "GET" and "/" not in _name_of(request.path)
        spoiled = not watched and self._rng.random() < self.share
        if not spoiled:
            self.did["passed"] += 1
            return ""
        lost = request.method in WRITES and self._rng.random() < 0.5
        found = "lost" if lost else "refused"
        self.did[found] += 1
        return found


def _name_of(path: str) -> str:
    """Return `resource/name…` of a path, `resource` alone for a list."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    return "/".join(rest[2:] if rest[:1] == ["namespaces"] and len(rest) > 2 else rest)


@asynccontextmanager
async def faulty_api(
    kubeconfig: Path, *, share: float = 0.1, seed: int = 1
) -> AsyncIterator[tuple[Path, FaultyApi]]:
    """Stand before the API server of a kubeconfig; give the kubeconfig for the way through it."""
    faults, (server, trust) = FaultyApi(share, seed), trusted(kubeconfig)
    connector = aiohttp.TCPConnector(ssl=trust, limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, auto_decompress=False
    ) as session:

        async def handle(request: web.Request) -> web.StreamResponse:
            fate = faults.draw(request)
            if fate == "refused":
                return web.json_response(_status("refused by the test"), status=500)
            headers = {k: v for k, v in request.headers.items() if k.lower() not in _OWN_HEADERS}
            body = await request.read()
            async with session.request(
                request.method, f"{server}{request.path_qs}", headers=headers, data=body
            ) as answer:
                if fate == "lost":
                    await answer.read()
                    return web.json_response(_status("the answer was lost"), status=500)
                return await _passed_on(request, answer)

        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        try:
            yield _through(kubeconfig, f"http://{host}:{port}"), faults
        finally:
            await runner.cleanup()


async def _passed_on(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = {k: v for k, v in answer.headers.items() if k.lower() not in _OWN_HEADERS}
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(request)
    async for chunk in answer.content.iter_any():
        await response.write(chunk)
    await response.write_eof()
    return response


def _status(message: str) -> dict[str, object]:
    kind = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return {**kind, "message": message, "reason": "InternalError", "code": 500}


def _through(kubeconfig: Path, server: str) -> Path:
    """Write a kubeconfig of the proxy, which has the identity itself."""
    config = yaml.safe_load(kubeconfig.read_text())
    config["clusters"][0]["cluster"] = {"server": server}
    config["users"][0]["user"] = {}
    path = kubeconfig.with_suffix(".faulty.kubeconfig")
    path.write_text(yaml.safe_dump(config))
    return path
