# SPDX-License-Identifier: Apache-2.0
"""`evenkeel pause` and `resume` while a node is being emptied, with two replicas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from common.api.contract import PAUSE, PAUSED_UNTIL
from common.clock import SYSTEM
from common.kube.resources import CONFIGMAPS
from simulator import build
from simulator.faults import DropWatches, ServerError, SlowStarts
from tests.faults.test_drains import MAINTENANCE, drained
from tests.faults.test_faults_of_metrics import plan_at
from tests.faults.test_faults_of_operators import told
from tests.support.stands.closed_loop import Loop, closed_loop
from tests.support.stands.command import Answer, evenkeel
from tests.support.stands.extender import eventually, maintain

MANY = 6
APPS = [f"app-{number}" for number in range(2)]
ONE_BY_ONE: dict[str, Any] = {**MAINTENANCE, "maintenanceParallelism": 1}


@asynccontextmanager
async def draining(folder: Path) -> AsyncIterator[Loop]:
    """Give a node with many pods that is about to be emptied, slowly."""
    each = MANY // len(APPS)
    apps = [build.deployment(app, each, cpu="100m") for app in APPS]
    places = {app: ["node-0"] * each for app in APPS}
    async with closed_loop(folder, *apps, places=places) as loop:
        await loop.until(lambda: len(loop.ready()) == MANY, "all are Ready")
        loop.cluster.faults.inject(SlowStarts(factor=5.0))
        yield loop


async def command(loop: Loop, *arguments: str) -> Answer:
    """Run the command where the programs keep their Leases."""
    place = ("--kubeconfig", str(loop.kubeconfig), "--namespace", "default")
    found = await evenkeel(*place, *arguments)
    assert found.code == 0, found.err
    return found


async def begun(loop: Loop) -> None:
    maintain(loop.cluster, "node-0", on=True)
    await loop.until(lambda: len(loop.witness.evicted) >= 2, "evictions are under way")


async def stands(loop: Loop, health: str) -> int:
    """Wait until a leader says that it is paused; return how many pods it evicts no more."""

    async def noted() -> bool:
        notes = (await plan_at(health)).get("notes", ())
        return any("moves are paused" in note for note in notes)

    await eventually(noted, "the plan says so", patience_s=60)
    evicted = len(loop.witness.evicted)
    assert evicted < MANY, "it was stopped before the end"
    await loop.cycles(health, 3)
    assert len(loop.witness.evicted) == evicted
    return evicted


async def goes_on(loop: Loop, evicted: int) -> None:
    await loop.until(lambda: len(loop.witness.evicted) > evicted, "evictions go on")
    loop.cluster.faults.clear()
    await loop.until(lambda: drained(loop) == ("True", "Drained"), "it is empty")
    maintain(loop.cluster, "node-0", on=False)


async def test_a_pause_stops_a_running_drain_and_outlives_the_leader(tmp_path: Path) -> None:
    async with draining(tmp_path) as loop, AsyncExitStack() as term:
        first = await term.enter_async_context(loop.rebalancer(**ONE_BY_ONE))
        await told(first, "leader", 1)
        async with loop.rebalancer(**ONE_BY_ONE) as second:
            await begun(loop)
            await command(loop, "pause", "--reason", "network change")
            evicted = await stands(loop, first)
            await term.aclose()
            await told(second, "leader", 1)
            assert await stands(loop, second) == evicted
            await command(loop, "resume")
            await goes_on(loop, evicted)


async def test_a_pause_ends_by_itself_and_one_that_cannot_be_read_does_not(
    tmp_path: Path,
) -> None:
    async with draining(tmp_path) as loop, loop.rebalancer(**ONE_BY_ONE) as health:
        await begun(loop)
        await command(loop, "pause", "--for", "1h")
        unreadable = {"data": {PAUSED_UNTIL: "tomorrow"}}
        loop.store.patch(CONFIGMAPS, PAUSE, unreadable, namespace="default")
        evicted = await stands(loop, health)
        assert "cannot be read" in (await command(loop, "status")).out
        # The clock of the programs is ahead of the command's, more and more.
        ahead_s = loop.clock.now() - SYSTEM.now()
        await command(loop, "pause", "--for", f"{ahead_s + 10:.0f}s")
        await goes_on(loop, evicted)


async def test_while_a_pause_may_not_be_read_nothing_is_evicted(tmp_path: Path) -> None:
    async with draining(tmp_path) as loop, loop.rebalancer(**ONE_BY_ONE) as health:
        await begun(loop)
        forbidden = ServerError(status=403, resources=("configmaps",))
        number = loop.cluster.faults.inject(forbidden)
        loop.cluster.faults.inject(DropWatches(resource="configmaps"))
        await loop.cycles(health, 2)
        evicted = len(loop.witness.evicted)
        assert evicted < MANY, "it was stopped before the end"
        await loop.cycles(health, 3)
        assert len(loop.witness.evicted) == evicted
        unknown = "unknown: you may not get ConfigMap default/evenkeel-pause"
        assert unknown in (await command(loop, "status")).out
        loop.cluster.faults.withdraw(number)
        await goes_on(loop, evicted)
