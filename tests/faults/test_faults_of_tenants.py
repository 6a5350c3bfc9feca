# SPDX-License-Identifier: Apache-2.0
"""The closed loop beside a tenant who writes into the API what it may, in its own namespace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from common.kube.resources import PODS
from common.kube.timestamps import micro_time
from simulator import build
from simulator.api import Json, is_ready
from simulator.api.deletion import DeleteOptions
from simulator.faults import SlowStarts
from tests.support.stands.closed_loop import PATIENCE_S, Loop, closed_loop
from tests.support.stands.extender import eventually
from tests.support.stands.loop_programs import figure

TENANT = "tenant"


def forge(loop: Loop, reference: Json, node: str) -> None:
    """Create a pod of the tenant that says it has another namespace's controller."""
    made = build.pod(f"forged-{node}", namespace=TENANT, node=node)
    made["metadata"]["ownerReferences"] = [reference]
    loop.store.create(PODS, made, namespace=TENANT)


async def test_a_forged_owner_neither_fills_an_intent_nor_passes_for_the_replacement(
    tmp_path: Path,
) -> None:
    web = build.deployment("web", 4)
    async with (
        closed_loop(tmp_path, build.namespace(TENANT), web) as loop,
        loop.rebalancer(),
    ):
        pod = (await loop.until_ready("web", 4))[0]
        [reference] = pod["metadata"]["ownerReferences"]
        source = pod["spec"]["nodeName"]
        target, other = sorted({"node-0", "node-1", "node-2"} - {source})
        uid = str(pod["metadata"]["uid"])
        # Both before the eviction, when the place must not look taken, and right after it,
        # before the controller has made the replacement.
        loop.when_done(uid, "Marked", lambda: forge(loop, reference, target))
        loop.when_evicted(lambda: forge(loop, reference, other))
        name = loop.plan(pod, target)
        [status] = await loop.until_ended(name)
        replaced = loop.store.get(PODS, status["replacement"]["name"], namespace="default")
    assert status["outcome"] == "AsPlanned"
    assert status["replacement"]["uid"] == replaced["metadata"]["uid"]
    assert replaced["spec"]["nodeName"] == target
    assert len(loop.witness.evicted) == 1


@pytest.mark.long(17)
async def test_moves_that_go_wrong_in_one_namespace_stop_no_other_also_after_a_restart(
    tmp_path: Path,
) -> None:
    settings: dict[str, Any] = {
        "breaker": {"minimum": 2},
        "workloadCooldown": "0s",
        "migrationDeadline": "80s",
    }
    theirs = [build.deployment(app, 4, namespace=TENANT) for app in ("bad", "worse", "idle")]
    async with closed_loop(
        tmp_path, build.namespace(TENANT), *theirs, build.deployment("web", 4)
    ) as loop:
        async with loop.rebalancer(**settings):
            pods = [(await loop.until_ready(app, 4)) for app in ("bad", "worse")]
            slow = loop.cluster.faults.inject(SlowStarts(node="node-2", factor=1_000.0))
            first = [next(pod for pod in found if not _on(pod, "node-2")) for found in pods]
            wrong = await loop.until_ended(*[loop.plan(pod, "node-2") for pod in first])
            assert all("evictedAt" in status for status in wrong)
            assert loop.outcomes() == ["DeadlineExceeded"] * 2
        loop.cluster.faults.withdraw(slow)
        for pod in (pod for pod in loop.on("node-2") if not is_ready(pod)):
            name, now = pod["metadata"]["name"], DeleteOptions(grace_s=0)
            loop.store.delete(PODS, name, namespace=TENANT, options=now)
        async with loop.rebalancer(**settings) as health:
            for app in ("bad", "worse", "idle"):
                await loop.until_ready(app, 4)
            stopped = loop.plan(_movable(loop, "idle"), "node-2", **_soon(loop))
            quarantined = loop.plan(_movable(loop, "bad"), "node-2", **_soon(loop))
            await loop.until_says(stopped, "BudgetChecked", "BreakerOpen")
            await loop.until_says(quarantined, "BudgetChecked", "BreakerOpen")
            [status] = await loop.until_ended(loop.plan(_movable(loop, "web"), "node-2"))

            async def runs() -> bool:
                return await figure(health, "breaker_open", purpose="load") == 0

            # A busy machine measures late, which opens the breaker of all for a moment.
            await eventually(runs, "the others may move", patience_s=PATIENCE_S)
            assert await figure(health, "namespaces_stopped", purpose="load") == 1
            assert await figure(health, "workloads_quarantined", purpose="load") == 2
    assert status["outcome"] == "AsPlanned"
    assert len(loop.witness.evicted) == 3


def _on(pod: Json, node: str) -> bool:
    return bool(pod["spec"].get("nodeName") == node)


def _movable(loop: Loop, app: str) -> Json:
    return next(pod for pod in loop.ready(app) if not _on(pod, "node-2"))


def _soon(loop: Loop) -> Json:
    return {"deadline": micro_time(loop.clock.now() + 60.0)}
