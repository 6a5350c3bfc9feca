"""The closed loop while the API, the measurements, an extender or a leader lets it down."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from common.kube import client
from common.kube.resources import PODS
from simulator import build
from simulator.faults import FreezeWatches, Latency, MetricsFrozen, ServerError, Throttle
from tests.support.closed_loop import Loop, closed_loop
from tests.support.loop_process import nursery
from tests.support.loop_programs import figure

HOT = build.deployment("web", 8, cpu="100m", usage_cpu="1000m")
"""On one node two too many."""
PLACES = {"web": ["node-0"] * 8}
SHORT_TERM: dict[str, Any] = {
    "leaderElection": {
        "namespace": "default",
        "leaseDuration": "10s",
        "renewDeadline": "6s",
        "retryPeriod": "1s",
    },
}


def level(loop: Loop) -> bool:
    return len(loop.on("node-0")) == 6 and len(loop.ready("web")) == 8


async def test_a_fifth_of_all_requests_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An extender that could not tell in time makes a move unguided, and moving stops."""
    monkeypatch.setattr(client, "REQUEST_LIMIT_S", 0.5)
    settings = {**SHORT_TERM, "migrationDeadline": "60s"}
    async with closed_loop(tmp_path, HOT, places=PLACES) as loop, loop.rebalancer(**settings):
        faults = loop.cluster.faults
        faults.inject(ServerError(status=409, probability=0.05))
        faults.inject(ServerError(status=500, probability=0.05))
        faults.inject(Throttle(probability=0.05))
        verbs = ("get", "list", "create", "update", "patch", "delete")
        faults.inject(Latency(seconds=8.0, verbs=verbs, probability=0.05))
        await loop.until(lambda: loop.witness.evicted, "a pod is evicted")
        await loop.until(lambda: not loop.left_behind(), "all moves ended")
        faults.clear()
    assert len(loop.witness.evicted) in (1, 2)


@pytest.mark.parametrize("resources", [(), ("pods",), ("leases",), ("migrations",)])
async def test_watches_that_fall_silent_repeat_no_move(
    resources: tuple[str, ...], tmp_path: Path
) -> None:
    # A silent connection is given up after 800 ms of the machine's time.
    reading = {
        "backoffMin": "100ms",
        "backoffMax": "500ms",
        "silence": "800ms",
        "staleAfter": "15s",
    }
    async with (
        closed_loop(tmp_path, HOT, places=PLACES) as loop,
        loop.rebalancer(reading=reading) as health,
    ):
        loop.when_evicted(lambda: loop.cluster.faults.inject(FreezeWatches(resources=resources)))
        await loop.until(lambda: loop.witness.evicted, "a pod is evicted")
        await loop.cycles(health, 4)
        assert len(loop.witness.evicted) <= 2
        loop.cluster.faults.clear()
        await loop.until(lambda: level(loop), "node-0 is level")
        await loop.cycles(health, 2)
    assert len(loop.witness.evicted) == 2


async def test_measurements_that_stay_high_move_nothing(tmp_path: Path) -> None:
    async with closed_loop(tmp_path, HOT, places=PLACES) as loop:
        await loop.until_ready("web", 8)
        await loop.clock.sleep(10.0)
        fault = loop.cluster.faults.inject(MetricsFrozen())
        async with loop.rebalancer(revalidateWithin="3s") as health:
            await loop.cycles(health, 5)
            assert loop.witness.evicted == []
            loop.cluster.faults.withdraw(fault)
            await loop.until(lambda: loop.witness.evicted, "new measurements move pods")
            loop.cluster.faults.inject(MetricsFrozen())
            await loop.cycles(health, 5)
    assert len(loop.witness.evicted) <= 2


async def test_without_an_extender_nothing_moves_for_load(tmp_path: Path) -> None:
    async with (
        closed_loop(tmp_path, HOT, places=PLACES, guided=False) as loop,
        loop.rebalancer() as health,
    ):
        await loop.until_ready("web", 8)
        await loop.cycles(health, 5)
        assert loop.migrations() == []
        async with loop.extender():
            await loop.until(lambda: level(loop), "node-0 is level")
            await loop.settled()
    assert len(loop.witness.evicted) == 2


async def test_an_extender_that_goes_before_the_eviction_stops_it(tmp_path: Path) -> None:
    web, other = build.deployment("web", 4), build.pod("other")
    async with closed_loop(tmp_path, web, other, guided=False) as loop, AsyncExitStack() as term:
        await term.enter_async_context(loop.extender())
        [first] = await loop.until_ready("other", 1)
        pod = (await loop.until_ready("web", 4))[0]
        async with loop.rebalancer() as health:
            name = loop.plan(pod, other_than(pod), needs=[first["metadata"]["uid"]])
            await loop.until_says(name, "BudgetChecked", "WaitsForRoom")
            await term.aclose()
            loop.store.delete(PODS, "other", namespace="default")
            await loop.until_says(name, "BudgetChecked", "NoExtender")
            await loop.cycles(health, 3)
            assert loop.witness.evicted == []
            async with loop.extender():
                [status] = await loop.until_ended(name)
                await loop.settled()
    assert status["outcome"] == "AsPlanned"


async def test_an_extender_that_goes_after_the_eviction_leaves_nothing_open(tmp_path: Path) -> None:
    web = build.deployment("web", 4)
    async with closed_loop(tmp_path, web, guided=False) as loop, AsyncExitStack() as term:
        url = await term.enter_async_context(loop.extender(asked=False))
        pod = (await loop.until_ready("web", 4))[0]
        async with loop.asking(url), loop.rebalancer() as health:
            evicted = asyncio.Event()
            loop.when_evicted(evicted.set)
            name = loop.plan(pod, other_than(pod))
            await evicted.wait()
            await term.aclose()
            [status] = await loop.until_ended(name)
            await loop.cycles(health, 2)
    assert status["phase"] == "Completed"
    assert len(loop.witness.evicted) == 1


async def test_a_scheduler_that_never_asks_is_found_out_by_the_first_move(tmp_path: Path) -> None:
    async with (
        closed_loop(tmp_path, HOT, places=PLACES, guided=False) as loop,
        loop.extender(asked=False),
        loop.rebalancer(migrationDeadline="20s") as health,
    ):
        await loop.until(lambda: loop.outcomes() and "Unguided" in loop.outcomes(), "found out")
        await loop.cycles(health, 5)
        assert await figure(health, "breaker_open", purpose="load") == 1
    assert loop.outcomes() == ["DeadlineExceeded", "Unguided"]
    assert len(loop.witness.evicted) == 1


async def test_leaders_that_cannot_renew_stop_and_leave_nothing_open(tmp_path: Path) -> None:
    """Extenders cannot renew either, so that replacements may count as unguided."""
    settings = {**SHORT_TERM, "migrationDeadline": "60s"}
    async with (
        closed_loop(tmp_path, HOT, places=PLACES) as loop,
        loop.rebalancer(**settings),
        loop.rebalancer(**settings),
    ):
        fault = ServerError(status=503, verbs=("update", "patch"), resources=("leases",))
        loop.when_evicted(lambda: loop.cluster.faults.inject(fault))
        await loop.until(lambda: loop.witness.evicted, "a pod is evicted")
        await loop.clock.sleep(15.0)
        loop.cluster.faults.clear()
    assert len(loop.witness.evicted) in (1, 2)


async def test_a_leader_that_hangs_and_wakes_up_again_evicts_nothing_twice(tmp_path: Path) -> None:
    with nursery() as rebalancers:
        async with closed_loop(tmp_path, HOT, places=PLACES) as loop:
            pid = await rebalancers.born(loop, **SHORT_TERM)
            try:
                loop.when_evicted(lambda: os.kill(pid, signal.SIGSTOP))
                await loop.until(lambda: loop.witness.evicted, "a pod is evicted")
                async with loop.rebalancer(**SHORT_TERM) as health:
                    await loop.until(lambda: level(loop), "node-0 is level")
                    os.kill(pid, signal.SIGCONT)
                    await loop.cycles(health, 4)
            finally:
                os.kill(pid, signal.SIGKILL)
            assert await rebalancers.buried() == -signal.SIGKILL
    assert len(loop.witness.evicted) == 2


def other_than(pod: dict[str, Any]) -> str:
    """Return a node that a pod is not on."""
    return "node-1" if pod["spec"]["nodeName"] != "node-1" else "node-2"
