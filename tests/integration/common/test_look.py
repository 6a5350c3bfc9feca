# SPDX-License-Identifier: Apache-2.0
"""`python -m common` as a process: what it reads, and one clear line for every bad input."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.cache.reader import CACHED_KINDS, CachedKind, ClusterReader
from common.clock import SYSTEM
from common.config import Reading
from common.kube import resources as kinds
from common.kube.client import connect
from common.metrics import Metrics
from simulator import build
from tests.support.certificates import Authority, server_context
from tests.support.http import plain_http
from tests.support.stands.scripted_api import write_kubeconfig
from tests.support.stands.static_api import StaticApi
from tests.support.stands.warm_python import run_program, start_program
from tests.support.worlds.wire import stamped

READY = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-16T08:00:00Z"}]


def ready_node(name: str, **status: Any) -> build.Manifest:
    made = stamped(build.node(name))
    return {**made, "status": {**made["status"], "conditions": READY, **status}}


async def look(*arguments: str) -> tuple[int, str, str]:
    """Run the command; return its exit code, what it printed, and what it complained."""
    return await run_program("common", "--once", *arguments)


def complaint(err: str) -> str:
    """Return the one line that is not the log of the start; there must be just one."""
    lines = [line for line in err.splitlines() if " INFO " not in line]
    assert len(lines) == 1, err
    return lines[0]


@pytest.mark.parametrize("reading", CACHED_KINDS, ids=lambda r: r.resource.plural)
async def test_every_kind_is_read_into_the_state(reading: CachedKind, tmp_path: Path) -> None:
    meta = {"name": "it", "uid": "u1", "resourceVersion": "1"}
    if reading.resource.namespaced:
        meta["namespace"] = "default"
    api = StaticApi({reading.resource: [{"metadata": meta}]})
    async with api.serving():
        kubeconfig = str(write_kubeconfig(tmp_path / "k", api.url))
        async with connect(kubeconfig=kubeconfig, clock=SYSTEM) as client:
            reader = ClusterReader(client, reading=Reading(), clock=SYSTEM, metrics=Metrics("test"))
            task = asyncio.create_task(reader.run())
            await reader.wait_synced()
            await reader.reflector_of(reading.resource).wait_synced()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    snapshot = reader.state.snapshot()
    maps = (
        *(snapshot.nodes, snapshot.pods, snapshot.namespaces, snapshot.workloads),
        *(snapshot.budgets, snapshot.claims, snapshot.volumes, snapshot.storage_classes),
        *(snapshot.csi_nodes, snapshot.priority_classes, snapshot.leases, snapshot.autoscalers),
    )
    assert [len(held) for held in maps if held] == [1]


async def test_load_is_what_pods_ask_for_where_nothing_is_measured(tmp_path: Path) -> None:
    pod = stamped(build.pod("p", node="n1", cpu="2", memory="8Gi"))
    api = StaticApi({kinds.NODES: [ready_node("n1")], kinds.PODS: [pod]})
    async with api.serving():
        kubeconfig = write_kubeconfig(tmp_path / "k", api.url)
        code, out, err = await look("--kubeconfig", str(kubeconfig), "--output", "json")
    assert code == 0, err
    (node,) = json.loads(out)["nodes"]
    assert (node["cpuPercent"], node["memoryPercent"], node["unknown"]) == (25.0, 25.0, None)


async def test_odd_objects_are_kept_or_skipped_with_a_warning(tmp_path: Path) -> None:
    nonsense = stamped(build.pod("nonsense", node="n1", cpu="12 apples"))
    labels = {f"label-{i}": "v" for i in range(3_000)}
    api = StaticApi(
        {
            kinds.NODES: [ready_node("n1"), ready_node("bare", allocatable={})],
            kinds.PODS: [nonsense, stamped(build.pod("big", node="n1", cpu="1", labels=labels))],
        }
    )
    async with api.serving():
        kubeconfig = write_kubeconfig(tmp_path / "k", api.url)
        code, out, err = await look("--kubeconfig", str(kubeconfig), "--output", "json")
    nodes = {node["name"]: node for node in json.loads(out)["nodes"]}
    assert code == 0
    assert (nodes["n1"]["pods"], nodes["n1"]["cpuMilli"]) == (1, 1000.0)
    assert nodes["bare"]["unknown"] == "NoAllocatable"
    assert "object skipped" in err
    assert "'12 apples' is not a quantity" in err
    assert "object is invalid" in err
    assert err.count(" WARNING object ") == 2


def bad_kubeconfigs(folder: Path) -> Iterator[tuple[str, str]]:
    (folder / "broken").write_text("clusters: [}")
    (folder / "empty").write_text("")
    write_kubeconfig(folder / "nowhere", "http://127.0.0.1:1")
    yield "missing", r"--kubeconfig .*missing: no such file"
    yield "broken", r"--kubeconfig .*broken: not YAML: .* in line 1"
    yield "empty", r"--kubeconfig .*empty: "
    yield "nowhere", r"cannot reach http://127.0.0.1:1: connection refused"


@pytest.mark.parametrize("number", range(4), ids=["missing", "broken", "empty", "nowhere"])
async def test_a_bad_kubeconfig_is_one_clear_line(number: int, tmp_path: Path) -> None:
    name, words = list(bad_kubeconfigs(tmp_path))[number]
    code, out, err = await look("--kubeconfig", str(tmp_path / name))
    assert (code, out) == (1, "")
    assert re.match(f"common: {words}", complaint(err)), err


async def test_a_certificate_of_a_stranger_is_one_clear_line(tmp_path: Path) -> None:
    ours, strangers = Authority(tmp_path, "ours"), Authority(tmp_path, "strangers")
    pair = strangers.issue("server", names=["127.0.0.1"])
    api = StaticApi({})
    async with api.serving(server_context(pair)):
        kubeconfig = write_kubeconfig(
            tmp_path / "k", api.url, cluster={"certificate-authority": str(ours.certificate)}
        )
        code, _, err = await look("--kubeconfig", str(kubeconfig))
    assert code == 1
    assert "certificate signed by unknown authority" in complaint(err)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cpuThreshhold: 80", "line 3: cpuThreshhold: unknown key, did you mean cpuThreshold?"),
        ("usageInterval: 30", "line 3: usageInterval: 30 is not a duration: write 30s"),
        ("cpuThreshold: -1", "line 3: cpuThreshold"),
        ("cpuThreshold: [", "line 4"),
        ("usageSource: tea-leaves", "line 3: usageSource"),
    ],
)
async def test_a_bad_configuration_is_one_clear_line(text: str, words: str, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"apiVersion: evenkeel.io/v1alpha1\nkind: ExtenderConfiguration\n{text}\n")
    code, out, err = await look("--config", str(config))
    assert (code, out) == (2, "")
    assert words in complaint(err)


async def test_the_program_keeps_reading_and_answers_for_its_health(tmp_path: Path) -> None:
    api = StaticApi({kinds.NODES: [ready_node("n1")]})
    async with api.serving():
        kubeconfig = write_kubeconfig(tmp_path / "k", api.url)
        process = await start_program("common", "--kubeconfig", str(kubeconfig))
        ports = json.loads(await process.stdout.readline())
        async with plain_http(f"http://{ports['health']}") as health:
            while (answer := await health.get("/readyz?verbose")).status_code != 200:
                assert answer.status_code == 503
            metrics = (await health.get("/metrics")).text
        process.terminate()
        await process.communicate()
    assert process.returncode == 0
    assert "[+]cluster ok" in answer.text
    assert 'evenkeel_cache_staleness_seconds{kind="Node"}' in metrics
