# SPDX-License-Identifier: Apache-2.0
"""kube-scheduler with our extender between two others: what it is sent, and what it leaves.

The first extender passes everything and writes down the nodes that the scheduler's own filters
left: the whole list. Ours comes next. The last one writes down what ours left, and rejects
what a test wants rejected. So both lists are of the same moment, whatever is bound meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from bench.stands.extender_process import ExtenderProcess, extender_with
from common.clock import SYSTEM
from controlplane.api import Json
from controlplane.cluster import ControlPlane
from tests.support.oracles.fit_stand import PATIENCE_S, PAUSE_S
from tests.support.repository import DEPLOY
from tests.support.worlds.fit_dice import name_of

SIZE = 5
SETTINGS = {"usageSource": "requests"}
"""Load is what pods request, because no kubelet is here to measure anything."""
REJECTED = "rejected by the last extender"

Accepts = Callable[[Json, list[str]], Collection[str]]
"""Which of the nodes the last extender accepts for a pod."""


def everything(_: Json, names: list[str]) -> Collection[str]:
    return names


class Recorder:
    """Both of the other extenders."""

    def __init__(self) -> None:
        self.sent: dict[str, list[frozenset[str]]] = {}
        """By pod: the whole list of each attempt."""
        self.left: dict[str, list[frozenset[str]]] = {}
        self.accepts: Accepts = everything

    async def first(self, request: web.Request) -> web.Response:
        pod, names = await _question(request)
        self.sent.setdefault(pod["metadata"]["uid"], []).append(frozenset(names))
        return web.json_response({"NodeNames": names})

    async def last(self, request: web.Request) -> web.Response:
        pod, names = await _question(request)
        self.left.setdefault(pod["metadata"]["uid"], []).append(frozenset(names))
        accepted = self.accepts(pod, names)
        failed = {name: REJECTED for name in names if name not in accepted}
        # Preemption looks at nodes in FailedNodes: the harder case.
        return web.json_response(
            {"NodeNames": [n for n in names if n in accepted], "FailedNodes": failed}
        )

    async def veto(self, _: web.Request) -> web.Response:
        """Let nothing be preempted."""
        return web.json_response({"NodeNameToMetaVictims": {}})


async def _question(request: web.Request) -> tuple[Json, list[str]]:
    question: dict[str, Any] = await request.json()
    return question["Pod"], question["NodeNames"] or []


@contextlib.asynccontextmanager
async def recording() -> AsyncIterator[tuple[Recorder, str]]:
    """Serve both extenders; also give their URL."""
    recorder = Recorder()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/first", recorder.first)
    app.router.add_post("/last", recorder.last)
    app.router.add_post("/veto", recorder.veto)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        host, port = runner.addresses[0][:2]
        yield recorder, f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def between(
    plane: ControlPlane, folder: Path, *, shortlist: int | str = SIZE, veto: bool = False
) -> AsyncIterator[tuple[Recorder, Ours]]:
    """Run our extender between the other two; `veto` lets nothing be preempted."""
    folder = folder / f"shortlist-{shortlist}"
    folder.mkdir()
    settings = {**SETTINGS, "shortlist": shortlist}
    files = sorted((DEPLOY / "crds").glob("*.yaml"))
    plane.api.apply(d for f in files for d in yaml.safe_load_all(f.read_text()) if d)
    async with (
        recording() as (recorder, url),
        extender_with(plane.kubeconfig, folder, settings=settings) as process,
    ):
        ours = Ours(process)
        await ours.ready()
        config = folder / "scheduler.yaml"
        config.write_text(yaml.safe_dump(configuration(url, process.url, veto=veto)))
        plane.configure_scheduler(config)
        yield recorder, ours


def configuration(others: str, ours: str, *, veto: bool) -> Json:
    """Return the scheduler's configuration."""
    common = {"nodeCacheCapable": True, "httpTimeout": "60s"}
    vetoes = {"preemptVerb": "veto"} if veto else {}
    verbs = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt"}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": "replaced", "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": "default-scheduler", "percentageOfNodesToScore": 100}],
        "extenders": [
            {"urlPrefix": others, "filterVerb": "first", **common},
            {"urlPrefix": ours, "weight": 6, **verbs, **common},
            {"urlPrefix": others, "filterVerb": "last", **vetoes, **common},
        ],
    }


class Ours:
    """Our extender."""

    def __init__(self, process: ExtenderProcess) -> None:
        self._process = process

    async def ready(self) -> None:
        await _until(self._process.is_ready, "the extender is ready")

    async def knows(self, nodes: Iterable[Json]) -> None:
        """Wait until it knows the load of these nodes."""
        wanted = set(map(name_of, nodes))

        async def known() -> bool:
            rows = await self._process.nodes()
            return wanted == {name for name, row in rows.items() if row["unknown"] is None}

        await _until(known, "the extender knows all nodes")

    async def counts(self, nodes: Iterable[str], *, milli: int) -> None:
        """Wait until it knows of so much load on these nodes."""

        async def counted() -> bool:
            rows = await self._process.nodes()
            return all(rows[node]["cpuMilli"] >= milli for node in nodes)

        await _until(counted, "the extender counts the pods of busy nodes")

    async def count(self, name: str, **labels: str) -> float:
        """Return a counter of its metrics."""
        return (await self._process.metrics()).total(name, **labels)

    async def preempts(self) -> float:
        """Return how often it was asked which pods to preempt."""
        return await self.count("extender_requests_total", verb="preempt", code="200")

    async def answered_preempt(self) -> None:
        await _until(self.preempts, "kube-scheduler asks which pods to preempt")


async def _until(predicate: Callable[[], Any], what: str) -> None:
    deadline = SYSTEM.monotonic() + PATIENCE_S
    while not await predicate():
        assert SYSTEM.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {what}"
        await SYSTEM.sleep(PAUSE_S)
