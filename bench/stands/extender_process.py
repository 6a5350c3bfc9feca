# SPDX-License-Identifier: Apache-2.0
"""The extender as the process that users run, beside a real kube-scheduler.

It has its own user with exactly the shipped role. A test can kill, suspend or stop it, and read
its metrics and its view of nodes.
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

from bench.stands.cluster import Cluster
from common.api.contract import API_VERSION, EXTENDER_LEASE_PREFIX, SEEN_MIGRATIONS
from controlplane.scheduler_config import SHIPPED

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
ROLE = DEPLOY / "base" / "extender.yaml"
DEFINITIONS = DEPLOY / "crds"
NAMESPACE = "evenkeel"
USER = "extender"
PATIENCE_S = 60.0
# Short intervals for tests; decisions do not depend on them.
QUICK: Mapping[str, Any] = {"usageInterval": "2s"}

Json = dict[str, Any]  # Any: output of the program or the API server


class ExtenderProcess:
    """A running extender."""

    def __init__(self, process: asyncio.subprocess.Process, announced: Json, log: Path) -> None:
        self._process = process
        self._health = f"http://{announced['health']}"
        self.url = f"http://{announced['extender']}"
        self.log = log

    @property
    def pid(self) -> int:
        return self._process.pid

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
        assert self._process.returncode is None, last_output(self.log)
        with contextlib.suppress(httpx.TransportError):
            return (await self._get("/readyz")).is_success
        return False

    async def metrics(self) -> Metrics:
        """Return its metrics."""
        return Metrics((await self._get("/metrics")).text)

    async def nodes(self) -> dict[str, Json]:
        """Return its view of each node."""
        page = (await self._get("/debug/nodes", Accept="application/json")).json()
        return {row["node"]: row for row in page["nodes"]}

    async def _get(self, path: str, **headers: str) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self._health, trust_env=False, timeout=30) as http:
            return await http.get(path, headers=headers)


class Metrics:
    """A page of metrics."""

    def __init__(self, text: str) -> None:
        self.text = text

    def total(self, name: str, **labels: str) -> float:
        """Sum the series with this name suffix and these labels."""
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
    """Install the CRDs and permissions, run it, and wait until it is ready."""
    await install(cluster)
    kubeconfig = kubeconfig or await cluster.kubeconfig_of(user=USER)
    async with extender_with(kubeconfig, folder, settings=settings) as extender:
        await cluster.wait(extender.is_ready, PATIENCE_S, "the extender is ready")
        yield extender


@asynccontextmanager
async def extender_with(
    kubeconfig: Path, folder: Path, *, settings: Mapping[str, Any] = QUICK
) -> AsyncIterator[ExtenderProcess]:
    """Run it without waiting until it is ready."""
    config = {"apiVersion": API_VERSION, "kind": "ExtenderConfiguration", **settings}
    (folder / "extender.yaml").write_text(yaml.safe_dump(config))
    flags = ["--config", str(folder / "extender.yaml"), "--kubeconfig", str(kubeconfig)]
    async with _process(folder / "extender.log", *flags) as extender:
        yield extender


async def install(cluster: Cluster) -> None:
    """Install the CRDs, and the permissions of the extender's user."""
    files = sorted(DEFINITIONS.glob("*.yaml"))
    await cluster.apply(d for f in files for d in yaml.safe_load_all(f.read_text()) if d)
    await cluster.bind(USER, ROLE)
    await cluster.wait(lambda: _established(cluster), what="the Migration CRD is established")


async def use_extender(cluster: Cluster, url: str) -> None:
    """Start kube-scheduler with the shipped configuration and this extender."""
    await cluster.configure_scheduler(SHIPPED, extender_url=url)


async def seen_migrations(cluster: Cluster) -> int:
    """Return the version of the Migrations that every extender has seen."""
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


def last_output(log: Path) -> str:
    """Return the end of a log."""
    return log.read_text()[-2000:]


@asynccontextmanager
async def _process(log: Path, *flags: str) -> AsyncIterator[ExtenderProcess]:
    command = [sys.executable, "-m", "extender", *flags, "--port", "0", "--health-port", "0"]
    with log.open("a") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            env={**os.environ, "POD_NAMESPACE": NAMESPACE},
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
        assert line, last_output(log)
        yield ExtenderProcess(process, json.loads(line), log)
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    # A stopped process handles SIGTERM only after SIGCONT.
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
