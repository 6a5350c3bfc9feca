# SPDX-License-Identifier: Apache-2.0
"""The default queries on a real Prometheus that scrapes what kubelets and node-exporter say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from common.clock import SYSTEM
from common.cluster.records import NodeName, NodeRecord
from common.config import Duration, Prometheus
from common.usage import Sample
from common.usage.prometheus import PrometheusSource
from tests.support.stands.prometheus import SCRAPE_MS, Exporter, Line, prometheus

pytestmark = pytest.mark.asyncio(loop_scope="module")

WINDOW_S = 5.0
MIB = 1024.0 * 1024.0

NODES = (
    NodeRecord(name=NodeName("by-label"), uid="1", addresses=("10.0.0.1",)),
    NodeRecord(name=NodeName("by-address"), uid="2", addresses=("10.0.0.2", "host-2")),
    NodeRecord(name=NodeName("by-host"), uid="3", addresses=("10.0.0.3", "host-3.internal")),
    NodeRecord(name=NodeName("by-name"), uid="4", addresses=("10.0.0.4",)),
)


def container(
    pod: str, name: str, cores: float, mib: float, stopped_s: float | None = None
) -> list[Line]:
    """Return a container's lines, or with no name those of its pod's cgroup or pause."""
    labels = {
        "namespace": "shop",
        "pod": pod,
        "container": name,
        "id": f"/kubepods/{pod}/{name}",
        "image": "registry.invalid/app" if name else "",
        "name": f"{pod}-{name}",
    }
    cpu = {**labels, "cpu": "total"}
    return [
        Line("container_cpu_usage_seconds_total", cpu, rate=cores, stopped_s=stopped_s),
        Line("container_memory_working_set_bytes", labels, value=mib * MIB, stopped_s=stopped_s),
    ]


def machine(cores: float, used_mib: float) -> list[Line]:
    """Return what node-exporter says of a machine with two cores."""
    modes = {"user": 0.5, "system": 0.25, "irq": 0.125, "softirq": 0.125}
    cpu = [
        Line("node_cpu_seconds_total", {"cpu": core, "mode": mode}, rate=share * cores / 2)
        for core in "01"
        for mode, share in modes.items()
    ]
    idle = [
        Line("node_cpu_seconds_total", {"cpu": core, "mode": mode}, rate=0.7)
        for core in "01"
        for mode in ("idle", "iowait", "steal")
    ]
    memory = [
        Line("node_memory_MemTotal_bytes", {}, value=4096 * MIB),
        Line("node_memory_MemAvailable_bytes", {}, value=(4096 - used_mib) * MIB),
        Line("node_memory_MemFree_bytes", {}, value=17 * MIB),
    ]
    return [*cpu, *idle, *memory]


def kubelet(stopped_s: float | None) -> Sequence[Line]:
    return [
        *container("web-1", "app", 0.25, 100.0),
        *container("web-1", "proxy", 0.05, 20.0),
        *container("web-1", "", 0.31, 125.0),  # the pod's own cgroup holds the sum once more
        *container("web-1", "POD", 0.01, 5.0),  # pause, as dockershim named it
        *container("web-2", "app", 1.5, 300.0),
        *container("stuck", "app", 0.4, 50.0, stopped_s=stopped_s),
        Line("container_memory_working_set_bytes", {"id": "/", "container": ""}, value=9e9),
        Line("container_memory_working_set_bytes", {"id": "/x", "container": "y"}, value=9e9),
    ]


def resource(stopped_s: float | None) -> Sequence[Line]:
    """Return the same containers as a kubelet has them on /metrics/resource."""
    return [
        replace(line, labels={k: line.labels[k] for k in ("namespace", "pod", "container")})
        for line in kubelet(stopped_s)
        if line.labels.get("container") not in ("", "POD", "y")
    ]


def tenant() -> Sequence[Line]:
    """Return what an exporter of a tenant says about others: idle nodes, and a hungry pod."""
    return [*container("web-2", "app", 90.0, 9000.0), *machine(0.0, 4000.0)]


def targets(port: int, **labels: str) -> dict[str, Any]:
    return {"targets": [f"127.0.0.1:{port}"], "labels": labels}


def scrape_configs(port: int) -> list[Mapping[str, Any]]:
    cadvisor = {"metrics_path": "/cadvisor", "static_configs": [targets(port)]}
    kubelets = [
        targets(port, __metrics_path__=path, metrics_path=f"/metrics{path}")
        for path in ("/cadvisor", "/resource")
    ]
    machines = [
        targets(port, __metrics_path__="/by-label", node="by-label"),
        targets(port, __metrics_path__="/by-address", instance="10.0.0.2:9100"),
        targets(port, __metrics_path__="/by-host", instance="host-3.internal:9100"),
        targets(port, __metrics_path__="/by-name", instance="by-name"),
        targets(port, __metrics_path__="/elsewhere", instance="192.168.7.7:9100"),
    ]
    return [
        {"job_name": "kubelet", "static_configs": kubelets},
        {"job_name": "kubelet-again", **cadvisor},
        {"job_name": "node-exporter", "static_configs": machines},
        {
            "job_name": "shop/tenant",
            "honor_labels": True,
            "metrics_path": "/tenant",
            "static_configs": [targets(port, node="by-label")],
        },
        {"job_name": "node-exporter-again", "static_configs": machines[:1]},
    ]


class Stand:
    """A Prometheus with enough samples to cover a window."""

    def __init__(self, url: str, exporter: Exporter, stopped_s: float) -> None:
        self.stopped_s = stopped_s
        self._url = url
        self._exporter = exporter

    async def sample(self, window_s: float = WINDOW_S) -> Sample:
        settings = Prometheus(url=self._url, window=Duration(window_s))
        async with PrometheusSource(settings, nodes=lambda: NODES, clock=SYSTEM) as source:
            return await source.sample()

    async def steady(self) -> Sample:
        """Return a sample over a window without gaps; a busy machine may miss a scrape."""
        for _ in range(60):
            sample = await self.sample()
            if sample.pods["shop/web-2"].cpu_milli == pytest.approx(1500.0, rel=0.02):
                break
            await self._exporter.scraped(1)
        return sample


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    exporter = Exporter()
    exporter.pages = {
        "/cadvisor": lambda: kubelet(None),
        "/resource": lambda: resource(None),
        "/by-label": lambda: machine(1.0, 1000.0),
        "/by-address": lambda: machine(0.5, 500.0),
        "/by-host": lambda: machine(0.25, 250.0),
        "/by-name": lambda: machine(2.0, 2000.0),
        "/elsewhere": lambda: machine(1.5, 1500.0),
        "/tenant": tenant,
    }
    folder = tmp_path_factory.mktemp("prometheus")
    async with (
        exporter.running(),
        prometheus(folder, exporter, scrape_configs(exporter.port)) as url,
    ):
        await exporter.scraped(4)
        stopped_s = round(SYSTEM.now(), 3)
        exporter.pages["/cadvisor"] = lambda: kubelet(stopped_s)
        exporter.pages["/resource"] = lambda: resource(stopped_s)
        await exporter.scraped(round(1000 * WINDOW_S / SCRAPE_MS))
        yield Stand(url, exporter, stopped_s)


async def test_pods_use_what_the_exporter_says_of_their_containers(stand: Stand) -> None:
    sample = await stand.steady()
    web = sample.pods["shop/web-1"]

    assert web.cpu_milli == pytest.approx(300.0, rel=0.05)
    assert web.mem_bytes == 120.0 * MIB
    assert sample.pods["shop/web-2"].cpu_milli == pytest.approx(1500.0, rel=0.05)
    assert sample.pods["shop/web-2"].mem_bytes == 300.0 * MIB
    assert web.window_s == WINDOW_S


async def test_nodes_are_found_by_label_address_host_and_name(stand: Stand) -> None:
    sample = await stand.steady()

    assert {name: usage.mem_bytes / MIB for name, usage in sample.nodes.items()} == {
        "by-label": 1000.0,
        "by-address": 500.0,
        "by-host": 250.0,
        "by-name": 2000.0,
    }
    assert {name: usage.cpu_milli for name, usage in sample.nodes.items()} == pytest.approx(
        {"by-label": 1000.0, "by-address": 500.0, "by-host": 250.0, "by-name": 2000.0}, rel=0.05
    )


async def test_a_series_that_stopped_says_when(stand: Stand) -> None:
    sample = await stand.sample(window_s=120.0)

    assert sample.pods["shop/stuck"].end_s == pytest.approx(stand.stopped_s, abs=0.002)
    assert sample.pods["shop/web-1"].end_s > stand.stopped_s
    assert all(usage.end_s > stand.stopped_s for usage in sample.nodes.values())
