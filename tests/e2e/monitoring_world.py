# SPDX-License-Identifier: Apache-2.0
"""Both programs at work with everything that they count, and Prometheus that scrapes them.

The programs run on a simulated cluster: pods of nodes that are too hot are moved, a node is
emptied, and someone asks the extender nonsense. It all happens while Prometheus looks, for a
counter that never grew has no rate; until then the rebalancer is paused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from common.config import ExtenderConfiguration, RebalancerConfiguration, load_config
from extender.main import ExtenderOptions
from extender.main import run as run_extender
from rebalancer.main import RebalancerOptions
from rebalancer.main import run as run_rebalancer
from simulator import build
from tests.support.stands.closed_loop import Loop, closed_loop
from tests.support.stands.extender import eventually, maintain
from tests.support.stands.loop_programs import EXTENDER, REBALANCER, figure, is_ready_at, running
from tests.support.stands.prometheus import Exporter, Line, prometheus

Json = dict[str, Any]  # Any: a JSON object

HOT: Final = ("node-0", "node-1")
HUNGRY: Final = 4
"""How many have to leave them: eight of one core each are on each node of eight."""
LEFT: Final = "node-2"
BOTH: Final = {"enabledStrategies": ["ResourceOptimization", "NodeMaintenance"]}
_PAGE: Final = "/alive"
_COMPARED: Final = "prediction_error_points_count"


@dataclass(frozen=True)
class World:
    """Where everything answers."""

    loop: Loop
    extender: str
    extender_health: str
    rebalancer_health: str
    exporter: Exporter
    prometheus: str

    async def pages(self) -> list[str]:
        """Return what both programs export now."""
        urls = (self.extender_health, self.rebalancer_health)
        async with _http() as http:
            return [(await http.get(f"{url}/metrics")).raise_for_status().text for url in urls]

    async def ask(self, expr: str) -> list[Json]:
        """Return what Prometheus answers to an expression."""
        async with _http() as http:
            answer = await http.get(f"{self.prometheus}/api/v1/query", params={"query": expr})
            said = answer.json()
        assert said["status"] == "success", said.get("error")
        found: list[Json] = said["data"]["result"]
        return found


def _http() -> httpx.AsyncClient:
    return httpx.AsyncClient(trust_env=False, timeout=30.0)


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    """Run all of it until the block ends; nothing has happened yet."""
    hungry = [build.deployment(f"hungry-{n}", 4, cpu="100m", usage_cpu="1") for n in range(4)]
    leaving = build.deployment("leaving", 3, cpu="100m", usage_cpu="100m")
    places = {**{f"hungry-{n}": [*HOT, *HOT] for n in range(4)}, "leaving": [LEFT] * 3}
    async with (
        closed_loop(folder, *hungry, leaving, nodes=6, places=places, guided=False) as loop,
        _extender(loop) as (extender, extender_health),
        loop.asking(extender),
        _rebalancer(loop) as health,
        Exporter({_PAGE: lambda: [Line("alive", {}, value=1.0)]}).running() as exporter,
        prometheus(folder, exporter, _jobs(exporter, extender_health, health)) as url,
    ):
        yield World(loop, extender, extender_health, health, exporter, url)


async def happen(world: World) -> None:
    """Let everything happen that the programs count."""
    loop, scraped = world.loop, world.exporter.scraped
    await loop.until_ready("leaving", 3)
    # A pod that comes here would have to leave again, and no one may be moved twice.
    loop.cordon(LEFT)
    await _nonsense(world.extender)
    await scraped(2)
    _configure(loop, paused=False)
    await loop.until(lambda: len(loop.witness.evicted) >= HUNGRY, "the hot nodes are relieved")
    await loop.settled()
    await _compared(world, 1)
    await scraped(2)
    compared = await figure(world.rebalancer_health, _COMPARED)
    loop.cluster.create([build.deployment("newcomer", 2, cpu="100m")])
    maintain(loop.cluster, LEFT, on=True)
    await loop.until(lambda: not loop.on(LEFT), f"{LEFT} is empty")
    await loop.settled()
    await _nonsense(world.extender)
    await _compared(world, compared + 1)
    await loop.cycles(world.rebalancer_health, 2)
    await scraped(3)


async def _compared(world: World, count: float) -> None:
    """Wait until predictions were compared with what came of them."""

    async def enough() -> bool:
        return await figure(world.rebalancer_health, _COMPARED) >= count

    await eventually(enough, "predictions are compared with measurements")


@asynccontextmanager
async def _extender(loop: Loop) -> AsyncIterator[tuple[str, str]]:
    config = ExtenderConfiguration.model_validate(EXTENDER)
    options = ExtenderOptions(kubeconfig=str(loop.kubeconfig))
    async with running(run_extender, config, options, loop.clock) as said:
        health = f"http://{said['health']}"
        await eventually(lambda: is_ready_at(health), "the extender is ready")
        yield f"http://{said['extender']}", health


@asynccontextmanager
async def _rebalancer(loop: Loop) -> AsyncIterator[str]:
    file = _configure(loop, paused=True)
    config = load_config(str(file), RebalancerConfiguration)
    options = RebalancerOptions(kubeconfig=str(loop.kubeconfig), config=str(file))
    async with running(run_rebalancer, config, options, loop.clock) as said:
        yield f"http://{said['health']}"
        await loop.settled()


def _configure(loop: Loop, *, paused: bool) -> Path:
    file = loop.folder / "rebalancer.yaml"
    kind = {"apiVersion": "evenkeel.io/v1alpha1", "kind": "RebalancerConfiguration"}
    file.write_text(yaml.safe_dump({**kind, **REBALANCER, **BOTH, "mode": "act", "paused": paused}))
    return file


async def _nonsense(extender: str) -> None:
    """Ask what no one can answer, and about a pod that makes no sense."""
    odd = build.pod("odd")
    odd["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "much"}}
    async with _http() as http:
        assert (await http.post(f"{extender}/filter", content=b"{")).is_client_error
        question = {"Pod": odd, "NodeNames": ["node-0", "node-1"]}
        assert (await http.post(f"{extender}/prioritize", json=question)).is_success


def _jobs(exporter: Exporter, extender: str, rebalancer: str) -> Sequence[Json]:
    """Scrape as the ServiceMonitors would have it; the exporter tells how often."""
    programs = {"extender": extender, "rebalancer": rebalancer}
    return [
        {"job_name": "alive", **_target(f"127.0.0.1:{exporter.port}", _PAGE)},
        *(
            {"job_name": f"evenkeel-{name}-metrics", **_target(url.removeprefix("http://"))}
            for name, url in programs.items()
        ),
    ]


def _target(address: str, path: str = "/metrics") -> Json:
    # A scrape that takes longer leaves a gap, and machines that run tests are busy.
    seldom = {"scrape_interval": "2s", "scrape_timeout": "2s"}
    return {"static_configs": [{"targets": [address]}], "metrics_path": path, **seldom}
