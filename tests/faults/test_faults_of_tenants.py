"""The closed loop beside a tenant who writes into the API what it may, in its own namespace."""

from __future__ import annotations

from pathlib import Path

from common.kube.resources import PODS
from simulator import build
from simulator.api import Json
from tests.support.closed_loop import Loop, closed_loop

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
