# SPDX-License-Identifier: Apache-2.0
"""A node with real processes is emptied with shipped settings, and the kernel says so.

On the node are the only replica of a Deployment, a StatefulSet, pods with an `emptyDir`, and pods
that go on for a while after SIGTERM, so that two nodes carry them at once.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bench.stands.cluster import Cluster
from bench.stands.real_scenario import Pods, app_of, ending, is_ready
from common.api.contract import DRAINED_CONDITION
from tests.support.stands.control_plane import Say
from tests.support.stands.real_nodes import NODES, Stand, deployment, place, shipped, stateful_set

pytestmark = pytest.mark.real_nodes

BURN = "--milli=20"
SINGLE, ORDERED, SLOW, SCRATCH = "single", "ordered", "slow", "scratch"
REPLICAS = {SINGLE: 1, ORDERED: 2, SLOW: 2, SCRATCH: 2}
MOVED = 5
EMPTIED_S, CLOSED_S = 300.0, 60.0

Json = dict[str, Any]  # Any: nested API objects


async def test_a_node_is_emptied_but_for_what_keeps_data_on_it(
    cluster: Cluster, tmp_path: Path, say: Say
) -> None:
    first = NODES[0]
    await place(
        cluster,
        first,
        deployment(SINGLE, 1, BURN),
        stateful_set(ORDERED, 2, BURN),
        deployment(SLOW, 2, BURN, "--stop-after=20s", terminationGracePeriodSeconds=60),
        deployment(SCRATCH, 2, BURN, volumes=[{"name": "data", "emptyDir": {}}]),
    )
    async with shipped(cluster, tmp_path, say) as stand:
        pods, twice = stand.loop.pods, set[str]()
        pods.checks.append(lambda: _never_without(pods, SINGLE))

        def only_scratch() -> bool:
            twice.update(app for app in REPLICAS if stand.on_kernel(app) > REPLICAS[app])
            return {app_of(pod) for pod in pods.on(first)} == {SCRATCH}

        await cluster.maintain(first, on=True)
        seconds = await stand.until(only_scratch, EMPTIED_S, "only pods with data are left")
        landed = await stand.loop.landed()
        say(f"emptied after {seconds:.0f} s, on two nodes at once for a while: {sorted(twice)}")
        assert (landed.evictions, landed.as_planned, landed.again) == (MOVED, MOVED, 0)
        assert SLOW in twice
        stand.check_places()
        await _blocked_then_drained(stand, first)


async def _blocked_then_drained(stand: Stand, node: str) -> None:
    """The pods that stay are named; once they are gone, the node is drained."""
    cluster = stand.cluster

    async def condition(status: str, text: str) -> bool:
        found = await asyncio.to_thread(cluster.control_plane.api.get, f"/api/v1/nodes/{node}")
        return any(
            each["status"] == status and text in f"{each['reason']} {each['message']}"
            for each in found["status"]["conditions"]
            if each["type"] == DRAINED_CONDITION
        )

    await cluster.wait(lambda: condition("False", "local storage"), CLOSED_S, "it says what stays")
    await cluster.kubectl("delete", "deployment", SCRATCH)
    await cluster.wait(lambda: condition("True", "Drained"), CLOSED_S, "the node is drained")
    await cluster.maintain(node, on=False)
    await cluster.wait(lambda: _is_open(cluster, node), CLOSED_S, "its cordon is removed")


async def _is_open(cluster: Cluster, node: str) -> bool:
    found = await asyncio.to_thread(cluster.control_plane.api.get, f"/api/v1/nodes/{node}")
    return not found["spec"].get("unschedulable", False)


def _never_without(pods: Pods, app: str) -> None:
    ready = [pod for pod in pods.now.values() if app_of(pod) == app and is_ready(pod)]
    assert any(not ending(pod) for pod in ready), f"{app} has no pod that is Ready and stays"
