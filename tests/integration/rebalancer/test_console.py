# SPDX-License-Identifier: Apache-2.0
"""The console of a running rebalancer: every page shows the cluster that it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from common.clock import SYSTEM
from common.config import RebalancerConfiguration
from common.http_server import address_of, listen
from rebalancer.main import ConsolePort, RebalancerOptions, console_port, run
from tests.integration.rebalancer.stand import QUICK
from tests.integration.rebalancer.test_loop import one_hot_node, open_the_others
from tests.support.stands.loop_programs import running

Json = dict[str, Any]  # Any: documents of the console
CONFIG: Json = {**QUICK, "enabledStrategies": ["ResourceOptimization"], "minNodeAge": "0s"}
CONFIG |= {"mode": "observe", "reschedulingInterval": "200ms"}


async def until(ask: Callable[[], Awaitable[Json]], good: Callable[[Json], Any]) -> Json:
    async with asyncio.timeout(120):
        while not good(found := await ask()):
            await SYSTEM.sleep(0.1)
    return found


async def test_every_document_is_about_the_cluster(tmp_path: Path) -> None:
    config = RebalancerConfiguration.model_validate(CONFIG)
    async with one_hot_node() as cluster:
        await open_the_others(cluster)
        kubeconfig = str(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        options = RebalancerOptions(kubeconfig=kubeconfig, dry_run=True, console_port=0)
        async with (
            running(run, config, options, SYSTEM) as addresses,
            httpx.AsyncClient(
                base_url=f"http://{addresses['console']}", trust_env=False, timeout=60
            ) as client,
        ):

            async def ask(path: str) -> Json:
                found: Json = (await client.get(f"/api/{path}")).json()
                return found

            answer = await until(
                lambda: ask("plan"), lambda found: found["plan"] and found["plan"]["moves"]
            )
            move = answer["plan"]["moves"][0]
            shown = await until(
                lambda: ask("cluster"),
                lambda found: found["cluster"] and found["cluster"]["evictions"],
            )
            names = {cell[0]: cell for cell in shown["cluster"]["nodes"]}
            assert {move["source"], move["target"]} <= set(names)
            source = names[move["source"]]
            assert source[5] > 80 > source[9]  # CPU now and after the plan
            assert (await ask(f"node?name={move['source']}"))["pods"]
            answered = await ask(f"why?kind=pod&name={move['pod']}")
            assert answered["good"] is True
            assert (await ask("migrations"))["rows"] == []
            health = await ask("health")
            assert health["leader"] == "this is a dry run, which plans without leading"
            assert (await ask("history"))["times"]
            pod = move["pod"].partition("/")[2]
            found: list[Json] = (await client.get("/api/search", params={"q": pod})).json()
            assert found[0] == {"kind": "pod", "name": move["pod"]}
            page = (await client.get("/why", params={"kind": "pod", "name": move["pod"]})).text
            assert move["pod"] in page


async def test_a_taken_port_costs_the_console_and_nothing_else(tmp_path: Path) -> None:
    config = RebalancerConfiguration.model_validate(CONFIG)
    taken = await listen("127.0.0.1", 0)
    taken.listen()
    port = int(address_of(taken).rpartition(":")[2])
    async with one_hot_node() as cluster:
        await open_the_others(cluster)
        kubeconfig = str(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        options = RebalancerOptions(kubeconfig=kubeconfig, dry_run=True, console_port=port)
        async with running(run, config, options, SYSTEM) as addresses:
            assert "console" not in addresses
    taken.close()


def test_a_flag_goes_before_the_configuration() -> None:
    config = RebalancerConfiguration.model_validate({"console": {"port": 7000}})
    off = RebalancerConfiguration.model_validate({"console": {"enabled": False}})
    configured = RebalancerOptions(console_port=ConsolePort.CONFIGURED)
    assert console_port(config, configured) == 7000
    assert console_port(off, configured) is None
    assert console_port(off, RebalancerOptions(console_port=0)) == 0
    assert console_port(config, RebalancerOptions()) is None
