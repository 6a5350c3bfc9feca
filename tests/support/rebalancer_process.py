"""The rebalancer as the process that users run, beside a real control plane.

It has a user of its own with the shipped roles and nothing more. A test can look at what it
counts and says; at the end it is asked to stop, as a pod would be.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from common.contract import API_VERSION
from tests.support.cluster import Cluster
from tests.support.extender_process import NAMESPACE, REPOSITORY, Metrics, install, last_words

ROLES = tuple(REPOSITORY / "deploy" / "base" / name for name in ("rebalancer.yaml", "reader.yaml"))
USER = "rebalancer"
PATIENCE_S = 60.0
LOAD: Mapping[str, Any] = {"usageInterval": "2s", "observations": 2}
"""What both programs must agree on."""
# Brisk for tests; what is decided does not depend on it.
QUICK: Mapping[str, Any] = {
    **LOAD,
    "mode": "act",
    "reschedulingInterval": "2s",
    "revalidateAfter": "1s",
    "minPodAge": "1s",
    "minNodeAge": "1s",
}

Json = dict[str, Any]  # Any: what the program says


class RebalancerProcess:
    """A running rebalancer."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._health = ""
        self.log = log

    async def announced(self) -> None:
        """Wait until it says where it answers."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_S)
        assert line, last_words(self.log)
        self._health = f"http://{json.loads(line)['health']}"

    @property
    def runs(self) -> bool:
        return self._process.returncode is None

    async def metrics(self) -> Metrics:
        """Return what it counts."""
        return Metrics((await self._get("/metrics")).text)

    async def cycles(self) -> int:
        """Return how often it has planned."""
        return int((await self.metrics()).total("_cycles_total", result="done"))

    async def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        if not self.runs:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), 15)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def _get(self, path: str) -> httpx.Response:
        assert self.runs, last_words(self.log)
        async with httpx.AsyncClient(base_url=self._health, trust_env=False, timeout=30) as http:
            return await http.get(path)


@asynccontextmanager
async def rebalancer_running(
    cluster: Cluster, folder: Path, *, settings: Mapping[str, Any] = QUICK
) -> AsyncIterator[RebalancerProcess]:
    """Install the definitions and the rebalancer's rights, and run it."""
    await install(cluster)
    async with rebalancer_with(cluster, folder, ROLES, settings=settings) as rebalancer:
        await rebalancer.announced()
        yield rebalancer


@asynccontextmanager
async def rebalancer_with(
    cluster: Cluster,
    folder: Path,
    roles: Sequence[Path],
    *,
    settings: Mapping[str, Any] = QUICK,
    name: str = "rebalancer",
) -> AsyncIterator[RebalancerProcess]:
    """Start it with exactly these roles, and do not wait for anything."""
    await cluster.bind(USER, *roles)
    kubeconfig = await cluster.kubeconfig_of(user=USER)
    async with rebalancer_as(kubeconfig, folder, settings=settings, name=name) as rebalancer:
        yield rebalancer


@asynccontextmanager
async def rebalancer_as(
    kubeconfig: Path, folder: Path, *, settings: Mapping[str, Any], name: str = "rebalancer"
) -> AsyncIterator[RebalancerProcess]:
    """Start it with a kubeconfig, and do not wait for anything."""
    config = {"apiVersion": API_VERSION, "kind": "RebalancerConfiguration", **settings}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(config))
    flags = ["--config", str(folder / f"{name}.yaml"), "--kubeconfig", str(kubeconfig)]
    rebalancer = await _started(folder / f"{name}.log", *flags)
    try:
        yield rebalancer
    finally:
        await rebalancer.stop()


async def _started(log: Path, *flags: str) -> RebalancerProcess:
    with log.open("w") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rebalancer", *flags, "--health-port", "0"),
            cwd=REPOSITORY,
            env={**os.environ, "POD_NAMESPACE": NAMESPACE},
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    return RebalancerProcess(process, log)
