# SPDX-License-Identifier: Apache-2.0
"""Pressure and a further resource from a real Prometheus, through both running programs.

Four nodes of 10 cores. Tasks of `waiting` wait for CPU although it uses little of it, until a pod
has left; `sending` uses as little, and its pods send more than is allowed; `near` is the emptiest,
and could take a pod, but not one that sends; `free` uses the most CPU and has room for all. By CPU
and memory alone nothing would have to move, and `near` and `waiting` would be filled first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from simulator import build
from simulator.api import is_ready
from tests.support.http import fetch, plain_http
from tests.support.stands.closed_loop import Loop, closed_loop
from tests.support.stands.command import evenkeel
from tests.support.stands.extender import eventually
from tests.support.stands.extender_service import go_json
from tests.support.stands.prometheus import Counters, Exporter, Line, prometheus

Json = dict[str, Any]  # Any: what a program says, and what it is told

WINDOW_S = 4.0
LINE = 100.0
"""What a node can send."""
MIB = 1024.0 * 1024.0
SENDS = {"sending": 20.0, "near": 30.0}
"""By app, as its pods do wherever they are."""
PRESSURE: tuple[tuple[str, Json], ...] = (
    ("node_pressure_cpu_waiting_seconds_total", {}),
    ("container_pressure_cpu_waiting_seconds_total", {"id": "/"}),
)
"""By node-exporter, and by kubelets since 1.34."""
OF_KUBELETS = ("waiting", "free")
"""The nodes whose pressure only their kubelets report."""
APPS = {"waiting": (4, "500m"), "sending": (4, "500m"), "near": (2, "250m"), "free": (4, "1000m")}


class Machines:
    """What kubelets and node-exporter say of the simulated nodes at the moment."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._counters: defaultdict[str, Counters] = defaultdict(Counters)

    def kubelets(self) -> Sequence[Line]:
        found, counter = [], self._counters["kubelets"].line
        for pod in filter(is_ready, self._loop.pods()):
            name = pod["metadata"]["name"]
            labels = {"namespace": "default", "pod": name, "container": "app", "id": f"/{name}"}
            cpu = {**labels, "cpu": "total"}
            found += [
                counter("container_cpu_usage_seconds_total", cpu, cores(pod)),
                counter("container_network_transmit_bytes_total", labels, sends(pod)),
                Line("container_memory_working_set_bytes", labels, value=100 * MIB),
            ]
        return found

    def machine(self, node: str) -> Sequence[Line]:
        pods = [pod for pod in self._loop.on(node) if is_ready(pod)]
        line = self._counters[node].line
        return [
            line("node_cpu_seconds_total", {"cpu": "0", "mode": "user"}, sum(map(cores, pods))),
            line("node_network_transmit_bytes_total", {"device": "eth0"}, sum(map(sends, pods))),
            Line("node_memory_MemTotal_bytes", {}, value=4096 * MIB),
            Line("node_memory_MemAvailable_bytes", {}, value=3000 * MIB),
        ]

    def pressure(self, node: str) -> Sequence[Line]:
        pods = [pod for pod in self._loop.on(node) if is_ready(pod)]
        waits = 0.45 if node == "waiting" and len(pods) > 3 else 0.02
        series, labels = PRESSURE[node in OF_KUBELETS]
        return [self._counters[node].line(series, labels, waits)]


def cores(pod: Json) -> float:
    text = pod["metadata"]["annotations"][build.USAGE_CPU]
    return float(text.removesuffix("m")) / 1000.0


def sends(pod: Json) -> float:
    return SENDS.get(pod["metadata"]["labels"]["app"], 0.0)


def load(url: str) -> Json:
    """Return what both programs are told."""
    network = {
        "name": "network",
        "nodeQuery": "sum by ($node, instance) (rate(node_network_transmit_bytes_total"
        '{job=~"$nodeJobs",device="eth0"}[$window]))',
        "podQuery": "sum by (namespace, pod) (rate(container_network_transmit_bytes_total"
        '{job=~"$podJobs"}[$window]))',
        "capacity": LINE,
    }
    return {
        "usageSource": "prometheus",
        "prometheus": {"url": url, "window": f"{WINDOW_S:g}s", "resources": [network]},
        "pressure": {"cpu": 20.0},
        "pools": [{"name": "all", "nodeSelector": "", "resourceThresholds": {"network": 70.0}}],
    }


@asynccontextmanager
async def measured(folder: Path) -> AsyncIterator[tuple[Loop, str]]:
    """Give the cluster, and a Prometheus that scrapes it."""
    apps = [
        build.deployment(name, count, cpu="100m", usage_cpu=usage)
        for name, (count, usage) in APPS.items()
    ]
    nodes = [build.node(name, cpu="10") for name in APPS]
    places = {name: [name] * count for name, (count, _) in APPS.items()}
    # Prometheus goes by the machine's clock.
    async with closed_loop(
        folder, *apps, nodes=nodes, places=places, guided=False, speed=1.0, pace=20.0
    ) as loop:
        await loop.until(lambda: len(loop.ready()) == 14, "all are Ready")
        machines = Machines(loop)
        exporter = Exporter({f"/{name}": partial(machines.machine, name) for name in APPS})
        exporter.pages |= {f"/{name}/pressure": partial(machines.pressure, name) for name in APPS}
        exporter.pages["/cadvisor"] = machines.kubelets
        async with exporter.running():
            target = [f"127.0.0.1:{exporter.port}"]
            jobs: dict[str, list[Json]] = {"node-exporter": [], "kubelet": []}
            jobs["kubelet"].append({"targets": target, "labels": {"__metrics_path__": "/cadvisor"}})
            for name in APPS:
                labels = {"__metrics_path__": f"/{name}", "node": name}
                jobs["node-exporter"].append({"targets": target, "labels": labels})
                labels = {**labels, "__metrics_path__": f"/{name}/pressure"}
                job = "kubelet" if name in OF_KUBELETS else "node-exporter"
                jobs[job].append({"targets": target, "labels": labels})
            scraped = [{"job_name": job, "static_configs": each} for job, each in jobs.items()]
            async with prometheus(folder, exporter, scraped) as url:
                yield loop, url


async def scores(extender: str, pod: Json) -> dict[str, int]:
    """Return what an extender gives nodes for a pod that nothing is known of."""
    unbound = {**pod, "spec": {**pod["spec"], "nodeName": ""}}
    question = {"pod": unbound, "nodenames": list(APPS)}
    async with plain_http(extender) as http:
        answer = await http.post("/prioritize", content=go_json(question))
    return {row["Host"]: row["Score"] for row in answer.json()}


async def test_a_node_that_waits_and_one_that_sends_too_much_are_relieved_and_not_filled(
    tmp_path: Path,
) -> None:
    async with measured(tmp_path) as (loop, url):
        given = load(url)
        async with loop.extender(**given) as extender:
            stranger = build.pod("stranger", cpu="100m")

            async def avoided() -> bool:
                found = await scores(extender, stranger)
                return found["waiting"] == found["sending"] == 0 < found["free"] < found["near"]

            await eventually(avoided, "the extender avoids them", patience_s=60.0)
            file = loop.configured(**given)
            flags = ("--kubeconfig", str(loop.kubeconfig), "--config", str(file))
            named = ("waiting", "sending", "near")
            why = {name: await evenkeel(*flags, "why", "node", name) for name in named}
            listed = await evenkeel(*flags, "nodes", "--output", "json")
            async with loop.rebalancer(**given) as health:
                await loop.until(lambda: len(loop.migrations()) >= 2, "two moves begin")
                await loop.settled()
                await loop.cycles(health, 4)
                plan = (await fetch(f"{health}/debug/plan", output="json")).json()
            moved = {
                each["spec"]["source"]: (each["spec"]["target"], each["spec"]["message"])
                for each in loop.migrations()
            }
    # Where Prometheus has missed a scrape, its rates are a little off.
    assert re.search(r"4\d % CPU \(allowed 20 %\)", why["waiting"].out), why["waiting"]
    assert "UnderPressure" in why["waiting"].out
    assert re.search(r"(7[5-9]|8\d) % network", why["sending"].out), why["sending"]
    assert "80 % CPU, 80 % memory, 70 % network" in why["near"].out
    assert len(loop.migrations()) == len(loop.witness.evicted) == 2
    notes = {node["name"]: node["note"] for node in listed.json["nodes"]}
    assert re.search(r"4\d % CPU pressure", notes["waiting"]), notes
    assert re.search(r"\d % network", notes["sending"]), notes
    assert notes["near"] == notes["free"] == ""
    assert set(moved) == {"waiting", "sending"}
    assert moved["waiting"][0] in ("near", "free")
    assert moved["waiting"][1].startswith("waiting has ")
    assert "CPU pressure (allowed 20 %, pressure.cpu)" in moved["waiting"][1]
    assert moved["sending"][0] == "free"
    assert re.search(r"(7[5-9]|8\d) % network \(allowed 70 %", moved["sending"][1])
    assert set(loop.outcomes()) == {"AsPlanned"}
    assert plan["moves"] == plan["unmet"] == []
