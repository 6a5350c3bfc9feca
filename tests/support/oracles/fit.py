# SPDX-License-Identifier: Apache-2.0
"""kube-scheduler itself as the judge of fit and of scores.

An extender that is asked last is given exactly the nodes that passed all of the
scheduler's own filters. This one writes them down and refuses them all, so that nothing
is ever bound and the next pod meets the same cluster. A pod for which it is not called
has no feasible node: the scheduler marks it unschedulable without asking.

Scores are read from the scheduler's log; there the extender refuses to bind instead.
"""

from __future__ import annotations

import contextlib
import re
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from aiohttp import web

from common.clock import SYSTEM
from controlplane.api import Json
from controlplane.cluster import ControlPlane
from controlplane.components import ADMIN, CA
from tests.support.oracles.fit_stand import PATIENCE_S, PAUSE_S, FitStand
from tests.support.worlds.fit_dice import OWNER, ClusterCase, name_of
from tests.support.worlds.wire import owner_reference

CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: replaced, qps: 5000, burst: 5000}
leaderElection: {leaderElect: false}
# Judge once: a second look would cost time and say the same.
podInitialBackoffSeconds: 600
podMaxBackoffSeconds: 600
profiles:
  - schedulerName: default-scheduler
    percentageOfNodesToScore: 100
    plugins:
      multiPoint: {disabled: [{name: DefaultPreemption}]}
extenders:
  - {urlPrefix: http://127.0.0.1:1, VERB, nodeCacheCapable: true, httpTimeout: 60s}
"""
FILTERING = CONFIG.replace("VERB", "filterVerb: filter")
BINDING = CONFIG.replace("VERB", "bindVerb: bind")

REFUSAL = "written down"
AFTERWORDS = re.compile(r" (no new claims to deallocate|not found)$")
"""What the one plugin adds that is left to make room, when it has nothing to do."""
_SCORED = re.compile(
    r'"Plugin scored node for pod" pod="[^/"]*/(?P<pod>[^"]+)" plugin="(?P<plugin>[^"]+)" '
    r'node="(?P<node>[^"]+)" score=(?P<score>-?\d+)'
)


@dataclass(frozen=True)
class Judgement:
    """What kube-scheduler found for one pod, with all that it could see."""

    pod: Json
    feasible: frozenset[str]
    seen: Json
    """The cluster as the API server shows it: kind → objects."""

    @property
    def message(self) -> str:
        """What kube-scheduler tells people of the pod."""
        conditions = self.pod["status"]["conditions"]
        words: str = next(c["message"] for c in conditions if c["type"] == "PodScheduled")
        return AFTERWORDS.sub("", words)


@dataclass(frozen=True)
class Scoring:
    """How kube-scheduler's plugins rated the nodes for one pod: plugin → node → score."""

    pod: Json
    scores: dict[str, dict[str, int]]
    seen: Json


class Extender:
    """Refuses everything, and remembers the first question about every pod."""

    def __init__(self) -> None:
        self.asked: dict[str, frozenset[str]] = {}

    async def filter(self, request: web.Request) -> web.Response:
        question: dict[str, Any] = await request.json()
        names: list[str] = question["NodeNames"] or []
        self.asked.setdefault(question["Pod"]["metadata"]["uid"], frozenset(names))
        refused = dict.fromkeys(names, REFUSAL)
        return web.json_response({"NodeNames": [], "FailedAndUnresolvableNodes": refused})

    async def bind(self, _: web.Request) -> web.Response:
        return web.json_response({"Error": REFUSAL})


@contextlib.asynccontextmanager
async def extender() -> AsyncIterator[tuple[Extender, str]]:
    """Serve an extender; also give its URL."""
    found = Extender()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/filter", found.filter)
    app.router.add_post("/bind", found.bind)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield found, f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def write_config(folder: Path, text: str) -> Path:
    """Write a configuration of the judging scheduler."""
    path = folder / "judge.yaml"
    path.write_text(text)
    return path


class FitOracle:
    """Tells which nodes kube-scheduler finds feasible."""

    def __init__(self, stand: FitStand, extender: Extender) -> None:
        self._stand = stand
        self._extender = extender

    async def judge(self, case: ClusterCase) -> list[Judgement]:
        """Build a cluster, have its candidates judged, and take it down again."""
        async with self._stand.cluster(case) as seen:
            made = await self._stand.create(case.candidates)
            pods = await self._stand.judged({pod["metadata"]["uid"] for pod in made})
            asked = self._extender.asked
            return [Judgement(pod, asked.get(uid, frozenset()), seen) for uid, pod in pods.items()]


class ScoreOracle:
    """Tells how kube-scheduler scores the nodes that it finds feasible."""

    def __init__(self, plane: ControlPlane, stand: FitStand) -> None:
        self._stand = stand
        self._folder = plane.folder
        self._log = plane.folder.log("kube-scheduler")
        self._url = plane.url("kube-scheduler")

    async def listen(self) -> None:
        """Make the scheduler log every score."""
        tls = ssl.create_default_context(cafile=str(self._folder.certificate(CA)))
        tls.load_cert_chain(self._folder.certificate(ADMIN), self._folder.key(ADMIN))
        async with httpx.AsyncClient(verify=tls, trust_env=False) as client:
            deadline = SYSTEM.monotonic() + PATIENCE_S
            # Ready comes before it knows whose certificates to trust: first it forbids.
            while (await client.put(f"{self._url}/debug/flags/v", content="10")).is_error:
                assert SYSTEM.monotonic() < deadline, "kube-scheduler lets no one listen"
                await SYSTEM.sleep(PAUSE_S)

    async def score(self, case: ClusterCase) -> list[Scoring]:
        """Build a cluster, have its candidates scored one by one, and take it down again."""
        async with self._stand.cluster(replace(case, candidates=[])) as seen:
            # One by one: until its binding is refused a pod counts as placed.
            found = [await self._one(pod, seen) for pod in case.candidates]
        return [scoring for scoring in found if scoring.scores]

    async def _one(self, manifest: Json, seen: Json) -> Scoring:
        start = self._log.stat().st_size
        (made,) = await self._stand.create([_adopted(manifest, seen)])
        await self._stand.judged({made["metadata"]["uid"]})
        scores = self._read(start, name_of(manifest))
        await self._stand.remove(made)
        return Scoring(made, scores, seen)

    def _read(self, start: int, pod: str) -> dict[str, dict[str, int]]:
        with self._log.open("rb") as log:
            log.seek(start)
            text = log.read().decode(errors="replace")
        found: dict[str, dict[str, int]] = {}
        for match in _SCORED.finditer(text):
            if match["pod"] == pod:
                found.setdefault(match["plugin"], {})[match["node"]] = int(match["score"])
        return found


def _adopted(manifest: Json, seen: Json) -> Json:
    """Return a pod with the owner that its annotation names."""
    wanted = manifest["metadata"]["annotations"].get(OWNER)
    owners = [obj for obj in seen["replicasets"] if name_of(obj) == wanted]
    references = [{**owner_reference(o), "uid": o["metadata"]["uid"]} for o in owners]
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": references}}
