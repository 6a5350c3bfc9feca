# SPDX-License-Identifier: Apache-2.0
"""`python -m simulator serve`: a simulated cluster for other programs."""

from __future__ import annotations

import argparse
import asyncio
import errno
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.clock import SYSTEM, Clock
from common.config import ConfigError
from simulator.cluster import Settings, SimulatedCluster, simulate
from simulator.nodes.metrics import OF_KUBELETS
from simulator.process import CommandError
from simulator.scenarios import Scenario, load_scenario, scaled, stage
from simulator.scenarios.schema import Pool
from simulator.scheduler import SchedulerConfig, read_config

_NODES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The cluster that the command line asks for."""

    scenario: Scenario
    seed: int = 0
    speed: float = 1.0
    port: int = 0
    scheduler: SchedulerConfig | None = None


@asynccontextmanager
async def serving(options: ServeOptions, *, clock: Clock) -> AsyncIterator[SimulatedCluster]:
    """Run a cluster; its scenario has settled when the block begins."""
    settings = Settings(
        seed=options.seed,
        speed=options.speed,
        port=options.port,
        scheduler=options.scheduler or SchedulerConfig(),
        pipeline=OF_KUBELETS,
    )
    try:
        context = simulate(settings, clock=clock, build=lambda c: stage(options.scenario, c))
        async with context as cluster:
            yield cluster
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        hint = "; choose another --port, 0 is a free one" if taken else ""
        raise CommandError(f"port {options.port}: {error.strerror or error}{hint}") from None


def scenario_of(name: str | None, nodes: int | None) -> Scenario:
    """Return a scenario, scaled to a number of nodes; without a name, nodes without pods."""
    if name is None:
        return Scenario(pools=(Pool(count=nodes or _NODES),))
    scenario = load_scenario(name)
    try:
        return scenario if nodes is None else scaled(scenario, nodes)
    except ConfigError as error:
        raise ConfigError(*(f"{name}: {problem}" for problem in error.problems)) from None


async def serve(flags: argparse.Namespace) -> None:
    """Serve until canceled."""
    options = ServeOptions(
        scenario=scenario_of(flags.scenario, flags.nodes),
        seed=flags.seed,
        speed=flags.speed,
        port=flags.port,
        scheduler=read_config(flags.scheduler_config) if flags.scheduler_config else None,
    )
    with tempfile.TemporaryDirectory(prefix="evenkeel-simulator-") as folder:
        async with serving(options, clock=SYSTEM) as cluster:
            path = Path(flags.kubeconfig_out or Path(folder) / "kubeconfig")
            print(f"kubeconfig: {_written(cluster, path)}", flush=True)
            print(f"server: {cluster.server.url}", flush=True)
            print("ready", flush=True)
            await stay(cluster)


def _written(cluster: SimulatedCluster, kubeconfig: Path) -> Path:
    try:
        return cluster.write_kubeconfig(kubeconfig)
    except OSError as error:
        raise CommandError(f"{kubeconfig}: cannot be written: {error.strerror or error}") from None


async def stay(cluster: SimulatedCluster) -> None:
    """Wait until the cluster fails."""
    if cluster.life is not None:
        await asyncio.shield(cluster.life)
