# SPDX-License-Identifier: Apache-2.0
"""The plan of the running program for a cluster of the zoo.

The cluster is served by an API that only lists, on loopback; `python -m rebalancer --once
--dry-run` reads it as it would read any other and prints its plan.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from bench.zoo.cluster import Json, ZooCluster

_METRICS: Final = "/apis/metrics.k8s.io/v1beta1"
_TIMEOUT_S: Final = 120.0
FLAGS: Final = ("--once", "--dry-run", "--output", "json")


class PlanFailed(Exception):
    """The program printed no plan."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What the program printed, and the CPU time that it took."""

    plan: Json
    cpu_s: float

    @property
    def moves(self) -> list[Json]:
        found: list[Json] = self.plan["moves"]
        return found


Runner = Callable[..., Awaitable[Planned]]
"""Runs the program with the given flags and reads its plan."""


async def planned(cluster: ZooCluster, run: Runner | None = None) -> Planned:
    """Return the plan that the program makes of a cluster; `run` is another way to start it."""
    with tempfile.TemporaryDirectory() as folder:
        head = {"apiVersion": "evenkeel.io/v1alpha1", "kind": "RebalancerConfiguration"}
        config = _written(folder, "config.yaml", head | cluster.settings)
        async with _serving(cluster) as url:
            kubeconfig = _written(folder, "kubeconfig", _kubeconfig(url))
            return await (run or _run)(*FLAGS, "--kubeconfig", kubeconfig, "--config", config)


async def _run(*arguments: str) -> Planned:
    before = os.times()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rebalancer", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise PlanFailed(f"no plan after {_TIMEOUT_S:g} s") from None
    if process.returncode:
        raise PlanFailed(err.decode()[-2000:])
    after = os.times()
    cpu_s = after.children_user + after.children_system
    cpu_s -= before.children_user + before.children_system
    return Planned(json.loads(out), cpu_s)


@asynccontextmanager
async def _serving(cluster: ZooCluster) -> AsyncIterator[str]:
    nodes, pods = cluster.metrics()
    measured = {f"{_METRICS}/nodes": nodes, f"{_METRICS}/pods": pods}

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            await asyncio.Event().wait()
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.36.4"})
        if request.path == _METRICS:
            return web.json_response({"resources": [{"name": "nodes"}, {"name": "pods"}]})
        if request.path.endswith("/migrations"):
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        items = measured.get(request.path)
        if items is None:
            items = cluster.objects.get(request.path.rsplit("/", 1)[-1], [])
        return web.json_response({"metadata": {"resourceVersion": "7"}, "items": items})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _written(folder: str, name: str, content: Json) -> str:
    path = Path(folder, name)
    path.write_text(json.dumps(content))
    return str(path)


def _kubeconfig(url: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "zoo",
        "clusters": [{"name": "zoo", "cluster": {"server": url}}],
        "contexts": [{"name": "zoo", "context": {"cluster": "zoo", "user": "zoo"}}],
        "users": [{"name": "zoo", "user": {}}],
    }
