# SPDX-License-Identifier: Apache-2.0
"""Pods of a native gang leave a hot node and a drained one, while its minimum runs throughout;
a gang that can spare none leaves a drained node as a whole, once all of it fits elsewhere.

The control plane of this module serves PodGroups: their gates are off by default. What runs is
counted after every single event of the pods' watch.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.stands.cluster import Cluster
from bench.stands.episode import Episode, episode, nothing_open
from bench.stands.real_scenario import Pods, app_of, ending, is_ready
from bench.stands.rebalancer_process import QUICK
from common.api.contract import DRAINED_CONDITION
from controlplane.cluster import ClusterOptions, ControlPlane, up
from controlplane.guardian import Guardian
from simulator import build
from simulator.scenarios import Scenario
from tests.support.releases import needs_pod_groups
from tests.support.stands.control_plane import Say

pytestmark = [pytest.mark.real, needs_pod_groups]

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects

MEMBERS, MINIMUM = 6, 5
LOAD = {"usageInterval": "2s", "observations": 2, "metricExpiry": "20s"}
STRATEGIES = ["ResourceOptimization", "NodeMaintenance"]
SETTINGS = {**QUICK, **LOAD, "enabledStrategies": STRATEGIES, "workloadCooldown": "1s"}


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own, with the gates of pod groups on."""
    root = tmp_path_factory.mktemp("groups") / "cp"
    guardian = Guardian(root)
    try:
        plane = up(ClusterOptions(root, pod_groups=True), lambda _: None)
        try:
            yield plane
        finally:
            plane.down()
    finally:
        guardian.dismiss()
        shutil.rmtree(root, ignore_errors=True)


def scenario() -> Scenario:
    """Return four nodes with something that runs on each of them."""
    usage = {"cpu": "50m", "memory": "300Mi"}
    web = {
        "name": "web",
        "replicas": 4,
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "usage": usage,
        "nodes": [f"node-{number}" for number in range(1, 5)],
    }
    return Scenario.model_validate({"pools": [{"name": "node", "count": 4}], "workloads": [web]})


async def test_a_gang_keeps_its_minimum_while_its_pods_move(
    cluster: Cluster, tmp_path: Path, say: Say
) -> None:
    async with episode(cluster, tmp_path, scenario(), seed=1, settings=SETTINGS, load=LOAD) as loop:
        hot, whole = loop.nodes["node-1"], loop.nodes["node-2"]
        await _begin(cluster, loop, hot, _gang(cluster, "train", MEMBERS, MINIMUM, "1300m"))
        await _begin(cluster, loop, whole, _gang(cluster, "whole", 2, 2, "50m"))
        counts: list[int] = []
        loop.pods.checks.append(_watched(loop.pods, {"train": MINIMUM, "whole": 2}, counts))

        await loop.over(lambda: loop.percent()[hot] <= 80.0)
        moved = (await loop.landed()).evictions
        assert (moved, len(_of(loop.pods, "train", hot))) == (2, MEMBERS - 2)

        await cluster.maintain(hot, on=True)
        met = f"--for=condition={DRAINED_CONDITION}"
        await cluster.kubectl("wait", met, f"node/{hot}", "--timeout=300s")
        await cluster.wait(lambda: loop.pods.settled, 90.0, "all replacements run")
        await cluster.wait(lambda: nothing_open(cluster), 90.0, "no move is under way")
        assert loop.pods.on(hot) == []
        assert min(counts) >= MINIMUM
        say(
            f"{moved} moves for load, then a drain of {MEMBERS - moved}; at least {min(counts)} ran"
        )

        await cluster.maintain(whole, on=True)
        await cluster.wait(lambda: _says(cluster, whole, "pod group minimum"), 90.0, "it is named")
        assert len(_of(loop.pods, "whole", whole)) == 2


async def test_a_gang_without_a_pod_to_spare_is_restarted_once_all_of_it_fits(
    cluster: Cluster, tmp_path: Path, say: Say
) -> None:
    settings = {**SETTINGS, "groups": "restart", "enabledStrategies": ["NodeMaintenance"]}
    async with episode(cluster, tmp_path, scenario(), seed=1, settings=settings, load=LOAD) as loop:
        drained = loop.nodes["node-1"]
        filler = build.deployment("filler", 1, namespace=cluster.namespace, cpu="2")
        await _begin(cluster, loop, loop.nodes["node-2"], [filler])
        await _begin(cluster, loop, drained, _gang(cluster, "whole", 3, 3, "50m", cpu="2500m"))
        before = {uid for uid, pod in loop.pods.now.items() if app_of(pod) == "whole"}
        # Two of the three would fit, on node-2.
        await _fill(cluster, [loop.nodes[f"node-{number}"] for number in (3, 4)])

        await cluster.maintain(drained, on=True)
        await cluster.wait(lambda: _says(cluster, drained, "pod group minimum"), 90.0, "named")
        await loop.over(lambda: {app_of(pod) for pod in loop.pods.on(drained)} == {"whole"})
        await loop.quiet(cycles=5, samples=0)
        assert before <= set(loop.pods.now)

        seen: list[int] = []
        loop.pods.checks.append(lambda: seen.append(len(before & loop.pods.left)))
        await cluster.patch_node(loop.nodes["node-3"], {"spec": {"taints": None}})
        await cluster.wait(lambda: before <= loop.pods.left, 90.0, "all of them are evicted")
        await cluster.wait(
            lambda: (
                sum(app_of(p) == "whole" for p in loop.pods.now.values() if is_ready(p)) == 3
                and loop.pods.settled
            ),
            90.0,
            "all of them run again",
        )
        assert _of(loop.pods, "whole", drained) == []
        await loop.quiet(cycles=5, samples=0)
        say(f"{len(before)} pods evicted together, {max(seen)} gone at most at a time")


async def _fill(cluster: Cluster, nodes: Iterable[str]) -> None:
    """Let nodes take no pods."""
    taint = {"key": "full", "value": "yes", "effect": "NoSchedule"}
    for node in nodes:
        await cluster.patch_node(node, {"spec": {"taints": [taint]}})


def _gang(
    cluster: Cluster, name: str, members: int, minimum: int, use: str, *, cpu: str = "100m"
) -> list[Json]:
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": cluster.namespace},
        "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
    }
    made = build.deployment(
        name,
        members,
        namespace=cluster.namespace,
        cpu=cpu,
        usage_cpu=use,
        spec={"schedulingGroup": {"podGroupName": name}},
    )
    return [group, made]


async def _begin(cluster: Cluster, loop: Episode, node: str, objects: Iterable[Json]) -> None:
    """Let something begin on one node: the others take nothing meanwhile."""
    others = [each for each in loop.nodes.values() if each != node]
    await _cordon(cluster, others, on=True)
    made = await cluster.create(objects)
    name = made[-1]["metadata"]["name"]
    count = made[-1]["spec"]["replicas"]
    await cluster.wait(
        lambda: len(_of(loop.pods, name, node)) == count and loop.pods.settled, 120.0, "it runs"
    )
    await _cordon(cluster, others, on=False)


def _of(pods: Pods, app: str, node: str) -> list[Json]:
    return [pod for pod in pods.on(node) if app_of(pod) == app and not ending(pod)]


def _watched(pods: Pods, least: dict[str, int], counts: list[int]) -> Callable[[], None]:
    """Return a check that no gang is below its minimum."""

    def check() -> None:
        for name, minimum in least.items():
            ready = [p for p in pods.now.values() if is_ready(p) and not ending(p)]
            count = sum(app_of(pod) == name for pod in ready)
            assert count >= minimum, f"{name} runs {count} of {minimum} pods that it needs"
            if name == "train":
                counts.append(count)

    return check


async def _says(cluster: Cluster, node: str, reason: str) -> bool:
    found = await asyncio.to_thread(cluster.control_plane.api.get, f"/api/v1/nodes/{node}")
    conditions = found["status"]["conditions"]
    return any(reason in str(each) for each in conditions if each["type"] == DRAINED_CONDITION)


async def _cordon(cluster: Cluster, nodes: Iterable[str], *, on: bool) -> None:
    for node in nodes:
        await cluster.patch_node(node, {"spec": {"unschedulable": on or None}})
