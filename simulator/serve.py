"""`python -m simulator serve`: a simulated cluster that others may use."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.clock import SYSTEM, Clock
from simulator.cluster import Settings, SimulatedCluster, simulate
from simulator.process import CannotServe
from simulator.scenarios import Scenario, load_scenario, stage
from simulator.scenarios.schema import Pool
from simulator.scheduler import SchedulerConfig, read_config

_NODES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The cluster that was asked for on the command line."""

    scenario: Scenario
    seed: int = 0
    speed: float = 1.0
    port: int = 0
    scheduler: SchedulerConfig | None = None


@asynccontextmanager
async def serving(wanted: Wanted, *, clock: Clock) -> AsyncIterator[SimulatedCluster]:
    """Run the cluster that was asked for; everything in it settled."""
    settings = Settings(
        seed=wanted.seed,
        speed=wanted.speed,
        port=wanted.port,
        scheduler=wanted.scheduler or SchedulerConfig(),
    )
    try:
        context = simulate(settings, clock=clock, build=lambda c: stage(wanted.scenario, c))
        async with context as cluster:
            yield cluster
    except OSError as error:
        raise CannotServe(f"port {wanted.port}: {error.strerror or error}") from None


def scenario_of(name: str | None, nodes: int | None) -> Scenario:
    """Return the scenario that is asked for; `nodes` is the size of its first pool."""
    if name is None:
        return Scenario(pools=(Pool(count=nodes or _NODES),))
    scenario = load_scenario(name)
    if nodes is None:
        return scenario
    first, *others = scenario.pools
    resized = first.model_copy(update={"count": nodes})
    # The load speaks of the nodes that the file has; with others the scheduler places.
    return scenario.model_copy(update={"pools": (resized, *others), "load": ()})


async def serve(flags: argparse.Namespace) -> None:
    """Serve until cancelled."""
    wanted = Wanted(
        scenario=scenario_of(flags.scenario, flags.nodes),
        seed=flags.seed,
        speed=flags.speed,
        port=flags.port,
        scheduler=read_config(flags.scheduler_config) if flags.scheduler_config else None,
    )
    with tempfile.TemporaryDirectory(prefix="evenkeel-simulator-") as folder:
        async with serving(wanted, clock=SYSTEM) as cluster:
            path = Path(flags.kubeconfig_out or Path(folder) / "kubeconfig")
            print(f"kubeconfig: {_written(cluster, path)}", flush=True)
            print(f"server: {cluster.server.url}", flush=True)
            print("ready", flush=True)
            await stay(cluster)


def _written(cluster: SimulatedCluster, kubeconfig: Path) -> Path:
    try:
        return cluster.write_kubeconfig(kubeconfig)
    except OSError as error:
        raise CannotServe(f"{kubeconfig}: cannot be written: {error.strerror or error}") from None


async def stay(cluster: SimulatedCluster) -> None:
    """Return never, unless the cluster dies."""
    if cluster.life is not None:
        await asyncio.shield(cluster.life)
