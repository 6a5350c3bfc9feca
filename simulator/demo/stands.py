"""The cluster of a demo: simulated, or a real control plane with kwok's nodes.

Both are processes, reached by a kubeconfig and nothing else. The simulated one begins as its
scenario says; on the real one the same scenario is made through the API.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from common.clock import Clock
from common.kube.client import KubeClient, connect
from common.kube.errors import KubeError
from common.kube.resources import MIGRATIONS, NAMESPACES
from simulator import build
from simulator.demo.programs import ProgramDied, Programs
from simulator.demo.settings import NAMESPACE, definitions
from simulator.process import CannotServe
from simulator.scenarios import Scenario
from simulator.scenarios.applying import apply, join_later

_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PATIENCE_S: Final = 30.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The cluster that is asked for."""

    name: str
    scenario: Scenario
    seed: int
    speed: float
    scheduler: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """A running cluster."""

    client: KubeClient
    kubeconfig: Path
    server: str
    """Where the API answers without a login; empty where it asks for one."""
    kubectl: str
    words: str


@asynccontextmanager
async def simulated(
    wanted: Wanted, programs: Programs, say: Say, *, clock: Clock
) -> AsyncIterator[Stand]:
    """Run a simulated cluster."""
    kubeconfig = programs.folder / "kubeconfig"
    cluster = programs.start(
        *("cluster", "simulator", "serve", "--scenario", wanted.name, "--seed", str(wanted.seed)),
        *("--speed", f"{wanted.speed:g}", "--scheduler-config", str(wanted.scheduler)),
        *("--kubeconfig-out", str(kubeconfig)),
    )
    await cluster.until(lambda: [line for line in cluster.output() if line == "ready"])
    async with connect(kubeconfig=str(kubeconfig), qps=200, burst=400, clock=clock) as client:
        await furnish(client, clock)
        yield Stand(
            client=client,
            kubeconfig=kubeconfig,
            server=client.server,
            kubectl="kubectl" if shutil.which("kubectl") else "",
            words=f"cluster {cluster.pid}",
        )


@asynccontextmanager
async def real(
    wanted: Wanted, programs: Programs, say: Say, *, clock: Clock
) -> AsyncIterator[Stand]:
    """Run a real control plane, and make the scenario on it."""
    home, kubeconfig = programs.folder / "controlplane", programs.folder / "kubeconfig"
    said: list[str] = []

    def told(line: str) -> None:
        said.append(line)
        say(f"  {line}")

    try:
        await programs.run(
            *("controlplane", "controlplane", "up", "--nodes", "0", "--dir", str(home)),
            *("--scheduler-config", str(wanted.scheduler), "--kubeconfig-out", str(kubeconfig)),
            say=told,
        )
        async with connect(kubeconfig=str(kubeconfig), qps=200, burst=400, clock=clock) as client:
            await furnish(client, clock)
            say("making the scenario: nodes, workloads, pods where they begin")
            await apply(wanted.scenario, client, seed=wanted.seed, clock=clock)
            later = asyncio.create_task(join_later(wanted.scenario, client, clock=clock))
            try:
                yield Stand(
                    client=client,
                    kubeconfig=kubeconfig,
                    server="",
                    kubectl=_kubectl(said),
                    words=f"control plane in {home}",
                )
            finally:
                later.cancel()
                with suppress(asyncio.CancelledError):
                    await later
    finally:
        # Whoever uses the control plane takes leave of it first.
        await programs.end()
        if home.exists():
            with suppress(ProgramDied):
                await programs.run(
                    "down", "controlplane", "down", "--dir", str(home), say=lambda _: None
                )


async def furnish(client: KubeClient, clock: Clock) -> None:
    """Put into a cluster what Evenkeel needs there."""
    await client.create(NAMESPACES, build.namespace(NAMESPACE))
    for document in yaml.safe_load_all(definitions()):
        await client.request("POST", _DEFINITIONS, body=document)
    end = clock.monotonic() + _PATIENCE_S
    while not await _served(client):
        if clock.monotonic() > end:
            raise CannotServe(f"Migrations are not served after {_PATIENCE_S:g} s")
        await clock.sleep(0.1)


async def _served(client: KubeClient) -> bool:
    with suppress(KubeError):
        await client.get(MIGRATIONS.path())
        return True
    return False


def _kubectl(said: list[str]) -> str:
    """Return how the control plane says that its kubectl is called."""
    found = [line.split()[1] for line in said if line.startswith("kubectl:")]
    return found[0] if found else "kubectl"
