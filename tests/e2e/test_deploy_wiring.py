# SPDX-License-Identifier: Apache-2.0
"""Both ways to wire the scheduler, run from what `deploy/` renders.

The objects are applied, controllers make pods of them under the namespaces' Pod Security, and
the programs of these pods are run with the flags, users, mounts and configuration that their
specs name: the real kube-scheduler, the extender and the rebalancer, each with the rights of
its account and no more. Workloads run on kwok's nodes. A host of the control plane is changed
by the commands of docs/scheduler.md, and changed back by them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.stands.cluster import MERGE, Cluster
from bench.stands.extender_process import seen_migrations
from bench.stands.landing import Landing, another, hits
from controlplane.components import FIRST_SERVICE_ADDRESS
from tests.support.deploy.host import Host
from tests.support.deploy.image import evenkeel_image, scheduler_image
from tests.support.deploy.pod import RunningPods, pods_running
from tests.support.deploy.render import (
    CONTROL_PLANE,
    OPT_IN,
    SECOND,
    installed,
    kustomization,
    pods_of,
)
from tests.support.deploy.static_pod import CONFIG, KUBECONFIG, kubeadm_scheduler, kubeconfig_inside
from tests.support.releases import MUTATES
from tests.support.stands.control_plane import Say

pytestmark = pytest.mark.real

READY_S = 60.0
MEASURED_S = 120.0
WORKLOAD = 30
MOVES = 5
MASTER = "node-role.kubernetes.io/control-plane"
COMPONENTS = ("bare-pods", "expose-extender-metrics", "pod-guard")
# Brisk for tests; what is decided does not depend on it.
BRISK = {"minPodAge": "1s", "minNodeAge": "1s", "reschedulingInterval": "5s"}

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects


@pytest.fixture
def landing(cluster: Cluster) -> Landing:
    return Landing(cluster)


async def test_the_second_scheduler_is_guided_and_the_rebalancer_moves_pods(
    cluster: Cluster, landing: Landing, tmp_path: Path, say: Say
) -> None:
    hot, maintained, *others = await cluster.add_nodes(6)
    await landing.occupy(hot, "hot", cpu="100m", usage_cpu="7200m")
    await cluster.maintain(maintained, on=True)
    await _label(cluster, OPT_IN)
    # Where no policy can do it, the template of a workload names the scheduler.
    named = {} if MUTATES else {"spec": {"schedulerName": "evenkeel-scheduler"}}
    components = ["namespace-opt-in", "pod-guard"] if MUTATES else ["pod-guard"]
    folder = kustomization(tmp_path / "k", SECOND, components)
    async with installed(cluster, folder):
        scheduler, _ = await pods_of(cluster, "evenkeel", "scheduler", 2)
        rebalancer, _ = await pods_of(cluster, "evenkeel", "rebalancer", 2)
        images = {"kube-scheduler": scheduler_image(cluster), "extender": evenkeel_image()}
        async with pods_running(cluster, tmp_path / "scheduler", [scheduler], images) as guided:
            await guided.ready(cluster)
            await cluster.wait(lambda: _is_hot(guided, hot), MEASURED_S, "the hot node is known")
            found = await landing.place("work", WORKLOAD, **named)
            pods = await landing.pods("work")
            assert {pod["spec"]["schedulerName"] for pod in pods} == {"evenkeel-scheduler"}
            assert found[maintained] == 0
            assert found[hot] <= 1
            landed = await _moved(cluster, landing, [pods[0], pods[1], pods[2]], others)
            calls = (await guided.metrics("extender")).total("extender_requests_total", code="200")
            say(f"second scheduler: {found[hot]} of {WORKLOAD} on the hot node, 0 under "
                f"maintenance, {landed} of 3 intents met, {calls:.0f} calls answered")  # fmt: skip
            assert landed == 3
            images = {"rebalancer": evenkeel_image()}
            async with pods_running(cluster, tmp_path / "reb", [rebalancer], images) as moving:
                await moving.ready(cluster)
                await _acts(cluster, landing, moving, others, named)


async def test_the_scheduler_of_the_control_plane_is_guided_and_goes_back_to_what_it_was(
    cluster: Cluster, landing: Landing, tmp_path: Path, say: Say
) -> None:
    taint = {"key": MASTER, "effect": "NoSchedule"}
    await cluster.add_nodes(1, labels={MASTER: ""}, taints=[taint])
    maintained, *others = await cluster.add_nodes(5)
    await cluster.maintain(maintained, on=True)
    folder = kustomization(tmp_path / "k", CONTROL_PLANE, COMPONENTS)
    async with installed(cluster, folder):
        [extender] = await pods_of(cluster, "evenkeel-control-plane", "extender", 1)
        await pods_of(cluster, "evenkeel", "rebalancer", 2)
        await cluster.stop("kube-scheduler")
        host = Host(tmp_path / "files", kubeadm_scheduler())
        before = host.files()
        host.bring()
        host.follow("The control plane scheduler")
        async with _on_host(cluster, host, extender, tmp_path / "there") as guided:
            await guided.ready(cluster)
            found = await landing.place("work", WORKLOAD)
            moved = (await landing.pods("work"))[:MOVES]
            landed = await _moved(cluster, landing, moved, others)
            calls = (await guided.metrics("extender")).total("extender_requests_total", code="200")
        say(f"control plane: {found[maintained]} of {WORKLOAD} under maintenance, "
            f"{landed} of {MOVES} intents met, {calls:.0f} calls answered")  # fmt: skip
        assert found[maintained] == 0
        assert landed == MOVES
        assert calls >= 2 * WORKLOAD
        host.follow("Reverting the change")
        assert host.files() == before
        async with _on_host(cluster, host, extender, tmp_path / "back") as alone:
            await alone.ready(cluster)
            found = await landing.place("later", WORKLOAD)
            calls = (await alone.metrics("extender")).total("extender_requests_total")
        say(f"after reverting: {found[maintained]} of {WORKLOAD} under maintenance, "
            f"{calls:.0f} calls")  # fmt: skip
        assert calls == 0
        assert found[maintained] > 0


@asynccontextmanager
async def _on_host(
    cluster: Cluster, host: Host, extender: Json, folder: Path
) -> AsyncIterator[RunningPods]:
    """Run what runs on a host of the control plane: its static scheduler, and our extender."""
    kubeconfig = cluster.control_plane.folder.kubeconfig_of("kube-scheduler")
    server = f"https://{FIRST_SERVICE_ADDRESS}:443"
    async with pods_running(
        cluster,
        folder,
        [extender, host.manifest],
        {"kube-scheduler": scheduler_image(cluster), "extender": evenkeel_image()},
        host_paths={
            KUBECONFIG: kubeconfig_inside(kubeconfig, server, folder.parent),
            CONFIG: host.etc / "scheduler-config.yaml",
        },
    ) as running:
        yield running


async def _is_hot(pods: RunningPods, node: str) -> bool:
    page = await pods.forwarded("extender", "/debug/nodes", Accept="application/json")
    rows = {row["node"]: row for row in page.json()["nodes"]}
    return rows[node]["unknown"] is None and rows[node]["use"] >= 1.0


async def _moved(
    cluster: Cluster, landing: Landing, pods: Sequence[Json], nodes: Sequence[str]
) -> int:
    """Evict pods for which Migrations were written; return how many landed as these say."""
    moves = [(pod, another(nodes, pod, turn)) for turn, pod in enumerate(pods)]
    known = {pod["metadata"]["uid"] for pod in await landing.pods("work")}
    version = await landing.plan(moves)
    await cluster.wait(lambda: _has_seen(cluster, version), what="the extender has all intents")
    await landing.evict(pods)
    after = await landing.bound("work", WORKLOAD)
    return hits((pod for pod in after if pod["metadata"]["uid"] not in known), moves)


async def _has_seen(cluster: Cluster, version: int) -> bool:
    return await seen_migrations(cluster) >= version


async def _acts(
    cluster: Cluster,
    landing: Landing,
    rebalancer: RunningPods,
    nodes: Sequence[str],
    template: Json,
) -> None:
    """See a Migration wait while it only observes, and carried out once it may act."""
    volume = rebalancer.volume("config")
    shipped = yaml.safe_load((volume.folder / "rebalancer.yaml").read_text())
    assert shipped["schedulerNames"] == ["evenkeel-scheduler"]
    volume.write({"rebalancer.yaml": yaml.safe_dump({**shipped, **BRISK})})
    taken = await landing.place("later", 3, **template)
    [pod, *_] = await landing.pods("later")
    await landing.plan([(pod, next(node for node in nodes if node not in taken))])
    migration = f"/apis/evenkeel.io/v1alpha1/migrations/{pod['metadata']['uid']}"

    async def status() -> Json:
        found = await asyncio.to_thread(cluster.control_plane.api.get, migration)
        told: Json = found.get("status", {})
        assert told.get("phase") != "Failed", told
        return told

    async def waits() -> bool:
        return "Observing" in [each["reason"] for each in (await status()).get("conditions", ())]

    async def completed() -> bool:
        return (await status()).get("outcome") == "AsPlanned"

    await cluster.wait(waits, READY_S, "the Migration waits")
    volume.write({"rebalancer.yaml": yaml.safe_dump({**shipped, **BRISK, "mode": "act"})})
    await cluster.wait(completed, READY_S, "the Migration is completed as planned")
    await cluster.wait(lambda: _unguarded(cluster), READY_S, "the temporary PDB is removed")


async def _unguarded(cluster: Cluster) -> bool:
    path = f"/apis/policy/v1/namespaces/{cluster.namespace}/poddisruptionbudgets"
    found = await asyncio.to_thread(cluster.control_plane.api.get, path)
    return not found["items"]


async def _label(cluster: Cluster, labels: Mapping[str, str]) -> None:
    body = {"metadata": {"labels": labels}}
    path = f"/api/v1/namespaces/{cluster.namespace}"
    api = cluster.control_plane.api
    await asyncio.to_thread(api.request, "PATCH", path, body, content_type=MERGE)
