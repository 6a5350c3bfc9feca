# SPDX-License-Identifier: Apache-2.0
"""The emptiest node is no target while it cannot start pods, and the hot one is relieved anyway.

Shipped settings, and a pod on the hot node that crashes again and again: it is hardly ever
measured, and must neither hide the load of its node nor be moved.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bench.stands.cluster import Cluster
from bench.stands.episode import nothing_open
from bench.stands.real_scenario import app_of, pods_path
from controlplane.real_nodes import fleet
from tests.support.stands.control_plane import Say
from tests.support.stands.real_nodes import (
    NODES,
    Stand,
    deployment,
    only,
    place,
    shipped,
    tag_image,
)

pytestmark = pytest.mark.real_nodes

BURN = "--milli=70"
HOT, PODS = ("api", "web", "worker"), 2
LOOPING = "looping"
RELEASE = "evenkeel.invalid/workload:2"
CEILING, CLOSE = 80.0, 10.0
RELIEVED_S, CLOSED_S, AGREED_S = 300.0, 60.0, 150.0

Json = dict[str, Any]  # Any: nested API objects


@pytest.mark.e2e_real
async def test_nothing_is_moved_to_a_node_whose_kubelet_was_killed(
    cluster: Cluster, tmp_path: Path, say: Say
) -> None:
    third = NODES[2]
    await _hot_and_warm(cluster)
    await place(cluster, third, deployment("cool", 1, BURN))
    async with shipped(cluster, tmp_path, say) as stand:
        [cool] = [uid for uid, pod in stand.loop.pods.now.items() if app_of(pod) == "cool"]
        await cluster.kill(fleet.kubelet_of(third))
        await _relieved(stand, say)
        assert stand.counters.runs(third, cool), "containers go on without their kubelet"
        await cluster.start(fleet.kubelet_of(third))
        await cluster.wait(lambda: stand.agrees(CLOSE), AGREED_S, "belief and counters agree")


async def test_nothing_is_moved_to_a_node_that_cannot_pull_an_image(
    cluster: Cluster, tmp_path: Path, say: Say
) -> None:
    _, second, third = NODES
    await tag_image(cluster, second, RELEASE)
    await _hot_and_warm(cluster)
    await place(cluster, second, deployment("released", 1, image=RELEASE))
    async with only(cluster, third):
        await cluster.create([deployment("releasing", 1, image=RELEASE)])
        await cluster.wait(lambda: _cannot_pull(cluster), CLOSED_S, "its image cannot be pulled")
    async with shipped(cluster, tmp_path, say) as stand:
        await _relieved(stand, say)


async def _hot_and_warm(cluster: Cluster) -> None:
    """Fill one node above its ceiling, with a pod that crashes, and a second one by a third."""
    hot = (deployment(name, PODS, BURN) for name in HOT)
    looping = deployment(LOOPING, 1, "--exit-after=5s", cpu="10m")
    await place(cluster, NODES[0], *hot, looping)
    await place(cluster, NODES[1], deployment("warm", PODS, BURN))


async def _relieved(stand: Stand, say: Say) -> None:
    """Wait until the counters say that the hot node is below its ceiling; judge the moves."""
    first, second, _ = NODES
    await stand.until(stand.counters.percent, CLOSED_S, "the counters tell", closed=False)
    before = stand.counters.percent()[first]
    assert before > CEILING

    def relieved() -> bool:
        return bool(stand.loop.pods.left) and stand.counters.percent()[first] <= CEILING

    seconds = await stand.until(relieved, RELIEVED_S, "the hot node is relieved", closed=False)
    await stand.cluster.wait(lambda: nothing_open(stand.cluster), CLOSED_S, "no move is open")
    moves, landed = await stand.loop.migrations(), await stand.loop.landed()
    say(f"{before:.0f} % → {stand.counters.percent()[first]:.0f} % after {seconds:.0f} s")
    assert {move["spec"]["target"] for move in moves} == {second}
    assert landed.as_planned == landed.evictions
    assert {app_of(stand.loop.pods.ever[uid]) for uid in stand.loop.pods.left} <= {*HOT}
    assert any(app_of(pod) == LOOPING for pod in stand.loop.pods.on(first))


async def _cannot_pull(cluster: Cluster) -> bool:
    path = pods_path(cluster.namespace)
    pods: list[Json] = (await asyncio.to_thread(cluster.control_plane.api.get, path))["items"]
    states = [s for pod in pods for s in pod["status"].get("containerStatuses", ())]
    return any(s["state"].get("waiting", {}).get("reason") == "ImagePullBackOff" for s in states)
