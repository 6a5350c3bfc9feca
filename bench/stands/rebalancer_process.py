# SPDX-License-Identifier: Apache-2.0
"""The rebalancer as the process that users run, beside a real control plane.

It has its own user with exactly the shipped roles. A test can read its metrics and its log; at
the end it is stopped like a pod.
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

from bench.stands.cluster import Cluster
from bench.stands.extender_process import (
    DEPLOY,
    NAMESPACE,
    ROOT,
    Metrics,
    install,
    last_output,
)
from common.api.contract import API_VERSION

ROLES = tuple(
    DEPLOY / "base" / name for name in ("rebalancer.yaml", "rebalancer-surge.yaml", "reader.yaml")
)
USER = "rebalancer"
PATIENCE_S = 60.0
LOAD: Mapping[str, Any] = {"usageInterval": "2s", "observations": 2}
"""What both programs must agree on."""
# Short intervals for tests; decisions do not depend on them.
QUICK: Mapping[str, Any] = {
    **LOAD,
    "mode": "act",
    "reschedulingInterval": "2s",
    "revalidateAfter": "1s",
    "minPodAge": "1s",
    "minNodeAge": "1s",
}

Json = dict[str, Any]  # Any: output of the program


class RebalancerProcess:
    """A running rebalancer."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._health = ""
        self.log = log

    async def announced(self) -> None:
        """Wait until it prints its addresses."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_S)
        assert line, last_output(self.log)
        self._health = f"http://{json.loads(line)['health']}"

    @property
    def runs(self) -> bool:
        return self._process.returncode is None

    async def metrics(self) -> Metrics:
        """Return its metrics."""
        return Metrics((await self._get("/metrics")).text)

    async def cycles(self) -> int:
        """Return how often it has planned."""
        return int((await self.metrics()).total("_cycles_total", result="done"))

    async def stop(self) -> None:
        """Stop it and wait until it has exited."""
        if not self.runs:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), 15)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def kill(self) -> None:
        """Kill it, like a crash."""
        self._process.kill()
        await self._process.wait()

    async def _get(self, path: str) -> httpx.Response:
        assert self.runs, last_output(self.log)
        async with httpx.AsyncClient(base_url=self._health, trust_env=False, timeout=30) as http:
            return await http.get(path)


@asynccontextmanager
async def rebalancer_running(
    cluster: Cluster, folder: Path, *, settings: Mapping[str, Any] = QUICK
) -> AsyncIterator[RebalancerProcess]:
    """Install the CRDs and permissions, and run it."""
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
    """Start it with exactly these roles, without waiting."""
    await cluster.bind(USER, *roles)
    kubeconfig = await cluster.kubeconfig_of(user=USER)
    async with rebalancer_as(kubeconfig, folder, settings=settings, name=name) as rebalancer:
        yield rebalancer


@asynccontextmanager
async def rebalancer_as(
    kubeconfig: Path, folder: Path, *, settings: Mapping[str, Any], name: str = "rebalancer"
) -> AsyncIterator[RebalancerProcess]:
    """Start it with a kubeconfig, without waiting."""
    file = configured(folder, settings, name)
    flags = ["--config", str(file), "--kubeconfig", str(kubeconfig)]
    rebalancer = await _started(folder / f"{name}.log", *flags)
    try:
        yield rebalancer
    finally:
        await rebalancer.stop()


def configured(folder: Path, settings: Mapping[str, Any], name: str = "rebalancer") -> Path:
    """Write the configuration that it follows, from the start or from now on."""
    config = {"apiVersion": API_VERSION, "kind": "RebalancerConfiguration", **settings}
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


async def _started(log: Path, *flags: str) -> RebalancerProcess:
    with log.open("w") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rebalancer", *flags, "--health-port", "0"),
            cwd=ROOT,
            env={**os.environ, "POD_NAMESPACE": NAMESPACE},
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    return RebalancerProcess(process, log)
