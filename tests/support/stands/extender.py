# SPDX-License-Identifier: Apache-2.0
"""The whole extender beside a simulated cluster whose scheduler asks it.

`cluster_of` in tests/support/stands/simulated_cluster.py makes the cluster; here the program's
own `run()` is started in this process, on real sockets, and the simulated scheduler is
configured with the shipped configuration. Only two things differ from it: a slow machine is
waited for, and an extender that fails is an error that a test sees.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec

from common.api.contract import EXTENDER_LEASE_PREFIX, MAINTENANCE_LABEL
from common.api.migrations import PodRef
from common.clock import SYSTEM
from common.config import ExtenderConfiguration
from common.kube.resources import LEASES, MIGRATIONS, NODES
from extender.main import ExtenderOptions, run
from simulator.cluster import SimulatedCluster
from simulator.scheduler import read_config
from simulator.scheduler.extenders import extenders_of
from tests.support.repository import SCHEDULER_CONFIG
from tests.support.stands.extender_service import go_json
from tests.support.waiting import pause_since
from tests.support.worlds.migrations import controller, manifest_of, spec_of

Json = dict[str, Any]  # Any: what the program or the API server says

PATIENCE_S = 30.0
LIFETIME_S = 300.0
# Brisk for tests; what is decided does not depend on it.
QUICK: Json = {
    "leaseNamespace": "default",
    "usageSource": "metrics-server",
    "usageInterval": "100ms",
    "reading": {"backoffMin": "10ms", "backoffMax": "50ms"},
    "clientConnection": {"qps": 1000, "burst": 1000},
}


class Extender:
    """A running extender, to be asked and looked at."""

    def __init__(self, service: httpx.AsyncClient, health: httpx.AsyncClient) -> None:
        self._service = service
        self._health = health

    @property
    def url(self) -> str:
        return str(self._service.base_url).rstrip("/")

    @property
    def health_url(self) -> str:
        return str(self._health.base_url).rstrip("/")

    async def ask(self, verb: str, question: Any) -> Any:
        """Return the answer to a question; nothing but 200 is one."""
        answer = await self._service.post(f"/{verb}", content=go_json(question))
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def scores(self, question: Json) -> dict[str, int]:
        """Return what nodes get for a pod."""
        return {row["Host"]: row["Score"] for row in await self.ask("prioritize", question)}

    async def kept(self, question: Json) -> list[str]:
        """Return the nodes that the filter leaves."""
        found: list[str] = (await self.ask("filter", question))["NodeNames"]
        return found

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """Return a page of the health port."""
        return await self._health.get(path, headers=headers)

    async def post(self, path: str) -> httpx.Response:
        return await self._health.post(path)

    async def is_ready(self) -> bool:
        return (await self.get("/readyz")).is_success

    async def node(self, name: str) -> Json:
        """Return what is believed of a node; nothing if it is not known."""
        page = (await self.get("/debug/nodes?output=json")).json()
        return next((row for row in page["nodes"] if row["node"] == name), {})

    async def intents(self) -> list[Json]:
        found: list[Json] = (await self.get("/debug/nodes?output=json")).json()["intents"]
        return found

    async def total(self, name: str, **labels: str) -> float:
        """Return the sum of the series of a metric that have these labels."""
        text = (await self.get("/metrics")).text
        found = re.findall(rf"^evenkeel_{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(float(value) for given, value in found if all(w in given for w in wanted))


@asynccontextmanager
async def extender(kubeconfig: Path, **settings: Any) -> AsyncIterator[Extender]:
    """Run the program until the block ends; ready or not."""
    async with launched(ExtenderOptions(kubeconfig=str(kubeconfig)), **settings) as (service, said):
        yield service
    assert sorted(said) == ["extender", "health"]


@asynccontextmanager
async def launched(
    options: ExtenderOptions, *, verify: Any = False, **settings: Any
) -> AsyncIterator[tuple[Extender, dict[str, str]]]:
    """Run the program with any options; give also what it announced."""
    config = ExtenderConfiguration.model_validate({**QUICK, **settings})
    said: dict[str, str] = {}
    listening = asyncio.Event()

    def announce(**addresses: str) -> None:
        said.update(addresses)
        listening.set()

    work = asyncio.create_task(run(config, options, clock=SYSTEM, announce=announce))
    try:
        await _either(work, listening)
        scheme = "https" if options.tls_cert_file else "http"
        async with (
            # Reading the system's authorities takes longer than a test, and no test needs them.
            _client(f"{scheme}://{said['extender']}", verify) as service,
            _client(f"http://{said['health']}", verify=False) as health,
        ):
            yield Extender(service, health), said
    finally:
        work.cancel()
        [end] = await asyncio.gather(work, return_exceptions=True)
    assert isinstance(end, asyncio.CancelledError), end


async def _either(work: asyncio.Task[None], event: asyncio.Event) -> None:
    """Wait for an event, or raise what the work ended with before."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if work.done():
        work.result()


def _client(url: str, verify: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, timeout=PATIENCE_S, verify=verify, trust_env=False)


@asynccontextmanager
async def guided(
    cluster: SimulatedCluster, folder: Path, **settings: Any
) -> AsyncIterator[Extender]:
    """Run an extender that is ready, and have the cluster's scheduler ask it."""
    async with extender(cluster.write_kubeconfig(folder / "kubeconfig"), **settings) as service:
        await eventually(service.is_ready, "the extender is ready")
        async with asked_by(cluster, service.url):
            yield service


@asynccontextmanager
async def asked_by(cluster: SimulatedCluster, url: str, **other: Any) -> AsyncIterator[None]:
    """Have the cluster's scheduler ask the extender at a URL for as long as the block lasts."""
    [shipped] = read_config(SCHEDULER_CONFIG).extenders
    changed = {"url_prefix": url, "http_timeout": "30s", "ignorable": False, **other}
    [asked] = extenders_of([msgspec.structs.replace(shipped, **changed)], clock=SYSTEM)
    cluster.scheduler.extenders.append(asked)
    try:
        yield
    finally:
        cluster.scheduler.extenders.remove(asked)
        await asked.close()


async def eventually(
    question: Callable[[], Any],
    what: str = "what was waited for",
    *,
    patience_s: float = PATIENCE_S,
) -> Any:
    """Ask until the answer is true, and return it; `question` may be a coroutine function."""
    try:
        async with asyncio.timeout(patience_s):
            while True:
                since_s = SYSTEM.monotonic()
                if answer := await _answer(question):
                    return answer
                await pause_since(since_s)
    except TimeoutError:
        raise AssertionError(f"not within {patience_s:g} s: {what}") from None


async def _answer(question: Callable[[], Any]) -> Any:
    answer = question()
    return await answer if inspect.isawaitable(answer) else answer


def maintain(cluster: SimulatedCluster, node: str, *, on: bool) -> None:
    """Put a node under maintenance, or end that."""
    labels = {MAINTENANCE_LABEL: "true" if on else None}
    cluster.store.patch(NODES, node, {"metadata": {"labels": labels}})


def plan(cluster: SimulatedCluster, pod: Json, target: str, **spec: Any) -> Json:
    """Create the Migration of a ReplicaSet's pod, as the rebalancer would write it."""
    metadata = pod["metadata"]
    [owner] = metadata["ownerReferences"]
    made = manifest_of(
        spec_of(
            controller=controller(owner["kind"], owner["uid"], owner["name"]),
            workload=None,
            pod=PodRef(**{key: metadata[key] for key in ("namespace", "name", "uid")}),
            source=pod["spec"]["nodeName"],
            target=target,
            alternatives=(),
            deadline=datetime.fromtimestamp(SYSTEM.now() + LIFETIME_S, UTC),
            priority=0,
            **spec,
        )
    )
    return cluster.store.create(MIGRATIONS, made)


def leases(cluster: SimulatedCluster) -> list[Json]:
    """Return the Leases of extenders."""
    found = cluster.store.list(LEASES, "default")
    return [each for each in found if each["metadata"]["name"].startswith(EXTENDER_LEASE_PREFIX)]
