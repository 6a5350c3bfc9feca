# SPDX-License-Identifier: Apache-2.0
"""Reading a real cluster: the load is the truth, and nothing that happens is missed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from bench.stands.cluster import Cluster
from common.cache.reader import CACHED_KINDS, CachedKind
from common.cache.snapshot import Snapshot
from common.cache.state import ClusterState
from common.clock import SYSTEM
from common.config import ExtenderConfiguration
from common.kube.client import KubeClient
from common.kube.errors import Forbidden, KubeError
from common.load import LoadView
from common.metrics import Metrics
from common.observer import Observer
from simulator import build
from tests.support.repository import DEPLOY

READER = DEPLOY / "base" / "reader.yaml"
MI = 2**20

QUICK = ExtenderConfiguration.model_validate(
    {
        "usageInterval": "2s",
        "reading": {"backoffMin": "100ms", "backoffMax": "1s", "connectTimeout": "2s"},
    }
)


@asynccontextmanager
async def observing(
    client: KubeClient, config: ExtenderConfiguration = QUICK
) -> AsyncIterator[Observer]:
    observer = Observer(client, config, clock=SYSTEM, metrics=Metrics("test"))
    task = asyncio.create_task(observer.run())
    try:
        await asyncio.wait_for(observer.reader.wait_synced(), 30)
        yield observer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def workloads(
    cluster: Cluster, count: int, replicas: int, *, prefix: str = "w"
) -> list[build.Manifest]:
    """Deployments that use other than they ask for, each its own amount."""
    return [
        build.deployment(
            f"{prefix}{i}",
            replicas,
            namespace=cluster.namespace,
            cpu="100m",
            memory="64Mi",
            usage_cpu=f"{50 + 10 * i}m",
            usage_memory=f"{32 + 8 * i}Mi",
        )
        for i in range(count)
    ]


def annotated(snapshot: Snapshot, usages: dict[str, tuple[int, int]]) -> dict[str, list[float]]:
    """Return what the pods of each node really use, from the truth about their workloads."""
    truth: dict[str, list[float]] = {name: [0.0, 0.0] for name in snapshot.nodes}
    for name, view in snapshot.nodes.items():
        for pod in view.pods.values():
            cpu, memory = usages[pod.labels["app"]]
            truth[name][0] += cpu
            truth[name][1] += memory
    return truth


async def running(cluster: Cluster, observer: Observer, count: int) -> Snapshot:
    def enough() -> bool:
        pods = observer.reader.state.snapshot().by_namespace[cluster.namespace].values()
        return sum(pod.ready for pod in pods) == count

    await cluster.wait(enough, timeout_s=120, what=f"{count} pods run")
    return observer.reader.state.snapshot()


async def test_load_equals_the_truth_and_a_burst_is_not_taken_for_nothing(
    cluster: Cluster,
) -> None:
    usages = {f"w{i}": (50 + 10 * i, (32 + 8 * i) * MI) for i in range(50)}
    await cluster.add_nodes(50)
    async with cluster.client() as client, observing(client) as observer:
        await cluster.create(workloads(cluster, 50, 10))
        snapshot = await running(cluster, observer, 500)
        await _sampled_twice(cluster, observer)
        belief = await observer.look()
        assert observer.source.asked == "metrics-server"
        _close(belief.load, annotated(belief.snapshot, usages), within=0.02)

        before = {n: (x.cpu_milli, x.mem_bytes) for n, x in belief.load.nodes.items()}
        # Otherwise a slow machine has measured the burst before all of it runs.
        await cluster.stop("metrics-server")
        burst = build.deployment(
            "burst", 50, namespace=cluster.namespace, cpu="500m", memory="256Mi"
        )
        await cluster.create([burst])
        await running(cluster, observer, 550)
        belief = await observer.look()
    await cluster.start("metrics-server")
    new = [p for p in belief.snapshot.pods.values() if p.labels.get("app") == "burst"]
    for name, load in belief.load.nodes.items():
        count = sum(pod.node == name for pod in new)
        assert load.cpu_milli - before[name][0] == pytest.approx(
            count * 0.85 * 500, rel=0.02, abs=1
        )
        assert load.mem_bytes - before[name][1] == pytest.approx(
            count * 0.70 * 256 * MI, rel=0.02, abs=1
        )
    assert len(new) == 50
    assert len(snapshot.nodes) == 50


async def test_nothing_is_missed_while_api_server_and_etcd_die(cluster: Cluster) -> None:
    await cluster.add_nodes(10)
    async with cluster.client() as client, observing(client) as observer:
        await cluster.create(workloads(cluster, 10, 10, prefix="steady"))
        await running(cluster, observer, 100)
        changes = asyncio.create_task(_change(client, cluster.namespace, 1_000))
        for component in ("kube-apiserver", "etcd", "kube-apiserver"):
            await asyncio.sleep(2)
            await cluster.kill(component)
            await cluster.start(component)
        assert await changes == 1_000
        await _quiet(cluster, client, observer)
        fresh = await _listed(client)
        _same(observer.reader.state.snapshot(), fresh.snapshot())
    assert sum(len(fresh.snapshot().by_namespace[n]) for n in [cluster.namespace]) == 100


async def test_the_shipped_role_is_enough_to_read_and_nothing_more(cluster: Cluster) -> None:
    await cluster.add_nodes(2)
    await cluster.bind("reader", READER)
    async with cluster.client(user="reader") as client, observing(client) as observer:
        await cluster.wait(lambda: observer.why_not_ready() is None, what="the reader is ready")
        belief = await observer.look()
        assert len(belief.load.nodes) == 2
        for write in (
            client.create(_kind("pods"), build.pod("p"), namespace="default"),
            client.delete(_kind("nodes"), name="n"),
            client.patch(_kind("pods"), {}, name="p", namespace="default"),
        ):
            with pytest.raises(Forbidden):
                await write


async def test_every_missing_right_is_named(cluster: Cluster, tmp_path: Path) -> None:
    """Each kind that is needed is named by the program if it cannot be read, and it waits."""
    gate = asyncio.Semaphore(2)

    async def check(reading: CachedKind) -> None:
        plural = reading.resource.plural
        file = tmp_path / f"{plural}.yaml"
        file.write_text(yaml.safe_dump(_role_without(reading)))
        await cluster.bind(f"without-{plural}", file)
        kubeconfig = await cluster.kubeconfig_of(user=f"without-{plural}")
        async with gate:
            code, out, err = await _look("--kubeconfig", str(kubeconfig), "--once", "--wait", "10")
        assert (code, out) == (1, "")
        assert f": waiting for {plural} (Forbidden: {plural}" in err.splitlines()[-1]
        assert f'cannot list resource \\"{plural}\\"' in err

    await asyncio.gather(*(check(kind) for kind in CACHED_KINDS if not kind.optional))


async def test_the_command_shows_the_load_of_every_node(cluster: Cluster) -> None:
    names = await cluster.add_nodes(3)
    # One pod a node: metrics-server says nothing about a node that uses nothing at all.
    alone = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "w"}},
    }
    spread = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [alone]}}
    made = build.deployment(
        "w",
        3,
        namespace=cluster.namespace,
        usage_cpu="120m",
        usage_memory="64Mi",
        spec={"affinity": spread},
    )
    await cluster.create([made])
    arguments = ("--kubeconfig", str(cluster.kubeconfig), "--once")

    async def seen() -> dict[str, Any] | None:
        code, out, err = await _look(*arguments, "--output", "json")
        assert code == 0, err
        found = json.loads(out)
        known = all(node["unknown"] is None for node in found["nodes"])
        measured = all(node["estimatedPods"] == 0 for node in found["nodes"])
        pods = sum(node["pods"] for node in found["nodes"])
        return found if known and measured and pods == 3 else None

    found = await cluster.wait(seen, timeout_s=90, what="all pods are measured")
    assert {node["name"] for node in found["nodes"]} == set(names)
    assert sum(node["cpuMilli"] for node in found["nodes"]) == pytest.approx(360, rel=0.02)
    _, table, _ = await _look(*arguments)
    assert all(name in table for name in names)
    assert "3 of 3 nodes known, usage from metrics-server" in table


def _role_without(reading: CachedKind) -> build.Manifest:
    role: build.Manifest = yaml.safe_load(READER.read_text())
    resource = reading.resource
    for rule in role["rules"]:
        if resource.group in rule["apiGroups"] and resource.plural in rule["resources"]:
            rule["resources"].remove(resource.plural)
    role["rules"] = [rule for rule in role["rules"] if rule["resources"]]
    role["metadata"]["name"] = f"without-{resource.plural}"
    return role


async def _sampled_twice(cluster: Cluster, observer: Observer) -> None:
    """Wait until metrics-server has measured every pod in two windows."""

    async def ends() -> float:
        load = (await observer.look()).load
        if load.unknown or any(node.estimated_pods for node in load.nodes.values()):
            return 0.0
        return min(node.sample_end_s or 0.0 for node in load.nodes.values())

    first = await cluster.wait(ends, timeout_s=90, what="a first sample of everything")

    async def later() -> bool:
        return await ends() > first

    await cluster.wait(later, timeout_s=60, what="a second sample of everything")


def _close(load: LoadView, truth: dict[str, list[float]], *, within: float) -> None:
    assert not load.unknown
    for name, node in load.nodes.items():
        cpu, memory = truth[name]
        assert node.cpu_milli == pytest.approx(cpu, rel=within)
        assert node.mem_bytes == pytest.approx(memory, rel=within)


async def _change(client: KubeClient, namespace: str, count: int) -> int:
    """Change pods again and again, through every failure, and return how many changes held."""
    pods = _kind("pods")
    done = 0
    while done < count:
        try:
            listed = json.loads(await client.get(pods.path(namespace=namespace)))
            for pod in listed["items"]:
                name = pod["metadata"]["name"]
                if done % 10 == 9:
                    await client.delete(pods, name=name, namespace=namespace)
                else:
                    body = {"metadata": {"labels": {"evenkeel.io/change": str(done)}}}
                    await client.patch(pods, body, name=name, namespace=namespace)
                done += 1
                if done == count:
                    break
                await asyncio.sleep(0.005)
        except KubeError:
            await asyncio.sleep(0.2)
    return done


async def _quiet(cluster: Cluster, client: KubeClient, observer: Observer) -> None:
    """Wait until the cluster has come to rest and the reader has heard the last word."""

    async def settled() -> bool:
        snapshot = observer.reader.state.snapshot()
        mine = snapshot.by_namespace[cluster.namespace].values()
        if sum(pod.ready and not pod.terminating for pod in mine) != 100 or len(mine) != 100:
            return False
        fresh = (await _listed(client)).snapshot()
        return _told(snapshot) == _told(fresh)

    await cluster.wait(settled, timeout_s=90, what="the reader knows all that happened")


async def _listed(client: KubeClient) -> ClusterState:
    """Read everything again, without a reflector."""
    state = ClusterState()
    for reading in CACHED_KINDS:
        params = {"fieldSelector": reading.field_selector} if reading.field_selector else {}
        body = await client.get(reading.resource.path(), params=params)
        items = msgspec.json.decode(body)["items"]
        table = reading.table(state)
        for item in items:
            table.upsert(msgspec.convert(item, type=reading.type_))
    return state


def _told(snapshot: Snapshot) -> dict[str, Any]:
    """Return all that a snapshot says, field by field."""
    maps = {
        field: dict(getattr(snapshot, field))
        for field in Snapshot.__struct_fields__
        if isinstance(getattr(snapshot, field), dict) or hasattr(getattr(snapshot, field), "items")
    }
    maps["nodes"] = {
        name: (view.node, dict(view.pods), view.requested, view.scored_cpu_milli)
        for name, view in snapshot.nodes.items()
    }
    return maps


def _same(ours: Snapshot, fresh: Snapshot) -> None:
    mine, theirs = _told(ours), _told(fresh)
    assert mine.keys() == theirs.keys()
    for field, expected in theirs.items():
        assert mine[field] == expected, field


def _kind(plural: str) -> Any:
    return next(r.resource for r in CACHED_KINDS if r.resource.plural == plural)


async def _look(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "common",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()
