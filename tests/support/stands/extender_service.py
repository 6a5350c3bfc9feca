# SPDX-License-Identifier: Apache-2.0
"""The extender's service on a real socket, with policy that a test can foresee."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from common.clock import SYSTEM, Clock
from common.cluster.records import PodRecord, PodUid
from common.http_server import address_of, listen, serving
from common.metrics import Metrics
from extender.protocol import FilterResult, RequestPod, Scores, Victims
from extender.service import make_app, server_options
from simulator import build
from tests.support.http import plain_http

if TYPE_CHECKING:
    import httpx

Json = dict[str, Any]  # Any: a JSON object

REFUSED = "node under maintenance"
VERBS = ("filter", "prioritize", "preempt")


class ByName:
    """Decides by the names of nodes: those that begin with `closed` are refused everywhere."""

    asked: list[RequestPod]
    names: list[str] | None
    """About which nodes it was asked last."""
    fails: Exception | None
    fixed_scores: Sequence[int] | None

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.asked, self.names, self.fails, self.fixed_scores = [], None, None, None

    async def filter(self, pod: RequestPod, names: Sequence[str]) -> FilterResult:
        self._ask(pod, names)
        keep = [name for name in names if not closed(name)]
        return FilterResult(keep, {name: REFUSED for name in names if closed(name)})

    def prioritize(self, pod: RequestPod, names: Sequence[str]) -> Scores:
        self._ask(pod, names)
        scores = [score(name) for name in names]
        return Scores(scores if self.fixed_scores is None else self.fixed_scores)

    def preempt(self, pod: RequestPod, candidates: Mapping[str, Victims]) -> Collection[str]:
        self._ask(pod, candidates)
        return [name for name in candidates if not closed(name)]

    def _ask(self, pod: RequestPod, names: Collection[str]) -> None:
        if self.fails is not None:
            raise self.fails
        self.asked.append(pod)
        self.names = list(names)


def closed(name: str) -> bool:
    return name.startswith("closed")


def score(name: str) -> int:
    return len(name) % 11


def nothing_known(_: PodUid) -> PodRecord | None:
    return None


def a_pod(name: str = "web", **more: Any) -> Json:
    """Return a pod as kube-scheduler sends it: without kind and version."""
    made = build.pod(name, **more)
    made["metadata"]["uid"] = f"uid-of-{name}"
    return {"metadata": made["metadata"], "spec": made["spec"], "status": {"phase": "Pending"}}


def args(*names: str, **more: Any) -> Json:
    """Return ExtenderArgs as it is sent to those who keep their own cache."""
    return {"Pod": a_pod(), "Nodes": None, "NodeNames": list(names), **more}


def full_args(*names: str, **more: Any) -> Json:
    """Return ExtenderArgs with whole nodes."""
    nodes = [build.node(name) for name in names]
    items = [{key: node[key] for key in ("metadata", "spec", "status")} for node in nodes]
    return {
        "Pod": a_pod(),
        "Nodes": {"metadata": {}, "items": items},
        "NodeNames": None,
        **more,
    }


def preemption_args(candidates: Mapping[str, Sequence[str]], **more: Any) -> Json:
    """Return ExtenderPreemptionArgs: for each node the uids of its victims."""
    short = {
        name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0}
        for name, uids in candidates.items()
    }
    return {"Pod": a_pod(), "NodeNameToVictims": None, "NodeNameToMetaVictims": short, **more}


def go_json(value: Any) -> bytes:
    """Return JSON as Go writes it: without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class Service:
    """A running service and a client of it."""

    def __init__(
        self, address: str, client: httpx.AsyncClient, metrics: Metrics, policy: ByName
    ) -> None:
        self.address = address
        self.client = client
        self.metrics = metrics
        self.policy = policy
        self.begin()

    @property
    def endpoint(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    async def ask(self, verb: str, question: Any) -> Any:
        """Return the answer to a question that has one."""
        answer = await self.post(verb, go_json(question))
        assert answer.status_code == 200, answer.text
        return strictly(answer.content)

    async def post(self, verb: str, body: Any, **headers: str) -> httpx.Response:
        shown = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post(f"/{verb}", content=body, headers=shown)

    def begin(self) -> None:
        """Forget what was asked and counted before."""
        self.policy.forget()
        self._before = self._figures()

    def metric(self, name: str, **labels: str) -> float:
        """Return what was counted since `begin`."""
        key = (f"evenkeel_{name}", frozenset(labels.items()))
        return self._figures().get(key, 0.0) - self._before.get(key, 0.0)

    def _figures(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        families = self.metrics.registry.collect()
        samples = (sample for family in families for sample in family.samples)
        return {(each.name, frozenset(each.labels.items())): each.value for each in samples}


def strictly(data: bytes) -> Any:
    """Return what Go's decoder makes of it: no NaN, no second value, no key given twice."""

    def once(pairs: list[tuple[str, Any]]) -> Json:
        assert len({key for key, _ in pairs}) == len(pairs), "a key is given twice"
        return dict(pairs)

    def refuse(literal: str) -> None:
        raise AssertionError(f"{literal} is no JSON")

    return json.loads(data.decode(), object_pairs_hook=once, parse_constant=refuse)


@asynccontextmanager
async def running(
    *, known: Mapping[str, PodRecord] | None = None, clock: Clock = SYSTEM
) -> AsyncIterator[Service]:
    """Serve as the program does; pods in `known` need not be read from requests."""
    metrics, policy, pods = Metrics("extender"), ByName(), known or {}
    listener = await listen("127.0.0.1", 0)
    address = address_of(listener)
    app = make_app(policy, pods.get, metrics, clock=clock)
    async with (
        serving(app, listener, **server_options()),
        plain_http(f"http://{address}", timeout=20) as client,
    ):
        yield Service(address, client, metrics, policy)
