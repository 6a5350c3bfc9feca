# SPDX-License-Identifier: Apache-2.0
"""The cluster of a demo: simulated, or a real control plane with kwok nodes.

Both are processes, reached only through a kubeconfig. The simulated cluster starts with its
scenario; on the real one the same scenario is created through the API.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import yaml

from common.clock import Clock
from common.kube.client import KubeClient, connect
from common.kube.errors import KubeError
from common.kube.resources import CONFIGMAPS, MIGRATIONS, NAMESPACES
from simulator import build
from simulator.demo.programs import ProgramDied, Programs
from simulator.demo.settings import CONFIG_MAP, NAMESPACE, definitions
from simulator.process import CommandError
from simulator.scenarios import Scenario
from simulator.scenarios.applying import apply, join_later

_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PATIENCE_S: Final = 30.0

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandOptions:
    """Which cluster to run."""

    name: str
    scenario: Scenario
    seed: int
    speed: float
    scheduler: Path
    rebalancer: Path
    """The configuration of the rebalancer; the cluster has it as an installation does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """A running cluster."""

    client: KubeClient
    kubeconfig: Path
    server: str
    """URL of the API where it needs no credentials; empty otherwise."""
    kubectl: str
    description: str


@asynccontextmanager
async def simulated(
    options: StandOptions, programs: Programs, report: Report, *, clock: Clock
) -> AsyncIterator[Stand]:
    """Run a simulated cluster."""
    kubeconfig = programs.folder / "kubeconfig"
    cluster = programs.start(
        *("cluster", "simulator", "serve", "--scenario", options.name, "--seed", str(options.seed)),
        *("--speed", f"{options.speed:g}", "--scheduler-config", str(options.scheduler)),
        *("--kubeconfig-out", str(kubeconfig)),
    )
    await cluster.until(lambda: [line for line in cluster.output() if line == "ready"])
    async with connect(kubeconfig=str(kubeconfig), qps=200, burst=400, clock=clock) as client:
        await install(client, clock)
        await configure(client, options.rebalancer)
        yield Stand(
            client=client,
            kubeconfig=kubeconfig,
            server=client.server,
            kubectl="kubectl" if shutil.which("kubectl") else "",
            description=f"cluster {cluster.pid}",
        )


@asynccontextmanager
async def real(
    options: StandOptions, programs: Programs, report: Report, *, clock: Clock
) -> AsyncIterator[Stand]:
    """Run a real control plane, and create the scenario on it."""
    if find_spec("controlplane") is None:
        raise CommandError(
            "--real needs a checkout of the repository: controlplane is not installed"
        )
    home, kubeconfig = programs.folder / "controlplane", programs.folder / "kubeconfig"
    output: list[str] = []

    def on_line(line: str) -> None:
        output.append(line)
        report(f"  {line}")

    try:
        await programs.run(
            *("controlplane", "controlplane", "up", "--nodes", "0", "--dir", str(home)),
            *("--scheduler-config", str(options.scheduler), "--kubeconfig-out", str(kubeconfig)),
            report=on_line,
        )
        async with connect(kubeconfig=str(kubeconfig), qps=200, burst=400, clock=clock) as client:
            await install(client, clock)
            await configure(client, options.rebalancer)
            report("Creating the scenario: nodes, workloads, and pods on their first nodes")
            await apply(options.scenario, client, seed=options.seed, clock=clock)
            later = asyncio.create_task(join_later(options.scenario, client, clock=clock))
            try:
                yield Stand(
                    client=client,
                    kubeconfig=kubeconfig,
                    server="",
                    kubectl=_kubectl(output),
                    description=f"control plane in {home}",
                )
            finally:
                later.cancel()
                with suppress(asyncio.CancelledError):
                    await later
    finally:
        # The programs that use the control plane stop before it does.
        await programs.end()
        if home.exists():
            with suppress(ProgramDied):
                await programs.run(
                    "down", "controlplane", "down", "--dir", str(home), report=lambda _: None
                )


async def install(client: KubeClient, clock: Clock) -> None:
    """Create the namespace and the CRD that Evenkeel needs."""
    await client.create(NAMESPACES, build.namespace(NAMESPACE))
    for document in yaml.safe_load_all(definitions()):
        await client.request("POST", _DEFINITIONS, body=document)
    end = clock.monotonic() + _PATIENCE_S
    while not await _served(client):
        if clock.monotonic() > end:
            raise CommandError(f"the Migration CRD is not established after {_PATIENCE_S:g} s")
        await clock.sleep(0.1)


async def configure(client: KubeClient, rebalancer: Path) -> None:
    """Create the ConfigMap of the rebalancer: `evenkeel` judges the cluster by it."""
    text = await asyncio.to_thread(rebalancer.read_text)
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE},
        "data": {rebalancer.name: text},
    }
    await client.create(CONFIGMAPS, body, namespace=NAMESPACE)


async def _served(client: KubeClient) -> bool:
    with suppress(KubeError):
        await client.get(MIGRATIONS.path())
        return True
    return False


def _kubectl(output: list[str]) -> str:
    """Return the path of kubectl that the control plane printed."""
    found = [line.split()[1] for line in output if line.startswith("kubectl:")]
    return found[0] if found else "kubectl"
