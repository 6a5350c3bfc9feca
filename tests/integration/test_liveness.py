# SPDX-License-Identifier: Apache-2.0
"""Both programs, as they run, when their work stops while their event loop lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.clock import SystemClock
from common.config import ExtenderConfiguration, RebalancerConfiguration
from extender.main import ExtenderOptions
from extender.main import run as run_extender
from rebalancer.main import RebalancerOptions
from rebalancer.main import run as run_rebalancer
from simulator.faults import DropWatches, ServerError
from tests.support.http import plain_http
from tests.support.stands.extender import eventually
from tests.support.stands.loop_programs import figure
from tests.support.stands.simulated_cluster import cluster_of
from tests.support.worlds.migrations import definition

if TYPE_CHECKING:
    import httpx

QUICK: dict[str, Any] = {
    "usageSource": "metrics-server",
    "usageInterval": "50ms",
    "reading": {"backoffMin": "10ms", "backoffMax": "50ms"},
    "clientConnection": {"qps": 1000, "burst": 1000},
}


class StuckClock(SystemClock):
    """A clock on which no wait of the program ends any more, and that is set forward."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._stuck = False
        self._waits = 0

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead_s

    async def sleep(self, seconds: float) -> None:
        self._waits += 1
        await super().sleep(seconds)
        self._waits += 1
        if self._stuck:
            await asyncio.Event().wait()

    async def stick(self) -> None:
        """Return when what was under way has come to a wait as well."""
        self._stuck = True
        before = -1
        while before != self._waits:
            before = self._waits
            await super().sleep(0.5)

    def forward(self, seconds: float) -> None:
        self._ahead_s += seconds


@asynccontextmanager
async def health_of(
    program: Coroutine[Any, Any, None], addresses: dict[str, str]
) -> AsyncIterator[httpx.AsyncClient]:
    """Run a program; give its health port."""
    task = asyncio.create_task(program)
    try:
        await eventually(lambda: task.done() or addresses, "it has announced its ports")
        url = f"http://{addresses['health']}"
        async with plain_http(url) as client:
            yield client
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def shows(client: httpx.AsyncClient, line: str) -> bool:
    return f"\n{line}\n" in (await client.get("/metrics")).text


async def test_a_rebalancer_whose_cycles_stop_is_not_alive_and_says_since_when(
    tmp_path: Path,
) -> None:
    clock, said = StuckClock(), dict[str, str]()
    async with cluster_of(2, definition()) as cluster:
        kubeconfig = str(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        config = RebalancerConfiguration.model_validate({**QUICK, "reschedulingInterval": "100ms"})
        options = RebalancerOptions(kubeconfig=kubeconfig, dry_run=True)
        program = run_rebalancer(config, options, clock=clock, announce=said.update)
        async with health_of(program, said) as client:
            health = str(client.base_url).rstrip("/")

            async def plans() -> bool:
                return await figure(health, "cycles_total", result="done") >= 3

            await eventually(plans, "it plans")
            answer = await client.get("/livez?verbose")
            assert answer.text == "[+]cycles ok\nlivez check passed\n"
            await clock.stick()
            clock.forward(290)
            assert (await client.get("/livez")).status_code == 200
            clock.forward(60)
            answer = await client.get("/livez")
            assert answer.status_code == 503
            assert "[-]cycles failed: no cycle of planning has ended since 20" in answer.text
            assert "at most 300 s are expected" in answer.text


async def test_a_rebalancer_that_cannot_reach_the_api_server_is_alive(tmp_path: Path) -> None:
    clock, said = StuckClock(), dict[str, str]()
    async with cluster_of(2, definition()) as cluster:
        kubeconfig = str(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        config = RebalancerConfiguration.model_validate({**QUICK, "reschedulingInterval": "2h"})
        options = RebalancerOptions(kubeconfig=kubeconfig, dry_run=True)
        program = run_rebalancer(config, options, clock=clock, announce=said.update)
        async with health_of(program, said) as client:
            await eventually(
                lambda: shows(client, 'evenkeel_cycles_total{result="done"} 1.0'), "it has planned"
            )
            clock.forward(11 * 3600)
            assert (await client.get("/livez")).status_code == 503
            cluster.faults.inject(ServerError(status=503))
            cluster.faults.inject(DropWatches())

            async def excused() -> bool:
                return (await client.get("/livez")).status_code == 200

            await eventually(excused, "no kind can be read any more")


async def test_an_extender_whose_scores_are_no_longer_computed_is_not_alive(
    tmp_path: Path,
) -> None:
    clock, said = StuckClock(), dict[str, str]()
    async with cluster_of(2, definition()) as cluster:
        kubeconfig = str(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        config = ExtenderConfiguration.model_validate({**QUICK, "leaseNamespace": "default"})
        options = ExtenderOptions(kubeconfig=kubeconfig)
        program = run_extender(config, options, clock=clock, announce=said.update)
        async with health_of(program, said) as client:

            async def ready() -> bool:
                return (await client.get("/readyz")).status_code == 200

            await eventually(ready, "it is ready")
            await clock.stick()
            clock.forward(290)
            assert (await client.get("/livez")).status_code == 200
            clock.forward(60)
            answer = await client.get("/livez")
            assert answer.status_code == 503
            assert "[-]board failed: no board refresh has ended since 20" in answer.text
