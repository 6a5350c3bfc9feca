"""The extender as the process that users run, beside a real kube-scheduler.

It has a user of its own with the shipped role and nothing more. A test may crash it, stop
it in its tracks or ask it to end, and can look at what it counts and believes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from common.contract import API_VERSION, EXTENDER_LEASE_PREFIX, SEEN_MIGRATIONS
from controlplane.scheduler_config import SHIPPED
from tests.support.cluster import Cluster

REPOSITORY = Path(__file__).resolve().parents[2]
ROLE = REPOSITORY / "deploy" / "base" / "extender.yaml"
DEFINITIONS = REPOSITORY / "deploy" / "crds"
NAMESPACE = "evenkeel"
USER = "extender"
PATIENCE_S = 60.0
# Brisk for tests; what is decided does not depend on it.
QUICK: Mapping[str, Any] = {"usageInterval": "2s"}

Json = dict[str, Any]  # Any: what the program or the API server says


class ExtenderProcess:
    """A running extender."""

    def __init__(self, process: asyncio.subprocess.Process, said: Json, log: Path) -> None:
        self._process = process
        self._health = f"http://{said['health']}"
        self.url = f"http://{said['extender']}"
        self.log = log

    def send(self, number: signal.Signals) -> None:
        """Send a signal; SIGSTOP hangs it as a lost machine would, SIGKILL is a crash."""
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Wait for its end and return the exit code."""
        return await asyncio.wait_for(self._process.wait(), PATIENCE_S)

    async def kill(self) -> None:
        """End it as a crash would."""
        self.send(signal.SIGKILL)
        await self.ended()

    async def is_ready(self) -> bool:
        assert self._process.returncode is None, last_words(self.log)
        with contextlib.suppress(httpx.TransportError):
            return (await self._get("/readyz")).is_success
        return False

    async def metrics(self) -> Metrics:
        """Return what it counts."""
        return Metrics((await self._get("/metrics")).text)

    async def nodes(self) -> dict[str, Json]:
        """Return what it believes of each node."""
        page = (await self._get("/debug/nodes", Accept="application/json")).json()
        return {row["node"]: row for row in page["nodes"]}

    async def _get(self, path: str, **headers: str) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self._health, trust_env=False, timeout=30) as http:
            return await http.get(path, headers=headers)


class Metrics:
    """A page of metrics, to be asked."""

    def __init__(self, text: str) -> None:
        self.text = text

    def total(self, name: str, **labels: str) -> float:
        """Sum the series whose name ends so and that have these labels."""
        values = [
            float(value)
            for found, given, value in re.findall(r"^(\w+)(?:{(.*)})? (\S+)$", self.text, re.M)
            if found.endswith(name) and all(f'{k}="{v}"' in given for k, v in labels.items())
        ]
        return sum(values)


@asynccontextmanager
async def extender_running(
    cluster: Cluster,
    folder: Path,
    *,
    settings: Mapping[str, Any] = QUICK,
    kubeconfig: Path | None = None,
) -> AsyncIterator[ExtenderProcess]:
    """Install the extender's definitions and rights, run it, and wait until it is ready."""
    await install(cluster)
    kubeconfig = kubeconfig or await cluster.kubeconfig_of(user=USER)
    async with extender_with(kubeconfig, folder, settings=settings) as extender:
        await cluster.wait(extender.is_ready, PATIENCE_S, "the extender is ready")
        yield extender


@asynccontextmanager
async def extender_with(
    kubeconfig: Path, folder: Path, *, settings: Mapping[str, Any] = QUICK
) -> AsyncIterator[ExtenderProcess]:
    """Run it, and do not wait until it is ready."""
    config = {"apiVersion": API_VERSION, "kind": "ExtenderConfiguration", **settings}
    (folder / "extender.yaml").write_text(yaml.safe_dump(config))
    flags = ["--config", str(folder / "extender.yaml"), "--kubeconfig", str(kubeconfig)]
    async with _process(folder / "extender.log", *flags) as extender:
        yield extender


async def install(cluster: Cluster) -> None:
    """Give the cluster the definition of Migrations, and the extender's user its rights."""
    files = sorted(DEFINITIONS.glob("*.yaml"))
    await cluster.apply(d for f in files for d in yaml.safe_load_all(f.read_text()) if d)
    await cluster.bind(USER, ROLE)
    await cluster.wait(lambda: _established(cluster), what="Migrations are served")


async def use_extender(cluster: Cluster, url: str) -> None:
    """Start kube-scheduler with the shipped configuration and this extender."""
    await cluster.configure_scheduler(SHIPPED, extender_url=url)


async def seen_migrations(cluster: Cluster) -> int:
    """Return up to which version every extender has taken Migrations into its index."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    leases = (await asyncio.to_thread(cluster.control_plane.api.get, path))["items"]
    return min(
        (
            int(lease["metadata"]["annotations"].get(SEEN_MIGRATIONS, 0))
            for lease in leases
            if lease["metadata"]["name"].startswith(EXTENDER_LEASE_PREFIX)
        ),
        default=0,
    )


def last_words(log: Path) -> str:
    """Return the end of a log."""
    return log.read_text()[-2000:]


@asynccontextmanager
async def _process(log: Path, *flags: str) -> AsyncIterator[ExtenderProcess]:
    command = [sys.executable, "-m", "extender", *flags, "--port", "0", "--health-port", "0"]
    with log.open("a") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=REPOSITORY,
            env={**os.environ, "POD_NAMESPACE": NAMESPACE},
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
        assert line, last_words(log)
        yield ExtenderProcess(process, json.loads(line), log)
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    # A stopped process takes the other signal only once it goes on.
    for number in (signal.SIGTERM, signal.SIGCONT):
        process.send_signal(number)
    try:
        await asyncio.wait_for(process.wait(), 10)
    except TimeoutError:
        process.kill()
        await process.wait()


async def _established(cluster: Cluster) -> bool:
    path = f"/apis/{API_VERSION}"
    api = cluster.control_plane.api
    return await asyncio.to_thread(api.answers, f"{cluster.control_plane.server}{path}/migrations")
