# SPDX-License-Identifier: Apache-2.0
"""An extender that is alive but learns of no Migrations holds up no move forever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from common.api.contract import (
    EXTENDER_LEASE_PREFIX,
    FILTER_CALLS,
    MAINTENANCE_LABEL,
    SEEN_MIGRATIONS,
)
from common.kube.resources import EVENTS, LEASES, NODES
from common.kube.timestamps import micro_time
from simulator import build
from tests.support.http import fetch
from tests.support.stands.closed_loop import Loop, closed_loop
from tests.support.stands.loop_programs import figure

WEB = build.deployment("web", 4)
DEAF = f"{EXTENDER_LEASE_PREFIX}deaf"


@asynccontextmanager
async def a_deaf_extender(loop: Loop, **said: str) -> AsyncIterator[None]:
    """Renew the Lease of an extender that has heard of no Migration for long."""
    lease: dict[str, Any] = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": DEAF, "annotations": {SEEN_MIGRATIONS: "1", **said}},
        "spec": {"holderIdentity": "deaf", "renewTime": micro_time(loop.clock.now())},
    }
    loop.store.create(LEASES, {**lease, "metadata": {**lease["metadata"], "namespace": "default"}})

    async def renew() -> None:
        while True:
            await loop.clock.sleep(3.0)
            spec = {"renewTime": micro_time(loop.clock.now())}
            loop.store.patch(LEASES, DEAF, {"spec": spec}, namespace="default")

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_deaf_extender_that_no_scheduler_asks_is_left_out_by_name(tmp_path: Path) -> None:
    async with closed_loop(tmp_path, WEB) as loop, a_deaf_extender(loop):
        pod = (await loop.until_ready("web", 4))[0]
        async with loop.rebalancer() as health:
            name = loop.plan(pod, other_than(pod))
            await loop.until_says(name, "Acknowledged", "NotAcknowledged")
            [status] = await loop.until_ended(name)
            await loop.cycles(health, 1)
            assert await figure(health, "extenders_deaf") == 1
            await loop.until(lambda: told(loop), "an Event names it")
            assert "xtender deaf is alive" in told(loop)[0]["note"]
            assert "extender deaf is alive but has missed new Migrations" in await plan(health)
    assert status["outcome"] == "AsPlanned"


@pytest.mark.long(18)
async def test_a_deaf_extender_that_is_asked_stops_load_moves_and_no_drain(tmp_path: Path) -> None:
    async with closed_loop(tmp_path, WEB, guided=False) as loop:
        await loop.until_ready("web", 4)
        calls = f'{{"default-scheduler": {{"last": "{micro_time(loop.clock.now())}", "share": 1}}}}'
        both = ["ResourceOptimization", "NodeMaintenance"]
        async with (
            a_deaf_extender(loop, **{FILTER_CALLS: calls}),
            loop.rebalancer(enabledStrategies=both) as health,
        ):
            pod = next(pod for pod in loop.ready("web") if pod["spec"]["nodeName"] != "node-2")
            soon = micro_time(loop.clock.now() + 200.0)
            name = loop.plan(
                pod, "node-1" if pod["spec"]["nodeName"] == "node-0" else "node-0", deadline=soon
            )
            await loop.until_says(name, "Evicted", "DeafExtender")
            assert loop.witness.evicted == []
            label(loop, "true")
            await loop.until(lambda: not loop.on("node-2"), "the node is empty")
            assert await figure(health, "extenders_deaf") == 1
            label(loop, None)
            [status] = await loop.until_ended(name)
            assert "evictedAt" not in status


def label(loop: Loop, mark: str | None) -> None:
    loop.store.patch(NODES, "node-2", {"metadata": {"labels": {MAINTENANCE_LABEL: mark}}})


def told(loop: Loop) -> list[dict[str, Any]]:
    return [event for event in loop.store.list(EVENTS) if event["reason"] == "ExtenderDeaf"]


def other_than(pod: dict[str, Any]) -> str:
    return "node-1" if pod["spec"]["nodeName"] != "node-1" else "node-2"


async def plan(health: str) -> str:
    return (await fetch(f"{health}/debug/plan")).text
